package poll_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/source/poll"
)

// Somebody empties tables, or deletes from them, while producers and a relay are at
// work. What he deleted unsent is gone. Everything that commits afterwards arrives,
// once what status names is mended; so does what he did not delete.
func TestTablesEmptiedUnderLoad(t *testing.T) {
	pool := open(t)
	for i, test := range []struct {
		sql   string
		relay string // what it says
		mends bool   // there may be something to mend
	}{
		{`TRUNCATE {s}.log_0`, "", false},
		{`DELETE FROM {s}.log_0`, "", false},
		{`TRUNCATE {s}.log_0 RESTART IDENTITY`, "was altered or begun anew", true},
		{`TRUNCATE {s}.cursor`, "fenced=true", false},
		{`TRUNCATE {s}.mark`, "lost this relay's mark", false},
		{`TRUNCATE {s}.parked, {s}.gap, {s}.member, {s}.retention, {s}.route`, "", false},
		{`TRUNCATE {s}.log_0, {s}.cursor, {s}.mark, {s}.parked, {s}.gap, {s}.member, {s}.retention RESTART IDENTITY`, "", false},
	} {
		t.Run(test.sql, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t, pool, fmt.Sprint("emptied ", i), 1, "route")
			_, stop := o.open()
			o.enqueue(2000, "t")
			c := o.crowd(2)
			o.long("messages flow", func() bool { return c.count() > 20 && o.lacking("route") == 0 })
			c.mu.Lock() // what commits from now on begins later
			before := len(c.ids)
			o.exec(test.sql)
			deletes := strings.Contains(test.sql, "log_0")
			c.mu.Unlock()
			o.long("producers go on", func() bool { return c.count() > before+20 })
			if test.mends {
				o.mend("")
			}
			o.long("producers go on", func() bool { return c.count() > before+40 })
			c.stop()
			for e, n := range c.errors {
				if !strings.Contains(e, "deadlock") {
					t.Errorf("%d producers failed: %s", n, e)
				}
			}
			o.ids = c.ids
			if deletes { // but for what was under way in each session
				o.ids = c.ids[min(before+2, len(c.ids)):]
			}
			o.mend("")
			o.long("what commits afterwards arrives", func() bool { return o.lacking("route") == 0 })
			if !strings.Contains(o.log.String(), test.relay) {
				t.Errorf("the relay does not say %q:\n%.3000s", test.relay, o.log.String())
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A part of the schema is gone: status and the relay's start name it.
func TestPartsOfTheSchemaAreGone(t *testing.T) {
	pool := open(t)
	for i, test := range []struct{ sql, says, mend string }{
		{`DROP TABLE {s}.log_1 CASCADE`, "lacks log_1, log_1_seq, messages", ""},
		{`DROP TABLE {s}.gap CASCADE`, "lacks gap, messages", ""},
		{`TRUNCATE {s}.meta`, "is empty", "made the schema: "},
	} {
		o := newOffice(t, pool, fmt.Sprint("gone ", i), 2, "route")
		o.exec(test.sql)
		start := func() error {
			store, err := poll.New(poll.Config{Pool: pool, Schema: o.schema})
			if err == nil {
				_, err = store.Shards(t.Context())
			}
			return err
		}
		err := start()
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", test.sql, err)
			continue
		}
		if _, mend, ok := strings.Cut(err.Error(), test.mend); ok && test.mend != "" {
			o.exec(mend)
			if err := start(); err != nil {
				t.Errorf("%s, mended: %v", test.sql, err)
			}
		}
	}
}

// A log is begun anew and messages are enqueued past the position before the relay
// looks again, which settles in between: as test suites do that empty all tables.
// Those with old numbers count as done, and are not passed over in silence; what
// mends it brings each once.
func TestALogBegunAnewBetweenTwoLooks(t *testing.T) {
	for _, mistake := range []func(string) string{nil, replace("l.seq <= c.checked", "false")} {
		w := newWorld(t)
		w.rewrite = mistake
		lease := w.acquire()
		for range 5 {
			w.enqueue(w.pool, "", "before")
		}
		if _, err := w.receive(lease, 5, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		w.look(lease) // and settles
		w.exec(`TRUNCATE postrider.log_0 RESTART IDENTITY`)
		for range 7 {
			w.enqueue(w.pool, "", "after")
		}
		if err := lease.Settle(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		got, err := lease.Receive(ctx, 10)
		cancel()
		if err == nil || !strings.Contains(err.Error(), "begun anew") {
			t.Errorf("the lease received %d messages and %v", len(got), err)
		}
		if err := lease.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = w.tryAcquire()
		if mistake != nil {
			if err != nil {
				t.Errorf("with the mistake it was noticed: %v", err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "numbers from 1 on were given out again") {
			t.Fatalf("acquire: %v", err)
		}
		_, mend, _ := strings.Cut(err.Error(), "for the tables' owner: ")
		if _, err := w.pool.Exec(t.Context(), mend, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		next := w.acquire()
		if _, err := w.receive(next, 7, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		w.look(next)
	}
}
