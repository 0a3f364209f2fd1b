package poll_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
)

// A route that starts now beside one that has read a large log does not look
// through that again; and what is numbered by now and commits later comes to
// both, whether the other knows of it or has not come so far.
func TestStartNowBesideARouteThatHasRead(t *testing.T) {
	w := newWorld(t)
	early := w.begin() // holds a number that the other route passes
	w.enqueue(early, "", "early")
	rows := testsize.Pick(100_000, 2_000_000)
	w.exec(`INSERT INTO postrider.log_0 (id, topic, payload) SELECT gen_random_uuid(), 't', '' FROM generate_series(1, $1::int)`, rows)
	other := w.acquire()
	if _, err := w.receive(other, rows, time.Minute); err != nil {
		t.Fatal(err)
	}
	w.enqueue(w.pool, "", "in hand")
	w.receiveSome(other, 1)
	w.settle(other)
	late := w.begin()
	w.enqueue(late, "", "late")
	w.enqueue(w.pool, "", "unread")

	var missing string
	w.rewrite = func(sql string) string {
		if strings.Contains(sql, "WITH other AS") {
			missing = sql
		}
		return sql
	}
	store, err := poll.New(poll.Config{Pool: rewriting{w.pool, w.rewrite}})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := store.Acquire(t.Context(), relay.Claim{Route: "now", Owner: "now", TTL: time.Minute, Topics: []string{"**"}, Start: relay.StartNow})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Close(t.Context())
	w.enqueue(w.pool, "", "new")
	w.commit(early)
	w.commit(late)
	var got []string
	for _, d := range w.receiveSome(lease, 3) {
		got = append(got, string(d.Message.Payload))
	}
	slices.Sort(got)
	if want := []string{"early", "late", "new"}; !slices.Equal(got, want) {
		t.Errorf("%v came, want %v", got, want)
	}
	if more, err := w.receive(lease, 1, 200*time.Millisecond); len(more) > 0 {
		t.Errorf("%s came too (%v)", more[0].Message.Payload, err)
	}

	var plan string
	if err := w.pool.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+missing, int64(rows), 0, "now").Scan(&plan); err != nil {
		t.Fatal(err)
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
	if blocks := tops[0].Plan.Hit + tops[0].Plan.Read; blocks > 100 {
		t.Errorf("the server touched %d blocks of a log of %d rows:\n%s", blocks, rows, plan)
	}
}
