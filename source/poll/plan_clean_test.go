package poll_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgstore"
)

// No statement that deletes old messages reads a large table from end to end.
func TestPlansOfCleaning(t *testing.T) {
	w := newWorld(t)
	w.look(w.acquire())
	rows := testsize.Pick(200_000, 10_000_000)
	w.exec(`INSERT INTO postrider.log_0 (id, topic, key, payload)
		SELECT gen_random_uuid(), 't', 'k' || i % 1000, '' FROM generate_series(1, $1::int) AS i`, rows)
	w.exec(`INSERT INTO postrider.parked (route, shard, seq, state, closes, due_at, key, id, topic, created_at, type, content_type, payload)
		SELECT 'route', 0, i, (ARRAY['blocked', 'failed', 'retrying', 'expired'])[1 + i % 4], i % 4 = 0, CASE WHEN i % 4 = 2 THEN now() + interval '1 day' END,
			'k' || i % 1000, gen_random_uuid(), 't', now(), '', '', '' FROM generate_series(1, $1::int) AS i`, rows/4)
	w.exec(`INSERT INTO postrider.inbox (consumer, id) SELECT 'c' || i % 2, gen_random_uuid() FROM generate_series(1, $1::int) AS i`, rows/4)
	w.exec(`UPDATE postrider.cursor SET pos = $1, seen = pg_snapshot_xmax(pg_current_snapshot())`, rows)
	w.exec(`ANALYZE postrider.log_0, postrider.parked, postrider.inbox`)

	var mu sync.Mutex
	var statements []string
	db := rewriting{w.pool, func(sql string) string {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(sql, "log_0") && !strings.Contains(sql, "_seq") || strings.Contains(sql, "inbox") {
			statements = append(statements, sql)
		}
		return sql
	}}
	cleaner := pgstore.NewCleaner(db, "", 1)
	for range 3 {
		if _, err := cleaner.Clean(t.Context(), relay.Retention{Sent: 1, Failed: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := (pgstore.Inbox{DB: db}).Forget(t.Context(), "c1", 0); err != nil {
		t.Fatal(err)
	}
	slices.Sort(statements)
	statements = slices.Compact(statements)
	if len(statements) != 3 {
		t.Fatalf("%d statements were looked at: %q", len(statements), statements)
	}
	for _, sql := range statements {
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			plan := w.explain(sql, mode)
			for _, large := range []string{"log_0", "parked", "inbox"} {
				if scans(t, plan, large) {
					t.Errorf("%s reads all of %s in\n%s\n%s", mode, large, sql, plan)
				}
			}
		}
	}
}
