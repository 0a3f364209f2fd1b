package poll_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/store/pgstore"
)

// journal keeps what a relay logs.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func newSink() *sink {
	return &sink{flying: map[uuid.UUID]bool{}, calls: map[uuid.UUID][]time.Time{}}
}

// office is a schema with a relay that serves it.
type office struct {
	t      *testing.T
	pool   *pgxpool.Pool
	schema pgstore.Schema
	routes map[string]*sink // by name; each takes everything
	lease  time.Duration
	limits relay.Limits
	log    journal
	ids    []uuid.UUID // of what was enqueued
}

func newOffice(t *testing.T, pool *pgxpool.Pool, schema string, shards int, routes ...string) *office {
	t.Helper()
	o := &office{t: t, pool: pool, schema: pgstore.Schema(schema), routes: map[string]*sink{}, lease: 15 * time.Second}
	if _, err := pgstore.Migrate(t.Context(), pool, pgstore.Options{Schema: o.schema, Shards: shards}); err != nil {
		t.Fatal(err)
	}
	for _, name := range routes {
		o.routes[name] = newSink()
	}
	return o
}

// open starts the relay; the function that it returns stops it.
func (o *office) open(edit ...func(*relay.Route)) (*relay.Relay, func() error) {
	o.t.Helper()
	store, err := poll.New(poll.Config{Pool: o.pool, Schema: o.schema})
	if err != nil {
		o.t.Fatal(err)
	}
	config := relay.Config{Store: store, Owner: "relay", Lease: o.lease, Limits: o.limits, Logger: slog.New(slog.NewTextHandler(&o.log, nil))}
	for name, sink := range o.routes {
		route := relay.Route{Name: name, Topics: []string{"**"}, Publisher: sink}
		for _, e := range edit {
			e(&route)
		}
		config.Routes = append(config.Routes, route)
	}
	r, err := relay.New(config)
	if err != nil {
		o.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(o.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop := sync.OnceValue(func() error { cancel(); return <-done })
	o.t.Cleanup(func() { _ = stop() })
	return r, stop
}

// enqueue commits n messages.
func (o *office) enqueue(n int, topic string) {
	o.t.Helper()
	err := pgx.BeginFunc(o.t.Context(), o.pool, func(tx pgx.Tx) error {
		msgs := make([]outbox.Message, n)
		for i := range msgs {
			msgs[i] = outbox.Message{ID: uuid.New(), Topic: topic, Key: fmt.Sprint(topic, i%5000), Payload: []byte("{}")}
			o.ids = append(o.ids, msgs[i].ID)
		}
		return outbox.NewWriter(pgstore.Pgx{Schema: o.schema}).Enqueue(o.t.Context(), tx, msgs...)
	})
	if err != nil {
		o.t.Fatal(err)
	}
}

// exec runs a statement in which {s} is the schema.
func (o *office) exec(sql string) {
	o.t.Helper()
	if _, err := o.pool.Exec(o.t.Context(), o.sql(sql)); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
}

func (o *office) sql(sql string) string {
	return strings.ReplaceAll(sql, "{s}", pgx.Identifier{o.schema.Name()}.Sanitize())
}

func (o *office) count(sql string) (n int) {
	o.t.Helper()
	if err := o.pool.QueryRow(o.t.Context(), o.sql(sql)).Scan(&n); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// lacking is how many messages have not come on a route.
func (o *office) lacking(route string) (n int) {
	times := o.routes[route].times()
	for _, id := range o.ids {
		if times[id] == 0 {
			n++
		}
	}
	return n
}

// await waits until ok.
func (o *office) await(what string, ok func() bool) {
	o.t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			o.t.Fatalf("%s: it does not come to that; the relay says\n%s", what, o.log.String())
		}
	}
}

// Somebody deletes a row that the relay lives by, under load. It says so where
// that may cost repetitions, writes a new one, and goes on; no message is lost.
func TestRowsThatSomebodyDeletes(t *testing.T) {
	pool := open(t)
	for _, test := range []struct {
		table  string
		rows   int
		says   string
		repeat bool // it goes on where it had recorded something, so messages come again
	}{
		{"cursor", 4, "somebody has deleted its row", true},
		{"mark", 4, "lost this relay's mark", false},
		{"member", 1, "", false},
	} {
		t.Run(test.table, func(t *testing.T) {
			o := newOffice(t, pool, "deleted "+test.table, 4, "route")
			sink := o.routes["route"]
			sink.delay = 100 * time.Microsecond
			_, stop := o.open()
			o.enqueue(2000, "t")
			o.await("messages flow", func() bool { return len(sink.times()) > 100 })
			o.exec(`DELETE FROM {s}.` + test.table)
			o.enqueue(500, "t")
			o.await("everything arrives", func() bool { return o.lacking("route") == 0 })
			o.await("the rows are there again", func() bool { return o.count(`SELECT count(*) FROM {s}.`+test.table) == test.rows })
			o.enqueue(100, "t")
			o.await("later messages arrive", func() bool { return o.lacking("route") == 0 })
			if err := stop(); err != nil {
				t.Error(err)
			}
			if !strings.Contains(o.log.String(), test.says) {
				t.Errorf("the log lacks %q:\n%s", test.says, o.log.String())
			}
			for id, n := range sink.times() {
				if n > 1 && !test.repeat {
					t.Errorf("%s was sent %d times", id, n)
				}
			}
		})
	}
}

const (
	leastNumber   = "-9223372036854775808"
	largestNumber = "9223372036854775807"
)

// nonsense is what somebody wrote by hand into the state of a route, {r}.
type nonsense struct {
	sql string
	// says is what the relay may say, where it need not go on.
	says string
}

// nonsenseInCursors, and in their gaps.
func nonsenseInCursors() (all []nonsense) {
	for says, settings := range map[string][]string{
		"": {
			`pos = 0`, `pos = 3`,
			`unsettled = '{[` + leastNumber + `,` + largestNumber + `)}'`, `unsettled = '{[1000000,2000000)}'`, `unsettled = '{[2,4),[6,7)}'`,
			`token = '00000000-0000-0000-0000-000000000000'`, `owner = ''`, `lease_until = '-infinity'`,
			`topics = '{}'`, `topics = '{NULL}'`, `topics_from = ` + largestNumber, `started = ` + leastNumber, `deaths = 2147483647`,
			`seen = '18446744073709551615'`, `created_at = 'infinity'`,
		},
		"longer than relays ask for": {
			`owner = 'ghost', lease_until = 'infinity'`, `token = gen_random_uuid(), owner = 'ghost', lease_until = now() + '2 days'`,
		},
		"set of numbers":   {`unsettled = '{(,)}'`},
		"given out again,": {`pos = 1000000`, `pos = ` + largestNumber, `seen = '0'`},
	} {
		for _, set := range settings {
			all = append(all, nonsense{`UPDATE {s}.cursor SET ` + set + ` WHERE route = '{r}'`, says})
		}
	}
	gap := func(values, says string) {
		all = append(all, nonsense{`INSERT INTO {s}.gap (route, shard, id, numbers) VALUES ('{r}', 0, ` + values + `)`, says})
	}
	gap(`0, '{}'`, "")
	gap(leastNumber+`, '{[1,100000)}'`, "")
	gap(largestNumber+`, '{[5,9)}'`, "")
	gap(`1, '{[`+leastNumber+`,`+largestNumber+`)}'`, "")
	gap(`1, '{(,)}'`, "set of numbers")
	return all
}

// nonsenseInParked has rows whose columns are as good as can be, but for some.
func nonsenseInParked() (all []nonsense) {
	times := []string{`'infinity'`, `'-infinity'`}
	for columns, rows := range map[string][]string{
		"seq": {leastNumber, largestNumber, "0", "3"}, "arrival": {leastNumber, largestNumber}, "replay": {leastNumber, largestNumber},
		"attempts": {"2147483647"}, "error": {`repeat('x', 100000)`}, "topic": {`''`}, "key": {`repeat('k', 3000)`}, "payload": {"NULL"},
		"headers": {`'[1]'`, `'"x"'`, `'null'`}, "type": {`repeat('x', 5000)`},
		"parked_at": times, "changed_at": times,
		"state, due_at":               {`'scheduled', 'infinity'`, `'blocked', '-infinity'`, `'failed', NULL`},
		"state, due_at, key, closes":  {`'blocked', NULL, 'other', true`, `'failed', NULL, 'other', true`},
		"state, key, closes, payload": {`'discarded', 'other', true, NULL`},
	} {
		for _, values := range rows {
			row := map[string]string{
				"seq": "1000000", "state": "'retrying'", "due_at": "'-infinity'", "id": "gen_random_uuid()", "key": "''", "topic": "'t'",
				"created_at": "now()", "type": "''", "content_type": "''", "payload": "''",
			}
			literals := strings.SplitN(values, ", ", 1+strings.Count(columns, ","))
			for i, name := range strings.Split(columns, ", ") {
				row[name] = literals[i]
			}
			into, from := "route, shard", "'{r}', 0"
			for _, name := range slices.Sorted(maps.Keys(row)) {
				into += ", " + name
				from += ", " + row[name]
			}
			all = append(all, nonsense{sql: `INSERT INTO {s}.parked (` + into + `) VALUES (` + from + `)`})
		}
	}
	return all
}

// Nonsense in the columns in which a relay keeps a route's state, written while
// it is away and while it runs: new messages arrive all the same, or the relay
// says why not, and every other route goes on.
func TestNonsenseInTheStateOfRoutes(t *testing.T) {
	pool := open(t)
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprint("running ", running), func(t *testing.T) {
			of := map[string]nonsense{"sound": {sql: `SELECT`}}
			for i, n := range append(nonsenseInCursors(), nonsenseInParked()...) {
				of[fmt.Sprint("r", i)] = n
			}
			o := newOffice(t, pool, fmt.Sprint("nonsense ", running), 1, slices.Collect(maps.Keys(of))...)
			_, stop := o.open()
			o.enqueue(10, "t")
			for route := range of {
				o.await("before the nonsense", func() bool { return o.lacking(route) == 0 })
			}
			if !running {
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			}
			for route, n := range of {
				o.exec(strings.ReplaceAll(n.sql, "{r}", route))
			}
			if !running {
				_, stop = o.open()
			}
			// Longer than the time after which it looks at what is parked.
			for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				o.enqueue(1, "t")
			}
			for end := time.Now().Add(20 * time.Second); len(of) > 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				maps.DeleteFunc(of, func(route string, n nonsense) bool {
					return o.lacking(route) == 0 || n.says != "" && strings.Contains(o.said(route), n.says)
				})
			}
			for route, n := range of {
				t.Errorf("%s: %d messages have not come; the relay says\n%.700s", n.sql, o.lacking(route), o.said(route))
			}
			_ = stop() // what it could not record it says
		})
	}
}

