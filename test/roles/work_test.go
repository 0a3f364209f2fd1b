package roles

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/store/pgstore"
)

// Each role suffices for its work, one after the other on the same messages, in a
// schema with a name of its own.
func TestEachRoleSuffices(t *testing.T) {
	r := newRig(t, pgstore.Options{Schema: `Out "Box"`, Shards: 3})
	write(t, r)
	publish(t, r)
	view(t, r.login("viewer"), r.opts.Schema)
	operate(t, r.login("operator"), r.opts.Schema)
	consume(t, r)
}

// written is how many messages write enqueues for the route, of which two under the
// key "bad".
const written = 6

// write enqueues in every way that there is.
func write(t *testing.T, r *rig) {
	t.Helper()
	ctx, pool := t.Context(), r.login("writer")
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		w := outbox.NewWriter(pgstore.Pgx{Schema: r.opts.Schema})
		if err := w.LockKeys(ctx, tx, "a", "bad"); err != nil {
			return err
		}
		return w.Enqueue(ctx, tx, outbox.Message{Topic: "t", Key: "a"}, outbox.Message{Topic: "t", Key: "bad"}, outbox.Message{Topic: "t", Key: "bad"})
	})
	if err != nil {
		t.Errorf("the Writer on pgx: %v", err)
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err == nil {
		w := outbox.NewWriter(pgstore.SQL{Schema: r.opts.Schema})
		err = errors.Join(w.LockKeys(ctx, tx, "b"), w.Enqueue(ctx, tx, outbox.Message{Topic: "t", Key: "b"}), tx.Commit())
	}
	if err != nil {
		t.Errorf("the Writer on database/sql: %v", err)
	}
	if _, err := pool.Exec(ctx, `SELECT `+r.opts.Schema.Table("enqueue")+`(topic => 't', payload => 'p', key => 'c')`); err != nil {
		t.Errorf("the function: %v", err)
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	rows := strings.NewReader(uuid.NewString() + "\tt\tpayload\n")
	if _, err := conn.Conn().PgConn().CopyFrom(ctx, rows, `COPY `+r.opts.Schema.Log(0)+` (id, topic, payload) FROM STDIN`); err != nil {
		t.Errorf("COPY: %v", err)
	}
}

// picky refuses the messages of one key.
type picky struct {
	mu   sync.Mutex
	sent int
}

func (p *picky) Publish(_ context.Context, msgs []outbox.Message) []outbox.Result {
	results := make([]outbox.Result, len(msgs))
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range msgs {
		if msgs[i].Key == "bad" {
			results[i].Err = outbox.Permanent(errors.New("not this one"))
		} else {
			p.sent++
		}
	}
	return results
}

// publish runs a relay that takes over from one that died, parks, and deletes.
func publish(t *testing.T, r *rig) {
	t.Helper()
	ctx, pool := t.Context(), r.login("relay")
	store, err := poll.New(poll.Config{Pool: pool, Schema: r.opts.Schema})
	if err != nil {
		t.Fatal(err)
	}
	for shard := range r.opts.Shards { // its leases run out
		claim := relay.Claim{Route: "r", Shard: shard, Owner: "dies", TTL: 2 * time.Second, Topics: []string{"**"}, Hold: true}
		if _, err := store.Acquire(ctx, claim); err != nil {
			t.Fatalf("a relay: %v", err)
		}
	}
	var logs strings.Builder
	var sink picky
	rl, err := relay.New(relay.Config{
		Store: store, Lease: 5 * time.Second, Retention: relay.Retention{Sent: time.Nanosecond, Failed: relay.Keep},
		Routes: []relay.Route{{Name: "r", Topics: []string{"**"}, Publisher: &sink, OnFailure: relay.Hold}},
		Logger: slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- rl.Run(running) }()
	count := func(sql string) (n int) {
		t.Helper()
		if err := r.admin.QueryRow(ctx, strings.ReplaceAll(sql, "{s}", pgx.Identifier{r.opts.Schema.Name()}.Sanitize())).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	await(t, "what can be sent is sent and deleted, the others are parked", func() bool {
		return count(`SELECT count(*) FROM {s}.parked`) == 2 && count(`SELECT count(*) FROM {s}.retention WHERE done > 0`) > 0 &&
			count(`SELECT (SELECT count(*) FROM {s}.log_0) + (SELECT count(*) FROM {s}.log_1) + (SELECT count(*) FROM {s}.log_2)`) < written-2
	})
	if _, err := pgstore.NewAdmin(pool, r.opts.Schema).Status(ctx, admin.StatusOptions{}); err != nil {
		t.Errorf("a relay's figures: %v", err)
	}
	if _, err := pgstore.Members(ctx, pool, r.opts.Schema); err != nil {
		t.Errorf("a relay: %v", err)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("a relay: %v", err)
	}
	if strings.Contains(logs.String(), "permission denied") {
		t.Errorf("a relay says:\n%s", logs.String())
	}
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("%s: not within a minute", what)
			return
		}
	}
}

// view does all that looks.
func view(t *testing.T, pool *pgxpool.Pool, schema pgstore.Schema) {
	t.Helper()
	ctx, a := t.Context(), admin.New(pgstore.NewAdmin(pool, schema))
	if s, err := a.Status(ctx, admin.StatusOptions{}); err != nil || len(s.Routes) != 1 {
		t.Errorf("status: %v, %+v", err, s)
	}
	page, err := a.List(ctx, admin.Query{Filter: admin.Filter{Route: "r"}})
	if err != nil || len(page.Messages) < 2 {
		t.Fatalf("list: %v, %+v", err, page)
	}
	id := page.Messages[0].ID
	if found, err := a.Show(ctx, id); err != nil || len(found) != 1 {
		t.Errorf("show: %v, %+v", err, found)
	}
	if _, err := a.Show(ctx, uuid.New()); !errors.Is(err, admin.ErrNotFound) {
		t.Errorf("show of one that is not there: %v", err)
	}
	if _, err := a.Audit(ctx, 0, 10); err != nil {
		t.Errorf("audit: %v", err)
	}
	if _, err := pgstore.CheckSchema(ctx, pool, schema); err != nil {
		t.Errorf("migrate status: %v", err)
	}
	for _, sql := range []string{`SELECT count(*) FROM ` + schema.Table("messages"), `SELECT ` + schema.Table("shard_of") + `('a')`} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// operate does every action, and looks.
func operate(t *testing.T, pool *pgxpool.Pool, schema pgstore.Schema) {
	t.Helper()
	view(t, pool, schema)
	ctx, store := t.Context(), pgstore.NewAdmin(pool, schema)
	a := admin.New(store)
	act := func(action admin.Action, state outbox.State, want int64) {
		t.Helper()
		f := admin.Filter{Route: "r", States: []outbox.State{state}}
		if r, err := a.Act(ctx, admin.Request{Action: action, Filter: f, By: "anna"}); err != nil || r.Changed != want {
			t.Errorf("%s of what is %s: %v, %+v", action, state, err, r)
		}
	}
	act(admin.Release, outbox.StateFailed, 1) // its follower becomes due
	act(admin.Discard, outbox.StateFailed, 1)
	act(admin.Discard, outbox.StateBlocked, 1)
	act(admin.Retry, outbox.StateDiscarded, 2)
	for _, action := range []admin.Action{admin.Release, admin.Replay} { // nothing to do is enough to need the rights
		if _, err := store.Change(ctx, admin.Operation{Action: action, Route: "r", Shard: 0, Seqs: []int64{1}}, &admin.Entry{}); err != nil {
			t.Errorf("%s: %v", action, err)
		}
	}
	if _, err := a.Pause(ctx, "r", "anna", "moving"); err != nil {
		t.Errorf("pause: %v", err)
	}
	if _, err := a.Resume(ctx, "r", "anna", ""); err != nil {
		t.Errorf("resume: %v", err)
	}
	if removed, err := a.RemoveRoute(ctx, "r", false, "anna", ""); err != nil || removed.Parked != 2 {
		t.Errorf("route remove: %v, %+v", err, removed)
	}
	entries, err := a.Audit(ctx, 0, 20)
	var actions []string
	for _, e := range entries {
		actions = append(actions, fmt.Sprint(e.Action))
	}
	if err != nil || len(entries) < 7 || !slices.Contains(actions, fmt.Sprint(admin.Retry)) {
		t.Errorf("audit: %v, %v", err, actions)
	}
}

// consume records a message, and again, and forgets it.
func consume(t *testing.T, r *rig) {
	t.Helper()
	ctx, inbox, id := t.Context(), pgstore.Inbox{DB: r.login("consumer"), Schema: r.opts.Schema}, uuid.New()
	for _, want := range []bool{true, false} {
		err := inbox.InTx(ctx, func(tx pgx.Tx) error {
			if fresh, err := inbox.Record(ctx, tx, "shop", id); err != nil || fresh != want {
				return fmt.Errorf("fresh %t, %w", fresh, err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("a consumer: %v", err)
		}
	}
	if n, err := inbox.Forget(ctx, "shop", 0); err != nil || n != 1 {
		t.Errorf("a consumer forgets %d messages: %v", n, err)
	}
}

// Made again the roles are the same; what somebody has granted beside is taken
// away; and who owns the schema and may create roles is enough to do it.
func TestTheScriptAgain(t *testing.T) {
	r := newRig(t, pgstore.Options{Shards: 1})
	shape := func() (text string) {
		t.Helper()
		err := r.admin.QueryRow(t.Context(), `SELECT string_agg(format('%s %s', relname, relacl), E'\n' ORDER BY relname)
			|| (SELECT string_agg(format('%s %s', proname, proacl), E'\n' ORDER BY proname) FROM pg_proc WHERE pronamespace = 'postrider'::regnamespace)
			|| (SELECT string_agg(format('%s.%s %s', attrelid::regclass, attname, attacl), E'\n' ORDER BY attrelid::regclass::text, attnum) FROM pg_attribute WHERE attacl IS NOT NULL AND attrelid IN
				(SELECT oid FROM pg_class WHERE relnamespace = 'postrider'::regnamespace))
			FROM pg_class WHERE relnamespace = 'postrider'::regnamespace`).Scan(&text)
		if err != nil {
			t.Fatal(err)
		}
		return r.plain(text)
	}
	before := shape()
	r.script(r.admin)
	if again := shape(); again != before {
		t.Errorf("the second time it is\n%s\nand was\n%s", again, before)
	}
	writer := pgx.Identifier{r.roles.Writer}.Sanitize()
	r.exec(r.admin, `GRANT ALL ON ALL TABLES IN SCHEMA postrider TO PUBLIC, `+writer)
	r.exec(r.admin, `GRANT UPDATE (payload) ON postrider.log_0 TO `+writer)
	login := r.login("owner")
	r.exec(r.admin, `ALTER ROLE `+pgx.Identifier{login.Config().ConnConfig.User}.Sanitize()+` CREATEROLE`)
	r.script(login)
	if again := shape(); again != before {
		t.Errorf("after grants by hand it is\n%s\nand was\n%s", again, before)
	}
	r.opts.Shards = 2
	script, err := pgstore.RolesScript(r.opts, r.roles)
	if err != nil {
		t.Fatal(err)
	}
	_, err = login.Exec(t.Context(), script, pgx.QueryExecModeSimpleProtocol)
	if err == nil || !strings.Contains(err.Error(), "not 2 shards") {
		t.Errorf("for another number of shards: %v", err)
	}
}

// Names that cannot be are refused, and so is a schema that others share.
func TestRolesThatCannotBe(t *testing.T) {
	for name, call := range map[string]struct {
		opts  pgstore.Options
		roles pgstore.Roles
	}{
		"one for two":          {roles: pgstore.Roles{Writer: "x", Relay: "x"}},
		"a default for two":    {roles: pgstore.Roles{Writer: "postrider_relay"}},
		"the server's":         {roles: pgstore.Roles{Viewer: "pg_read_all_data"}},
		"everybody":            {roles: pgstore.Roles{Writer: "public"}},
		"the end of a quote":   {roles: pgstore.Roles{Writer: "$roles$"}},
		"the end of a comment": {roles: pgstore.Roles{Writer: "x\nDROP"}},
		"the schema of all":    {opts: pgstore.Options{Schema: "public"}},
		"shards":               {opts: pgstore.Options{Shards: 65}},
	} {
		if _, err := pgstore.RolesScript(call.opts, call.roles); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
}
