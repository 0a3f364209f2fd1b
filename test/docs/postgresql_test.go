package docs

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/store/pgstore"
)

// The rights that the document grants suffice, and an application can do no
// more than enqueue.
func TestDocumentedRightsSuffice(t *testing.T) {
	owner := connect(t, pgtest.Database(t))
	if _, err := pgstore.Migrate(t.Context(), owner, pgstore.Options{}); err != nil {
		t.Fatal(err)
	}
	var database string
	if err := owner.QueryRow(t.Context(), `SELECT current_database()`).Scan(&database); err != nil {
		t.Fatal(err)
	}
	// Roles are the whole server's: the test's own have the database's name.
	app, relayRole, operator := database+"_app", database+"_relay", database+"_operator"
	for _, role := range []string{app, relayRole, operator} {
		exec(t, owner, `CREATE ROLE `+role)
		t.Cleanup(func() {
			exec(t, owner, `DROP OWNED BY `+role)
			exec(t, owner, `DROP ROLE `+role)
		})
	}
	for _, sql := range blocksOf(t, "../../docs/postgresql.md", "sql") {
		sql = strings.NewReplacer("TO app;", "TO "+app+";", "TO relay;", "TO "+relayRole+";", "TO operator;", "TO "+operator+";").Replace(sql)
		exec(t, owner, sql)
	}

	as := func(role string) *pgxpool.Pool {
		config := owner.Config().Copy()
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `SET ROLE `+role)
			return err
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}
	shop := as(app)
	err := pgx.BeginFunc(t.Context(), shop, func(tx pgx.Tx) error {
		w := outbox.NewWriter(pgstore.Pgx{})
		if err := w.LockKeys(t.Context(), tx, "a"); err != nil {
			return err
		}
		return w.Enqueue(t.Context(), tx, outbox.Message{Topic: "t", Key: "a"}, outbox.Message{Topic: "t", Key: "b"})
	})
	if err != nil {
		t.Errorf("an application: %v", err)
	}
	for _, sql := range []string{
		`SELECT 1 FROM postrider.log_0`, `DELETE FROM postrider.log_0`, `UPDATE postrider.cursor SET pos = 0`, `SELECT 1 FROM postrider.parked`,
		`INSERT INTO postrider.log_0 (seq, id, topic, payload) VALUES (1, gen_random_uuid(), 't', '')`,
	} {
		if _, err := shop.Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("an application may %s: %v", sql, err)
		}
	}

	store, err := poll.New(poll.Config{Pool: as(relayRole)})
	if err != nil {
		t.Fatal(err)
	}
	received := 0
	for shard := range 4 {
		lease, err := store.Acquire(t.Context(), relay.Claim{Route: "r", Shard: shard, Owner: "o", TTL: time.Minute, Topics: []string{"**"}})
		if err != nil {
			t.Fatalf("a relay: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		got, err := lease.Receive(ctx, 10)
		cancel()
		if err != nil && ctx.Err() == nil {
			t.Errorf("a relay: %v", err)
		}
		for _, d := range got {
			received++
			for _, o := range []relay.Outcome{
				{Delivery: d, State: outbox.StateRetrying, RetryAfter: time.Hour}, {Delivery: d, State: outbox.StateSent},
			} {
				if err := lease.Settle(t.Context(), []relay.Outcome{o}); err != nil {
					t.Errorf("a relay: %v", err)
				}
			}
		}
		if err := lease.Close(t.Context()); err != nil {
			t.Errorf("a relay: %v", err)
		}
	}
	if received != 2 {
		t.Errorf("%d messages received, want 2", received)
	}
	operate(t, as(operator))
}

// operate does all that an operator may.
func operate(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	a := admin.New(pgstore.NewAdmin(pool, ""))
	if s, err := a.Status(t.Context(), admin.StatusOptions{}); err != nil || len(s.Routes) != 1 {
		t.Errorf("an operator's status: %v, %+v", err, s)
	}
	route := admin.Filter{Route: "r"}
	if page, err := a.List(t.Context(), admin.Query{Filter: route}); err != nil || len(page.Messages) != 2 {
		t.Errorf("an operator's list: %v, %+v", err, page)
	}
	for _, step := range []struct {
		action admin.Action
		state  outbox.State
	}{{admin.Discard, outbox.StateRetrying}, {admin.Retry, outbox.StateDiscarded}} {
		f := admin.Filter{Route: "r", States: []outbox.State{step.state}}
		if r, err := a.Act(t.Context(), admin.Request{Action: step.action, Filter: f, By: "anna"}); err != nil || r.Changed != 2 {
			t.Errorf("an operator's %s: %v, %+v", step.action, err, r)
		}
	}
	for _, action := range []admin.Action{admin.Release, admin.Replay} { // nothing to do is enough to need the rights
		if _, err := pgstore.NewAdmin(pool, "").Change(t.Context(), admin.Operation{Action: action, Route: "r", Shard: 0, Seqs: []int64{1}}, &admin.Entry{}); err != nil {
			t.Errorf("an operator's %s: %v", action, err)
		}
	}
	if _, err := a.Pause(t.Context(), "r", "anna", ""); err != nil {
		t.Errorf("an operator: %v", err)
	}
	if _, err := a.Resume(t.Context(), "r", "anna", ""); err != nil {
		t.Errorf("an operator: %v", err)
	}
	if removed, err := a.RemoveRoute(t.Context(), "r", false, "anna", ""); err != nil || removed.Parked != 2 {
		t.Errorf("an operator: %v, %+v", err, removed)
	}
	if entries, err := a.Audit(t.Context(), 0, 10); err != nil || len(entries) != 5 {
		t.Errorf("an operator's audit: %v, %+v", err, entries)
	}
}