// said is what the relay has logged of a route.
func (o *office) said(route string) (lines string) {
	for line := range strings.Lines(o.log.String()) {
		if strings.Contains(line, " route="+route+" ") {
			lines += line
		}
	}
	return lines
}

// Nonsense in what is for all routes, likewise.
func TestNonsenseInTheRoster(t *testing.T) {
	pool := open(t)
	for i, sql := range []string{
		`INSERT INTO {s}.route (name, paused_at) VALUES ('', 'infinity'), ('route', NULL), ('nothing', '-infinity') ON CONFLICT DO NOTHING`,
		`INSERT INTO {s}.member (owner, routes, expires) VALUES ('', '{}', 'infinity') ON CONFLICT DO NOTHING`,
		`INSERT INTO {s}.member (owner, routes, expires) VALUES ('ghost', '{NULL,route}', now() + '1 minute') ON CONFLICT DO NOTHING`,
		`INSERT INTO {s}.member (owner, routes, expires) VALUES ('ghost', '{{route,x},{y,z}}', now() + '1 s') ON CONFLICT DO NOTHING`,
		`INSERT INTO {s}.member (owner, routes, joined_at, expires) VALUES ('ghost', '{route}', '-infinity', 'infinity') ON CONFLICT DO NOTHING`,
		`UPDATE {s}.member SET routes = '{}', joined_at = 'infinity', expires = 'infinity'`,
	} {
		t.Run(sql, func(t *testing.T) {
			o := newOffice(t, pool, fmt.Sprint("roster ", i), 4, "route")
			o.lease = 2 * time.Second
			for range 2 {
				_, stop := o.open()
				o.enqueue(100, "t")
				o.await("before and with the nonsense", func() bool { return o.lacking("route") == 0 })
				o.exec(sql)
				o.enqueue(100, "t")
				o.await("with the nonsense", func() bool { return o.lacking("route") == 0 })
				if err := stop(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
