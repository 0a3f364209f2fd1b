package poll_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/store/pgstore"
)

// crowd enqueues from several sessions at once until it is told to stop, and
// keeps the ids of what committed and the errors of what did not.
type crowd struct {
	office *office
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	ids    []uuid.UUID
	errors map[string]int
}

func (o *office) crowd(sessions int) *crowd {
	ctx, cancel := context.WithCancel(o.t.Context())
	c := &crowd{office: o, cancel: cancel, errors: map[string]int{}}
	for i := range sessions {
		c.done.Go(func() {
			for ctx.Err() == nil {
				c.enqueue(i)
			}
		})
	}
	o.t.Cleanup(c.stop)
	return c
}

// enqueue commits one message, or not, in a transaction that takes its time now
// and then.
func (c *crowd) enqueue(session int) {
	ctx := context.WithoutCancel(c.office.t.Context())
	id := uuid.New()
	err := pgx.BeginFunc(ctx, c.office.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, c.office.sql(`SELECT {s}.enqueue('t', '', key => $1, id => $2)`), fmt.Sprint("k", session), id)
		time.Sleep(time.Duration(id[0]) * 20 * time.Microsecond)
		return err
	})
	c.mu.Lock()
	if err == nil {
		c.ids = append(c.ids, id)
	} else {
		c.errors[err.Error()]++
	}
	c.mu.Unlock()
	if err != nil {
		time.Sleep(20 * time.Millisecond) // as who tries again does
	}
}

func (c *crowd) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ids)
}

func (c *crowd) stop() {
	c.cancel()
	c.done.Wait()
}

// problems is what status says of the log.
func (o *office) problems() []admin.LogProblem {
	o.t.Helper()
	status, err := pgstore.NewAdmin(o.pool, o.schema).Status(o.t.Context(), admin.StatusOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
	return status.Log
}

// mend does what status says until it says nothing more.
func (o *office) mend(says string) {
	o.t.Helper()
	found := false
	for range 10 {
		problems := o.problems()
		if len(problems) == 0 {
			if !found && says != "" {
				o.t.Errorf("status does not say %q", says)
			}
			return
		}
		p := problems[0]
		found = found || strings.Contains(p.Text, says)
		_, err := o.pool.Exec(o.t.Context(), p.Mend, pgx.QueryExecModeSimpleProtocol)
		if err != nil && !strings.Contains(err.Error(), "deadlock detected") {
			o.t.Fatalf("%s: %v", p.Mend, err)
		}
	}
	o.t.Fatalf("it is not mended: %+v", o.problems())
}

// long is await for what takes until the next look at everything.
func (o *office) long(what string, ok func() bool) {
	o.t.Helper()
	for end := time.Now().Add(90 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			o.t.Fatalf("%s: it does not come to that; the relay says\n%.5000s", what, o.log.String())
		}
	}
}

// spoiled is something that somebody does to the log by hand.
type spoiled struct {
	name, sql string
	status    string // what status says
	relay     string // what the relay says, which then does not go on
	fails     string // what producers hear until it is mended, or it is past
}

var spoilings = []spoiled{
	{"cache", `ALTER SEQUENCE {s}.log_0_seq CACHE 10`, "cache 10", "cache 10", ""},
	{"increment", `ALTER SEQUENCE {s}.log_0_seq INCREMENT 2`, "increment 2", "increment 2", ""},
	{"backwards", `ALTER SEQUENCE {s}.log_0_seq INCREMENT -1`, "increment -1", "increment -1", "duplicate key"},
	{"cycle", `ALTER SEQUENCE {s}.log_0_seq CYCLE`, "cycle true", "cycle true", ""},
	{"integer", `ALTER SEQUENCE {s}.log_0_seq AS integer`, "ends at 2147483647", "", ""},
	{"short", `DO $$ BEGIN EXECUTE 'ALTER SEQUENCE {s}.log_0_seq MAXVALUE ' || (SELECT last_value + 5 FROM {s}.log_0_seq); END $$`,
		"and enqueueing with it", "", "reached maximum value"},
	{"no owner", `ALTER SEQUENCE {s}.log_0_seq OWNED BY NONE`, "", "", ""},
	{"no default", `ALTER TABLE {s}.log_0 ALTER seq DROP DEFAULT`, "lost its default", "", "null value in column"},
	{"plain default", `ALTER TABLE {s}.log_0 ALTER seq SET DEFAULT nextval('{s}.log_0_seq')`, "has another default", "has another default", ""},
	{"another id", `ALTER TABLE {s}.log_0 ALTER xid SET DEFAULT '5'::xid8`, "column xid of", "column xid of", ""},
	{"renamed", `ALTER SEQUENCE {s}.log_0_seq RENAME TO other; CREATE SEQUENCE {s}.log_0_seq`, "has another default", "has another default", "duplicate key"},
	{"replaced", `DROP SEQUENCE {s}.log_0_seq CASCADE; CREATE SEQUENCE {s}.log_0_seq`, "lost its default", "has not given out", "null value in column"},
	{"set back", `SELECT setval('{s}.log_0_seq', 2)`, "has not given out", "", "duplicate key"},
	{"set to the last", `SELECT setval('{s}.log_0_seq', last_value, false) FROM {s}.log_0_seq`, "", "", "duplicate key"},
	{"far forward", `SELECT setval('{s}.log_0_seq', last_value + 1000000000) FROM {s}.log_0_seq`, "", "", ""},
	{"chosen, not far", chosen(`(SELECT last_value + 50 FROM {s}.log_0_seq)`), "", "", "duplicate key"},
	{"chosen, farther", chosen(`(SELECT last_value + 2000000 FROM {s}.log_0_seq)`), "has not given out", "has not given out", ""},
	{"the largest", chosen(largestNumber), "were not drawn", "", ""},
	{"the largest but one", chosen(`9223372036854775806`), "were not drawn", "", ""},
	{"zero", chosen(`0`), "not positive", "", ""},
	{"negative", chosen(leastNumber), "not positive", "", ""},
}

