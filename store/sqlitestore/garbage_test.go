package sqlitestore_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlitestore"
)

// Rows that nothing would hand out are refused, and what cannot be is recovered
// from or reported.
func TestGarbage(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlitestore.Options{Shards: 1})
	enqueue(t, s.DB(), "a", "b")
	acquire(t, s)
	row := func(key, state, closes, due, attempts string) string {
		return `INSERT INTO postrider_parked (route, shard, seq, key, state, closes, due, attempts, error, changed_at)
			VALUES ('route', 0, 1, ` + key + `, ` + state + `, ` + closes + `, ` + due + `, ` + attempts + `, '', 0)`
	}
	for name, query := range map[string]string{
		"a state that is none":        row("'k'", "'parked'", "1", "0", "0"),
		"negative attempts":           row("'k'", "'retrying'", "1", "0", "-1"),
		"retrying, but never due":     row("'k'", "'retrying'", "1", "NULL", "0"),
		"scheduled, but never due":    row("'k'", "'scheduled'", "0", "NULL", "0"),
		"blocked by nothing":          row("''", "'blocked'", "0", "NULL", "0"),
		"in the way of no key":        row("''", "'retrying'", "1", "0", "0"),
		"failed, to be tried again":   row("'k'", "'failed'", "0", "0", "0"),
		"a position before the first": `UPDATE postrider_cursor SET pos = -1`,
	} {
		if _, err := s.DB().Exec(query); err == nil || !strings.Contains(err.Error(), "CHECK constraint") {
			t.Errorf("%s: %v", name, err)
		}
	}
	exec1(t, s.DB(), `UPDATE postrider_cursor SET expires = 9000000000000000`)
	other := claim
	other.Owner = "other"
	if _, err := s.Acquire(t.Context(), other); err == nil || !strings.Contains(err.Error(), "longer than relays ask for") {
		t.Errorf("a lease for centuries: %v", err)
	}
	exec1(t, s.DB(), `UPDATE postrider_cursor SET expires = 0, pos = 1, unsettled = '[[-3,900]]'`)
	receive(t, acquire(t, s), "a", "b") // each once
	exec1(t, s.DB(), `UPDATE postrider_cursor SET unsettled = 'all'`)
	if _, err := s.Acquire(t.Context(), claim); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged cursor: %v", err)
	}
}

// Columns refuse what does not belong there, whoever writes it.
func TestGarbageIsRefused(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlitestore.Options{Shards: 1})
	enqueue(t, s.DB(), "a")
	lease := acquire(t, s)
	got := receive(t, lease, "a")
	if err := lease.Settle(t.Context(), []relay.Outcome{{Delivery: got[0], State: outbox.StateFailed, Error: "no"}}); err != nil {
		t.Fatal(err)
	}
	for _, garbage := range []string{
		"UPDATE postrider_parked SET state = 'running'", "UPDATE postrider_parked SET due = 'soon'",
		"UPDATE postrider_parked SET attempts = NULL", "UPDATE postrider_cursor SET pos = 'far'",
		"UPDATE postrider_cursor SET expires = 'never'", "UPDATE postrider_cursor SET token = NULL",
		"UPDATE postrider_log_0 SET not_before = 'tomorrow'", "UPDATE postrider_log_0 SET payload = 'text'",
	} {
		if _, err := s.DB().Exec(garbage); err == nil {
			t.Errorf("taken: %s", garbage)
		}
	}
}

// The log refuses what could not be delivered, at its limits and not before.
func TestUndeliverableIsRefused(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlitestore.Options{Shards: 1}).DB()
	insert := func(column, value string) error {
		row := map[string]string{
			"id": "randomblob(16)", "topic": "'orders'", "key": "'k'", "type": "'t'", "payload": "x'00'", "content_type": "'text/plain'", "headers": "'{}'",
		}
		row[column] = value
		names := slices.Sorted(maps.Keys(row))
		var values []string
		for _, name := range names {
			values = append(values, row[name])
		}
		_, err := db.Exec("INSERT INTO postrider_log_0 (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(values, ", ") + ")")
		return err
	}
	text := func(n int) string { return "'" + strings.Repeat("ü", n/2) + strings.Repeat("x", n%2) + "'" }
	for _, good := range [][2]string{
		{"topic", text(255)}, {"key", text(1024)}, {"key", "''"}, {"type", text(255)}, {"content_type", text(255)}, {"payload", "zeroblob(16777216)"},
		{"headers", `'{"a":1}'`}, {"not_before", "NULL"}, {"not_before", "253402300799999999"}, {"created_at", "0"},
	} {
		if err := insert(good[0], good[1]); err != nil {
			t.Errorf("%s %.40s: %v", good[0], good[1], err)
		}
	}
	for _, bad := range [][2]string{
		{"id", "x'00'"}, {"id", "randomblob(17)"}, {"id", "x''"}, {"id", "NULL"}, {"id", "'0123456789abcdef'"},
		{"topic", "''"}, {"topic", text(256)}, {"topic", "'a' || char(0)"}, {"topic", "NULL"}, {"key", text(1025)}, {"key", "char(0)"}, {"key", "NULL"},
		{"type", text(256)}, {"type", "char(0)"}, {"content_type", text(256)}, {"content_type", "char(0)"},
		{"payload", "zeroblob(16777217)"}, {"payload", "NULL"}, {"payload", "'text'"},
		{"headers", "''"}, {"headers", "'{'"}, {"headers", "'[]'"}, {"headers", "'null'"}, {"headers", "NULL"},
		{"not_before", "9223372036854775807"}, {"not_before", "'tomorrow'"}, {"expires", "253402300800000000"}, {"expires", "1.5"},
		{"created_at", "-9223372036854775808"}, {"created_at", "NULL"},
	} {
		if insert(bad[0], bad[1]) == nil {
			t.Errorf("taken: %s %.40s", bad[0], bad[1])
		}
	}
}

// Whoever writes SQL may give headers any values.
func TestHeadersOfAnyKind(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlitestore.Options{Shards: 1})
	exec1(t, s.DB(), `INSERT INTO postrider_log_0 (id, topic, key, type, payload, content_type, headers)
		VALUES (randomblob(16), 'orders', '', 'a', x'', '', '{"a":1,"b":null,"c":"d"}')`)
	got := receive(t, acquire(t, s), "a")[0].Message.Headers
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "null", "c": "d"}, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}
