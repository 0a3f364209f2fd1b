package pgstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgstore"
)

// statements collects what is sent, with its arguments.
type statements struct {
	mu  sync.Mutex
	all []statement
}

type statement struct {
	sql  string
	args []any
}

func (s *statements) add(sql string, args []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.all, func(x statement) bool {
		return x.sql == sql && len(x.args) == len(args) && fmt.Sprint(x.args) == fmt.Sprint(args)
	}) {
		s.all = append(s.all, statement{sql, slices.Clone(args)})
	}
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s.add(d.SQL, d.Args)
	return ctx
}
func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (s *statements) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	s.add(d.SQL, d.Args)
}
func (s *statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// large makes a log, and parked messages of every state on a route, of which one
// shard has many more than the other.
func large(t *testing.T, pool *pgxpool.Pool, rows int) {
	t.Helper()
	if _, err := pgstore.Migrate(t.Context(), pool, pgstore.Options{Shards: 2}); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`INSERT INTO postrider.log_0 (id, topic, key, type, payload, created_at)
			SELECT gen_random_uuid(), 't' || i % 10, 'k' || i % 1000, '', convert_to(repeat('x', 100), 'UTF8'), now() - interval '10 days' + i * interval '10 days' / $1::int
			FROM generate_series(1, $1::int) AS i`,
		`INSERT INTO postrider.log_1 (id, topic, payload) SELECT gen_random_uuid(), 't', '' FROM generate_series(1, $1::int / 100)`,
		`INSERT INTO postrider.cursor (route, shard, pos, unsettled, token, owner, lease_until, topics, topics_from, started)
			SELECT r, s, $1::int / 2, '{[10,20),[1000,1010)}', gen_random_uuid(), '', '-infinity', ARRAY['t', 't1*'], 0, 0
			FROM unnest(ARRAY['orders', 'other']) AS r, generate_series(0, 1) AS s`,
		`INSERT INTO postrider.parked (route, shard, seq, state, due_at, closes, key, id, topic, created_at, type, content_type, payload)
			SELECT 'orders', 0, l.seq, s.state, CASE WHEN s.state IN ('retrying', 'scheduled') THEN now() + interval '1 day' END, s.state IN ('retrying', 'blocked'),
				l.key, l.id, l.topic, l.created_at, '', '', CASE WHEN s.state <> 'blocked' THEN l.payload END
			FROM postrider.log_0 AS l CROSS JOIN LATERAL (SELECT CASE WHEN l.seq % 1000 = 0 THEN 'failed' WHEN l.seq % 3 = 0 THEN 'retrying' ELSE 'blocked' END AS state) AS s
			WHERE l.seq <= $1::int / 4`,
	} {
		args := []any{}
		if strings.Contains(sql, "$1") {
			args = append(args, rows)
		}
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), `ANALYZE postrider.log_0, postrider.log_1, postrider.parked, postrider.cursor`); err != nil {
		t.Fatal(err)
	}
}

// Whatever an operator asks reads a bounded part of a large store, from an index.
func TestOperatorsStatementsAreBounded(t *testing.T) {
	pool := open(t)
	rows := testsize.Pick(100_000, 5_000_000)
	large(t, pool, rows)
	seen := &statements{}
	config := pool.Config().Copy()
	config.ConnConfig.Tracer = seen
	traced, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer traced.Close()
	store := pgstore.NewAdmin(traced, "")
	a := admin.New(store)

	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	status, err := a.Status(t.Context(), admin.StatusOptions{CountUpTo: 1000})
	ok(err)
	if r := status.Routes[0]; r.Parked[0].Count != 1000 || !r.Parked[0].AtLeast {
		t.Errorf("status: %+v", r)
	}
	var one admin.Item
	for _, f := range []admin.Filter{
		{}, {States: []outbox.State{outbox.StateFailed}}, {States: []outbox.State{outbox.StateBlocked, outbox.StateRetrying}, Topic: "t17"},
		{States: []outbox.State{outbox.StatePending}, Key: new("none")}, {States: []outbox.State{outbox.StateSent}, Type: "none"},
		{Since: status.At.Add(-time.Hour)}, {States: []outbox.State{outbox.StateDiscarded}},
	} {
		for shard := range 2 {
			for _, after := range []int64{0, int64(rows / 8)} {
				w, err := store.Scan(t.Context(), admin.Scan{Route: "orders", Shard: shard, After: after, Filter: f, Look: 1000, Limit: 100})
				ok(err)
				if len(w.Items) > 0 {
					one = w.Items[0]
				}
			}
		}
	}
	_, err = store.Scan(t.Context(), admin.Scan{Route: "orders", After: 4, UpTo: 5, Look: 1, Limit: 1})
	ok(err)
	_, err = store.Find(t.Context(), one.ID)
	ok(err)
	_, err = store.Find(t.Context(), uuid.Must(uuid.NewV7()))
	ok(err)
	_, _, err = store.Message(t.Context(), one.Place)
	ok(err)
	_, _, _ = store.Message(t.Context(), admin.Place{Shard: 0, Seq: 1 << 40}) // not there

	checked := 0
	for _, s := range seen.all {
		if !strings.Contains(s.sql, "log_0") && !strings.Contains(s.sql, "parked") {
			continue
		}
		checked++
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			plan, blocks := analyze(t, pool, s, mode)
			for _, table := range []string{"log_0", "parked"} {
				if scansAll(t, plan, table) {
					t.Errorf("%s reads all of %s:\n%s\n%v\n%s", mode, table, s.sql, s.args, plan)
				}
			}
			if blocks > 30_000 { // of findPage rows; the table has more at full size
				t.Errorf("%s touches %d blocks:\n%s\n%v\n%s", mode, blocks, s.sql, s.args, plan)
			}
		}
	}
	if checked < 12 {
		t.Errorf("only %d statements were looked at", checked)
	}
}