// chosen inserts a message whose number somebody chose.
func chosen(number string) string {
	return `INSERT INTO {s}.log_0 (seq, id, topic, payload) VALUES (` + number + `, '00000000-0000-0000-0000-0000000000aa', 't', '')`
}

// Somebody spoils the log while producers and a relay are at work. The relay says
// so with the statement that mends it, or goes on; producers that fail hear why;
// and once it is mended everything that committed arrives.
func TestLogSpoiledUnderLoad(t *testing.T) {
	spoilEach(t, func(o *office, s spoiled) {
		_, stop := o.open()
		o.enqueue(2000, "t")
		c := o.crowd(2)
		o.long("messages flow", func() bool { return c.count() > 20 && o.lacking("route") == 0 })
		o.spoil(s)
		o.suffer(c, s, c.count())
		if err := stop(); err != nil {
			o.t.Error(err)
		}
	})
}

// The same while no relay runs.
func TestLogSpoiledBeforeTheStart(t *testing.T) {
	spoilEach(t, func(o *office, s spoiled) {
		_, stop := o.open()
		o.enqueue(2000, "t")
		o.long("messages flow", func() bool { return o.lacking("route") == 0 })
		if err := stop(); err != nil {
			o.t.Fatal(err)
		}
		o.spoil(s)
		c := o.crowd(2)
		_, stop = o.open()
		o.suffer(c, s, 0)
		if err := stop(); err != nil {
			o.t.Error(err)
		}
	})
}

func spoilEach(t *testing.T, test func(*office, spoiled)) {
	pool := open(t)
	for i, s := range spoilings {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			test(newOffice(t, pool, fmt.Sprintf("%.20s %d", t.Name(), i), 1, "route"), s)
		})
	}
}

func (o *office) spoil(s spoiled) {
	o.t.Helper()
	_, err := o.pool.Exec(o.t.Context(), o.sql(s.sql), pgx.QueryExecModeSimpleProtocol)
	for err != nil && strings.Contains(err.Error(), "deadlock detected") { // with producers, which have locks in another order
		_, err = o.pool.Exec(o.t.Context(), o.sql(s.sql), pgx.QueryExecModeSimpleProtocol)
	}
	if err != nil {
		o.t.Fatal(err)
	}
	if strings.Contains(s.sql, "00aa") {
		o.ids = append(o.ids, uuid.MustParse("00000000-0000-0000-0000-0000000000aa"))
	}
}

// suffer waits for what the spoiling leads to, mends it under load, and awaits
// everything that committed. count is how much that was before.
func (o *office) suffer(c *crowd, s spoiled, count int) {
	o.t.Helper()
	if s.relay != "" {
		o.long("it is noticed", func() bool { return strings.Contains(o.log.String(), s.relay) })
	}
	o.long("producers do what they can", func() bool { return c.count() > count+20 || c.heard(s.fails) })
	o.mend(s.status)
	count = c.count()
	o.long("producers go on", func() bool { return c.count() > count+20 })
	c.stop()
	for e, n := range c.errors {
		if s.fails == "" || !strings.Contains(e, s.fails) && !strings.Contains(e, "duplicate key") && !strings.Contains(e, "deadlock detected") {
			o.t.Errorf("%d producers failed: %s", n, e)
		}
	}
	o.ids = append(o.ids, c.ids...)
	o.mend("")
	o.long("everything that committed arrives", func() bool { return o.lacking("route") == 0 })
	if problems := o.problems(); len(problems) > 0 {
		o.t.Errorf("afterwards: %+v", problems)
	}
}

// heard reports whether a producer failed with the text.
func (c *crowd) heard(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := range c.errors {
		if text != "" && strings.Contains(e, text) {
			return true
		}
	}
	return false
}
