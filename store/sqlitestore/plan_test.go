package sqlitestore

import (
	"path/filepath"
	"strings"
	"testing"
)

// The hot queries use an index from end to end: none scans a table or sorts.
func TestPlans(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), Options{Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	q := queriesOf(0)
	for name, c := range map[string]struct {
		query string
		want  string // of the plan
		sorts bool   // a page
	}{
		"new":          {q.readNew, "SEARCH postrider_log_0 USING INTEGER PRIMARY KEY (rowid>?)", false},
		"range":        {q.readRange, "SEARCH postrider_log_0 USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)", false},
		"parked":       {q.readParked, "SEARCH p USING INTEGER PRIMARY KEY (rowid=?)", true},
		"due":          {sqlDueParked, "USING INDEX postrider_parked_due (route=? AND shard=? AND due<?)", false},
		"next due":     {sqlNextDue, "postrider_parked_due (route=? AND shard=? AND due>?)", false},
		"park":         {q.park, "SEARCH postrider_log_0 USING INTEGER PRIMARY KEY (rowid=?)", false},
		"copy":         {q.fillCopy, "USING INDEX postrider_parked_seq (route=? AND shard=? AND seq=?)", false},
		"repark":       {sqlRepark, "USING INDEX postrider_parked_seq (route=? AND shard=? AND seq=?)", false},
		"unpark":       {sqlUnpark, "postrider_parked_seq (route=? AND shard=? AND seq=?)", false},
		"closed":       {sqlKeyClosed, "postrider_parked_closing (route=? AND shard=? AND key=?", false},
		"demote":       {sqlDemote, "postrider_parked_blocked (route=? AND shard=? AND key=?)", false},
		"promote":      {sqlPromote, "postrider_parked_blocked (route=? AND shard=? AND key=?)", false},
		"blocked keys": {sqlBlockedKeys, "USING COVERING INDEX postrider_parked_blocked (route=? AND shard=?", false},
		"closed keys":  {sqlClosedKeys, "USING INDEX postrider_parked_closing (route=? AND shard=?", true},
		"let go":       {sqlLetGo, "postrider_parked_closing (route=? AND shard=?", false},
		"retry":        {sqlRetry, "postrider_parked_seq (route=? AND shard=? AND seq=?)", false},
		"release":      {sqlRelease, "postrider_parked_seq (route=? AND shard=? AND seq=?)", false},
		"discard":      {q.discard, "postrider_parked_seq (route=? AND shard=? AND seq=?)", false},
		"replay":       {q.replay, "SEARCH postrider_log_0 USING INTEGER PRIMARY KEY (rowid=?)", false},
		"heard":        {sqlHeard, "postrider_parked_seq (route=? AND shard=? AND seq=?)", false},
		"settle":       {sqlSettle, "SEARCH postrider_cursor USING PRIMARY KEY (route=? AND shard=?)", false},
		"record":       {`SELECT 1 FROM postrider_inbox WHERE consumer = ? AND id = ?`, "USING PRIMARY KEY (consumer=? AND id=?)", false},
	} {
		t.Run(name, func(t *testing.T) {
			plan := explain(t, s, c.query)
			if !strings.Contains(plan, c.want) {
				t.Errorf("the plan lacks %q:\n%s", c.want, plan)
			}
			for line := range strings.Lines(plan) {
				if strings.HasPrefix(line, "SCAN") && !strings.Contains(line, "VIRTUAL TABLE") && !strings.Contains(line, "CONSTANT ROW") && !strings.Contains(line, "SCAN (subquery") ||
					strings.Contains(line, "TEMP B-TREE") && !c.sorts {
					t.Errorf("the plan scans or sorts:\n%s", plan)
				}
			}
		})
	}
}

func explain(t *testing.T, s *Store, query string) string {
	t.Helper()
	n := 0
	for i := range 10 {
		if strings.Contains(query, "?"+string(rune('0'+i))) {
			n = max(n, i)
		}
	}
	if n == 0 {
		n = strings.Count(query, "?")
	}
	rows, err := s.app.Query("EXPLAIN QUERY PLAN "+query, make([]any, n)...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(detail + "\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan.String()
}
