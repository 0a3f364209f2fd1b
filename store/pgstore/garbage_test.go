package pgstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgstore"
)

func claimOf(owner string) relay.Claim {
	return relay.Claim{Route: "route", Owner: owner, TTL: time.Minute, Topics: []string{"**"}}
}

// insertParked is a row, but for its state, whether it closes and when it is due.
const insertParked = `INSERT INTO postrider.parked (route, shard, key, id, topic, created_at, type, content_type, payload, seq, state, closes, due_at, attempts) `

// The tables refuse rows that nothing would ever hand out, and nonsense.
func TestGarbageIsRefused(t *testing.T) {
	pool := migrated(t, pgstore.Options{})
	if _, err := pgstore.Acquire(t.Context(), pool, "", claimOf("one"), nil); err != nil {
		t.Fatal(err)
	}
	row := func(shard, key, state, closes, due, attempts string) string {
		return insertParked + `VALUES ('route', ` + shard + `, ` + key + `, gen_random_uuid(), 't', now(), '', '', '', 1, ` + state + `, ` + closes + `, ` + due + `, ` + attempts + `)`
	}
	for name, sql := range map[string]string{
		"a state that is none":         row("0", "'k'", "'parked'", "true", "now()", "0"),
		"a shard that is none":         row("77", "'k'", "'retrying'", "true", "now()", "0"),
		"negative attempts":            row("0", "'k'", "'retrying'", "true", "now()", "-1"),
		"retrying, but never due":      row("0", "'k'", "'retrying'", "true", "NULL", "0"),
		"pending, but never due":       row("0", "'k'", "'pending'", "true", "NULL", "0"),
		"scheduled, but never due":     row("0", "'k'", "'scheduled'", "false", "NULL", "0"),
		"blocked by nothing":           row("0", "''", "'blocked'", "false", "NULL", "0"),
		"blocked until a time":         row("0", "'k'", "'blocked'", "true", "now()", "0"),
		"in the way of no key":         row("0", "''", "'retrying'", "true", "now()", "0"),
		"scheduled in its key's way":   row("0", "'k'", "'scheduled'", "true", "now()", "0"),
		"failed, to be tried again":    row("0", "'k'", "'failed'", "false", "now()", "0"),
		"expired, to be tried again":   row("0", "'k'", "'expired'", "false", "now()", "0"),
		"created at no time":           strings.Replace(row("0", "'k'", "'retrying'", "true", "now()", "0"), "'t', now()", "'t', '-infinity'", 1),
		"a position before the first":  `UPDATE postrider.cursor SET pos = -1`,
		"fewer deaths than none":       `UPDATE postrider.cursor SET deaths = -1`,
		"a cursor that nobody can own": `UPDATE postrider.cursor SET token = NULL`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "violates") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := pool.Exec(t.Context(), row("0", "'k'", "'retrying'", "true", "now()", "0")); err != nil {
		t.Errorf("what is no garbage: %v", err)
	}
}

// What the tables cannot refuse is recovered from, or reported.
func TestGarbageInACursor(t *testing.T) {
	pool := migrated(t, pgstore.Options{})
	acquire := func(owner string) (*pgstore.Cursor, error) {
		return pgstore.Acquire(t.Context(), pool, "", claimOf(owner), nil)
	}
	first, err := acquire("one")
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `UPDATE postrider.cursor SET token = gen_random_uuid()`)
	if _, err := first.Settle(t.Context(), pgstore.Progress{}, nil); err != relay.ErrFenced {
		t.Errorf("a settle after the token was changed: %v", err)
	}

	exec(t, pool, `UPDATE postrider.cursor SET lease_until = '3000-01-01'`)
	if _, err := acquire("two"); err == nil || !strings.Contains(err.Error(), "longer than relays ask for") || !strings.Contains(err.Error(), "UPDATE") {
		t.Errorf("a lease for a thousand years: %v", err)
	}
	exec(t, pool, `UPDATE postrider.cursor SET lease_until = '-infinity', pos = 10, unsettled = '{[-5,3),[9,900)}'`)
	exec(t, pool, `INSERT INTO postrider.gap (route, shard, id, numbers) VALUES ('route', 0, 1, '{[5,6),[20,30)}')`)
	c, err := acquire("two")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Unsettled.Len(); got != 4 { // 1, 2, 9 and 10
		t.Errorf("%d numbers are unsettled: %v", got, c.Unsettled.Ranges())
	}
	if gap := c.Gaps[1]; gap.Len() != 1 || !gap.Has(5) {
		t.Errorf("the gap is %v", gap.Ranges())
	}
	exec(t, pool, `UPDATE postrider.cursor SET unsettled = '{(,)}'`)
	if _, err := acquire("two"); err == nil || !strings.Contains(err.Error(), "unexpected set of numbers") {
		t.Errorf("all numbers unsettled: %v", err)
	}
}

// Keys that wait for nothing, since somebody deleted what they waited for, go on
// under a lease that is held.
func TestKeysThatWaitForNothingGoOn(t *testing.T) {
	pool := migrated(t, pgstore.Options{})
	c, err := pgstore.Acquire(t.Context(), pool, "", claimOf("one"), nil)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, insertParked+`SELECT 'route', 0, 'k' || i, gen_random_uuid(), 't', now(), '', '', NULL, i, 'blocked', true, NULL, 0 FROM generate_series(1, 1500) AS i`)
	exec(t, pool, insertParked+`VALUES ('route', 0, 'k7', gen_random_uuid(), 't', now(), '', '', '', 5000, 'retrying', true, now() + interval '1 day', 1)`)
	after, calls := "", 0
	for calls == 0 || after != "" {
		if after, err = c.Heal(t.Context(), after); err != nil {
			t.Fatal(err)
		}
		calls++
	}
	var waiting int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM postrider.parked WHERE state = 'blocked' AND due_at IS NULL`).Scan(&waiting); err != nil {
		t.Fatal(err)
	}
	if waiting != 1 || calls != 2 {
		t.Errorf("after %d calls %d messages wait, want the one behind the retry", calls, waiting)
	}
	if _, err := pgstore.Acquire(t.Context(), pool, "", claimOf("one"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Heal(t.Context(), ""); err == nil {
		t.Error("a lease that was lost heals")
	}
}
