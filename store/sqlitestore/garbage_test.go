package sqlitestore_test

import (
	"path/filepath"
	"strings"
	"testing"

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