// analyze runs the statement and returns its plan, and how many blocks it touched.
func analyze(t *testing.T, pool *pgxpool.Pool, s statement, mode string) (plan string, blocks int64) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for _, set := range []string{`SET LOCAL jit = off`, `SET LOCAL plan_cache_mode = ` + mode} {
			if _, err := tx.Exec(t.Context(), set); err != nil {
				return err
			}
		}
		return tx.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+s.sql, append([]any{pgx.QueryExecModeCacheDescribe}, s.args...)...).Scan(&plan)
	})
	if err != nil {
		t.Fatalf("explain: %v\n%s\n%v", err, s.sql, s.args)
	}
	var tops []struct {
		Plan struct {
			Hit  int64 `json:"Shared Hit Blocks"`
			Read int64 `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal([]byte(plan), &tops); err != nil {
		t.Fatal(err)
	}
	return plan, tops[0].Plan.Hit + tops[0].Plan.Read
}

// scansAll reports whether a node of the plan that was run reads the table in
// sequence.
func scansAll(t *testing.T, plan, table string) bool {
	t.Helper()
	type node struct {
		Type     string  `json:"Node Type"`
		Relation string  `json:"Relation Name"`
		Loops    float64 `json:"Actual Loops"`
		Plans    []node
	}
	var tops []struct{ Plan node }
	if err := json.Unmarshal([]byte(plan), &tops); err != nil {
		t.Fatal(err)
	}
	var any func(n node) bool
	any = func(n node) bool {
		return n.Relation == table && strings.Contains(n.Type, "Seq Scan") && n.Loops > 0 || slices.ContainsFunc(n.Plans, any)
	}
	return slices.ContainsFunc(tops, func(top struct{ Plan node }) bool { return any(top.Plan) })
}

// The view says of every message what the commands say.
func TestTheViewAgreesWithTheLists(t *testing.T) {
	pool := open(t)
	large(t, pool, 5000)
	for _, sql := range []string{
		`DELETE FROM postrider.log_0 WHERE seq IN (2000, 9)`, // 9: parked, and no longer in the log
		`UPDATE postrider.cursor SET topics_from = 5, started = 2, pos = 900 WHERE route = 'other'`,
		`INSERT INTO postrider.gap (route, shard, id, numbers) VALUES ('other', 0, 1, '{[700,710)}')`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := pool.Query(t.Context(), `SELECT route || ' ' || shard || '/' || seq || ' ' || state || ' ' || id || ' ' || topic || ' ' || attempts
		FROM postrider.messages ORDER BY route, shard, seq`)
	if err != nil {
		t.Fatal(err)
	}
	viewed, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	states := map[outbox.State]int{}
	q := admin.Query{Limit: 977}
	for {
		page, err := admin.New(pgstore.NewAdmin(pool, "")).List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Messages {
			states[m.State]++
			listed = append(listed, fmt.Sprintf("%s %s %s %s %s %d", m.Route, m.Place, m.State, m.ID, m.Topic, m.Attempts))
		}
		if q.After = page.Next; q.After == nil {
			break
		}
	}
	for i := range max(len(viewed), len(listed)) {
		if i >= len(viewed) || i >= len(listed) || viewed[i] != listed[i] {
			t.Fatalf("the view has %d messages, the list %d; number %d: %q, %q", len(viewed), len(listed), i, viewed[min(i, len(viewed)-1)], listed[min(i, len(listed)-1)])
		}
	}
	for _, s := range []outbox.State{outbox.StateSent, outbox.StatePending, outbox.StateFailed, outbox.StateRetrying, outbox.StateBlocked, admin.Unknown} {
		if states[s] == 0 {
			t.Errorf("no message is %s: %v", s, states)
		}
	}
}

// takes_topic and the routes' own matching are the same.
func TestTopicPatternsInSQL(t *testing.T) {
	pool := open(t)
	if _, err := pgstore.Migrate(t.Context(), pool, pgstore.Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	patterns := []string{"a", "a.b", "*", "a.*", "*.b", "a.**", "**.b", "a*", "a**b", "a***", "[a]", `a\b`, "a.b|c", "(a)", "^a$", "a+", "a?", "{a}", "é*", "*\n", "a b"}
	topics := []string{"a", "b", "a.b", "a.b.c", "ab", "aXb", "a.b|c", "[a]", `a\b`, "(a)", "^a$", "a+", "a?", "{a}", "éé", "é.x", "x\n", "x.\n", "A", "a b", "a\n.b", "***", "*"}
	for _, p := range patterns {
		match, err := relay.Matcher([]string{p})
		if err != nil {
			t.Fatal(err)
		}
		for _, topic := range topics {
			var got bool
			if err := pool.QueryRow(t.Context(), `SELECT postrider.takes_topic(ARRAY[$1::text], $2)`, p, topic).Scan(&got); err != nil {
				t.Fatalf("%q: %v", p, err)
			}
			if want := match(topic); got != want {
				t.Errorf("pattern %q takes topic %q: %v, want %v", p, topic, got, want)
			}
		}
	}
}
