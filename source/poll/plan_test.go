package poll_test

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgstore"
)

// No statement that a relay runs while it works reads a large table from end to
// end, neither with the values at hand nor with a plan made for any values.
func TestPlansOnLargeTables(t *testing.T) {
	w := newWorld(t)
	rows := testsize.Pick(200_000, 10_000_000)
	w.exec(`INSERT INTO postrider.log_0 (id, topic, key, payload)
		SELECT gen_random_uuid(), 't', 'k' || i % 1000, '' FROM generate_series(1, $1::int) AS i`, rows)
	w.exec(`INSERT INTO postrider.parked (route, shard, seq, state, closes, due_at, key, id, topic, created_at, type, content_type, payload)
		SELECT 'route', 0, i, (ARRAY['blocked', 'failed', 'retrying', 'scheduled'])[1 + i % 4], i % 2 = 0, CASE WHEN i % 4 > 1 THEN now() + interval '1 day' END,
			'k' || i % 1000, gen_random_uuid(), 't', now(), '', '', '' FROM generate_series(1, $1::int) AS i`, rows/4)
	w.exec(`ANALYZE postrider.log_0, postrider.parked`)

	var mu sync.Mutex
	var statements []string
	w.rewrite = func(sql string) string {
		mu.Lock()
		defer mu.Unlock()
		if !slices.Contains(statements, sql) {
			statements = append(statements, sql)
		}
		return sql
	}
	lease := w.acquire()
	got := w.receiveSome(lease, 10)
	settle := func(outcomes ...relay.Outcome) {
		t.Helper()
		w.settle(lease, outcomes...)
	}
	settle(relay.Outcome{Delivery: got[0], State: outbox.StateSent})
	settle(
		relay.Outcome{Delivery: got[1], State: outbox.StateRetrying, Attempts: 1},
		relay.Outcome{Delivery: got[2], State: outbox.StateBlocked},
	)
	parked := w.receiveUntil(lease, func(d relay.Delivery) bool { return d.Parked })
	settle(relay.Outcome{Delivery: parked, State: outbox.StateRetrying, Attempts: 2, RetryAfter: time.Hour})
	if err := lease.(relay.Recaller).Recall(t.Context(), []int64{5, 6, 7}); err != nil {
		t.Fatal(err)
	}
	if _, err := pgstore.DueSoon(t.Context(), rewriting{w.pool, w.rewrite}, "", []pgstore.RouteShard{{Route: "route"}}, time.Second); err != nil {
		t.Fatal(err)
	}
	operator := pgstore.NewAdmin(rewriting{w.pool, w.rewrite}, "")
	for _, action := range []admin.Action{admin.Retry, admin.Release, admin.Discard, admin.Replay} {
		op := admin.Operation{Action: action, Route: "route", Seqs: []int64{5, 6, 7, int64(rows)}}
		if _, err := operator.Change(t.Context(), op, &admin.Entry{Action: string(action)}); err != nil {
			t.Fatal(err)
		}
	}
	w.rewrite = nil

	for _, part := range []string{"state = 'pending' AND EXISTS (SELECT FROM held)", "WITH ORDINALITY AS l (route, shard"} {
		if !slices.ContainsFunc(statements, func(sql string) bool { return strings.Contains(sql, part) }) {
			t.Errorf("no statement with %q was run", part)
		}
	}
	types := map[string]string{}
	for _, sql := range statements {
		if !strings.Contains(sql, "log_0") && !strings.Contains(sql, "parked") || strings.Contains(sql, "_seq") || strings.Contains(sql, "GROUP BY key") {
			continue // small tables, or once for each lease
		}
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			plan := w.explain(sql, mode)
			types[sql] = plan
			for _, large := range []string{"log_0", "parked"} {
				if scans(t, plan, large) {
					t.Errorf("%s reads all of %s in\n%s\n%s", mode, large, sql, plan)
				}
			}
		}
	}
	if len(types) < 10 {
		t.Fatalf("only %d statements were looked at: %q", len(types), statements)
	}
}

// Reading a page costs the same however many messages wait behind it, and
// however many were read before it: the server touches as many blocks.
func TestPagesCostTheSameAtEveryDepth(t *testing.T) {
	w := newWorld(t)
	depths := []int{5_000, 50_000, testsize.Pick(200_000, 500_000)}
	var first int64
	rows := 0
	for _, depth := range depths {
		w.exec(`INSERT INTO postrider.log_0 (id, topic, payload)
			SELECT gen_random_uuid(), 't', convert_to(repeat('x', 200), 'UTF8') FROM generate_series(1, $1::int)`, depth-rows)
		w.exec(`VACUUM ANALYZE postrider.log_0`)
		rows = depth
		for _, from := range []int{0, depth - 2000} {
			blocks := w.blocksOfPage(from)
			if first == 0 {
				first = blocks
			}
			if blocks > first*12/10+8 {
				t.Errorf("a page after %d of %d rows touches %d blocks, the first one %d", from, depth, blocks, first)
			}
		}
	}
}

