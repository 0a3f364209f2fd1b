package poll_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/store/pgstore"
)

// Every protocol mode of the driver reads the same: some get binary values and
// some get text.
func TestEveryProtocolModeReadsTheSame(t *testing.T) {
	w := newWorld(t)
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	want := []outbox.Message{
		{ID: uuid.New(), Topic: "orders", Key: "k 🐎", Type: "order.created", ContentType: "text/plain",
			Headers: map[string]string{"a": "1", "ü": "\"\\"}, Payload: []byte("\x00\xff'\\x"), Expires: soon},
		{ID: uuid.New(), Topic: "Orders", Payload: []byte{}, ContentType: "application/json"},
		{ID: uuid.New(), Topic: "orders", Payload: []byte("later"), ContentType: "application/json", NotBefore: soon},
	}
	for i := range want {
		m := &want[i]
		if err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
			return pgstore.Pgx{}.Insert(t.Context(), tx, []outbox.Message{*m})
		}); err != nil {
			t.Fatal(err)
		}
	}
	states := []outbox.State{outbox.StatePending, outbox.StatePending, outbox.StateScheduled}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			config := w.pool.Config().Copy()
			config.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			store, err := poll.New(poll.Config{Pool: pool})
			if err != nil {
				t.Fatal(err)
			}
			got := map[uuid.UUID]relay.Delivery{}
			lease, err := store.Acquire(t.Context(), relay.Claim{Route: mode.String(), Owner: "o", TTL: time.Minute, Topics: []string{"**"}})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range w.receiveSome(lease, len(want)) {
				got[d.Message.ID] = d
			}
			if err := lease.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i, m := range want {
				d, ok := got[m.ID]
				if !ok {
					t.Errorf("message %d did not come", i)
					continue
				}
				if d.State != states[i] {
					t.Errorf("message %d is %s, want %s", i, d.State, states[i])
				}
				m.CreatedAt = d.Message.CreatedAt
				if diff := cmp.Diff(m, d.Message); diff != "" {
					t.Errorf("message %d (-want +got):\n%s", i, diff)
				}
				if age := time.Since(d.Message.CreatedAt); age < -time.Minute || age > time.Hour {
					t.Errorf("message %d was created %s ago", i, age)
				}
			}
		})
	}
}

// A page of large messages ends early, whether they are new or were missing,
// and all of them come, in order.
func TestLargeMessagesComeAFewAtATime(t *testing.T) {
	for _, inline := range []int{1000, 1} {
		t.Run(fmt.Sprint("inline ", inline), func(t *testing.T) {
			w := newScriptWorld(t, nil)
			w.inline = inline
			const n, size = 30, 1 << 20
			lease := w.acquire()
			insert := `INSERT INTO postrider.log_0 (id, topic, payload) SELECT gen_random_uuid(), 't', convert_to(repeat('x', $1), 'UTF8') FROM generate_series(1, $2::int)`
			open := w.begin()
			if _, err := open.Exec(t.Context(), insert, size, n); err != nil {
				t.Fatal(err)
			}
			w.exec(insert, 10, 5) // small ones first, so that nothing foretells the size
			w.exec(insert, size, n)
			want := int64(n + 1)
			check := func(last int64) {
				for want <= last {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					got, err := lease.Receive(ctx, 1000)
					cancel()
					if err != nil {
						t.Fatalf("after number %d: %v", want-1, err)
					}
					total := 0
					for _, d := range got {
						if d.Seq != want || len(bytes.Trim(d.Message.Payload, "x")) > 0 {
							t.Fatalf("number %d came, want %d", d.Seq, want)
						}
						total += len(d.Message.Payload)
						want++
					}
					if total > 10<<20 {
						t.Errorf("%d MiB at once", total>>20)
					}
				}
			}
			check(2*n + 5)
			w.commit(open)
			want = 1
			check(n)
		})
	}
}
