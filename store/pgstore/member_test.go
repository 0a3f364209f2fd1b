package pgstore_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgstore"
)

// Looking at the roster writes only what has to be written: relays do it all
// the time, and every write costs a transaction id.
func TestLookingSeldomWrites(t *testing.T) {
	pool := migrated(t, pgstore.Options{})
	look := func(owner string) relay.Roster {
		t.Helper()
		roster, err := pgstore.Look(t.Context(), pool, "", relay.Member{Owner: owner, Routes: []string{"route"}}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return roster
	}
	version := func() (xmin string) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `SELECT xmin::text FROM postrider.member WHERE owner = 'one'`).Scan(&xmin); err != nil {
			t.Fatal(err)
		}
		return xmin
	}
	look("one")
	first := version()
	for range 5 {
		look("one")
	}
	if again := version(); again != first {
		t.Errorf("the row was written again, by transaction %s after %s", again, first)
	}
	exec(t, pool, `UPDATE postrider.member SET expires = clock_timestamp() + interval '39 minutes'`)
	aged := version()
	look("one")
	if version() == aged {
		t.Error("a row with less than two thirds of its time left was not renewed")
	}
	exec(t, pool, `UPDATE postrider.member SET routes = '{}'`)
	for _, m := range look("one").Members {
		if m.Owner != "one" {
			t.Errorf("on the roster is %+v", m)
		}
	}
	for _, m := range look("two").Members {
		if m.Owner == "one" && len(m.Routes) != 1 {
			t.Errorf("routes that somebody changed stay as %v", m.Routes)
		}
	}
}

// Rows of relays that died go away in time.
func TestDeadMembersAreForgotten(t *testing.T) {
	pool := migrated(t, pgstore.Options{})
	exec(t, pool, `INSERT INTO postrider.member (owner, routes, expires)
		SELECT 'dead ' || i, '{}'::text[], clock_timestamp() - interval '61 seconds' FROM generate_series(1, 100) AS i
		UNION ALL SELECT 'just dead', '{}', clock_timestamp()`)
	roster, err := pgstore.Look(t.Context(), pool, "", relay.Member{Owner: "alive"}, time.Minute)
	if err != nil || len(roster.Members) != 1 {
		t.Fatalf("%+v, %v", roster, err)
	}
	var left int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM postrider.member`).Scan(&left); err != nil || left != 2 {
		t.Errorf("%d rows are left (%v), want the one that is alive and the one that was lately", left, err)
	}
}