// blocksOfPage reads the page after a position as a lease does, and returns how
// many blocks the server touched.
func (w *world) blocksOfPage(from int) int64 {
	w.tb.Helper()
	var page string
	w.rewrite = func(sql string) string {
		if strings.Contains(sql, "BETWEEN") {
			page = sql
		}
		return sql
	}
	lease := w.acquire()
	w.receiveSome(lease, 1)
	w.rewrite = nil
	var plan string
	err := w.pool.QueryRow(w.tb.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+page,
		"route", 0, leaseToken(w), int64(from+1), int64(math.MaxInt64), 1000).Scan(&plan)
	if err != nil {
		w.tb.Fatal(err)
	}
	var tops []struct {
		Plan struct {
			Hit  int64   `json:"Shared Hit Blocks"`
			Read int64   `json:"Shared Read Blocks"`
			Rows float64 `json:"Actual Rows"`
		}
	}
	if err := json.Unmarshal([]byte(plan), &tops); err != nil {
		w.tb.Fatal(err)
	}
	if tops[0].Plan.Rows != 1001 { // the snapshot's row and a page
		w.tb.Fatalf("the page has %v rows", tops[0].Plan.Rows)
	}
	return tops[0].Plan.Hit + tops[0].Plan.Read
}

func leaseToken(w *world) (token string) {
	w.tb.Helper()
	if err := w.pool.QueryRow(w.tb.Context(), `SELECT token::text FROM postrider.cursor`).Scan(&token); err != nil {
		w.tb.Fatal(err)
	}
	return token
}

func (w *world) receiveSome(lease relay.Lease, n int) []relay.Delivery {
	w.tb.Helper()
	var all []relay.Delivery
	for len(all) < n {
		ctx, cancel := context.WithTimeout(w.tb.Context(), 20*time.Second)
		got, err := lease.Receive(ctx, n-len(all))
		cancel()
		if err != nil {
			w.tb.Fatal(err)
		}
		all = append(all, got...)
	}
	return all
}

func (w *world) receiveUntil(lease relay.Lease, ok func(relay.Delivery) bool) relay.Delivery {
	w.tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		for _, d := range w.receiveSome(lease, 1) {
			if ok(d) {
				return d
			}
		}
	}
	w.tb.Fatal("no such delivery came")
	return relay.Delivery{}
}

// explain plans the statement with plausible values for its parameters.
func (w *world) explain(sql, mode string) string {
	w.tb.Helper()
	var plan []string
	err := pgx.BeginFunc(w.tb.Context(), w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(w.tb.Context(), `SET LOCAL plan_cache_mode = `+mode); err != nil {
			return err
		}
		if _, err := tx.Exec(w.tb.Context(), `PREPARE planned AS `+sql); err != nil {
			return err
		}
		defer func() { _, _ = tx.Exec(context.WithoutCancel(w.tb.Context()), `DEALLOCATE planned`) }()
		var types []string
		if err := tx.QueryRow(w.tb.Context(), `SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'planned'`).Scan(&types); err != nil {
			return err
		}
		values := make([]string, len(types))
		for i, typ := range types {
			values[i] = map[string]string{
				"text": "'route'", "integer": "0", "bigint": "100000", "uuid": "gen_random_uuid()", "boolean": "true",
				"bigint[]": "'{5,6,7}'", "text[]": "'{k1,k2,k3}'", "integer[]": "'{1,1,1}'",
				"boolean[]": "'{t,t,t}'", "timestamp with time zone": "now()", "uuid[]": "array_fill(gen_random_uuid(), '{3}')",
				"double precision": "1",
			}[typ]
			if i == 2 && typ == "text" { // the token
				values[i] = "gen_random_uuid()::text"
			}
		}
		rows, err := tx.Query(w.tb.Context(), `EXPLAIN (FORMAT JSON) EXECUTE planned (`+strings.Join(values, ", ")+`)`, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return err
		}
		plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		w.tb.Fatalf("explain: %v\n%s", err, sql)
	}
	return strings.Join(plan, "\n")
}

// scans reports whether some node of the plan reads the table in sequence.
func scans(t *testing.T, plan, table string) bool {
	t.Helper()
	type node struct {
		Type     string `json:"Node Type"`
		Relation string `json:"Relation Name"`
		Plans    []node
	}
	var tops []struct{ Plan node }
	if err := json.Unmarshal([]byte(plan), &tops); err != nil {
		t.Fatalf("%v in %s", err, plan)
	}
	var any func(n node) bool
	any = func(n node) bool {
		return n.Relation == table && strings.Contains(n.Type, "Seq Scan") || slices.ContainsFunc(n.Plans, any)
	}
	return slices.ContainsFunc(tops, func(top struct{ Plan node }) bool { return any(top.Plan) })
}
