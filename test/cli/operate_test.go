package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/outbox"
)

// A message fails; an operator finds it, sees why, mends it, and sends it again.
// What waits behind it goes on.
func TestAFailedMessageIsFoundAndRetried(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		s := newShop(t, db)
		p, monitor := s.relayByTopic("hold")
		lost := s.queue + "-absent"
		id := uuid.Must(uuid.NewV7())
		s.put(outbox.Message{ID: id, Topic: lost, Key: hostile, Type: "bell\a", Payload: []byte("{\"n\":1,\"text\":\"\x1b\"}"), Headers: map[string]string{"h\x1b": "v"}},
			outbox.Message{Topic: s.queue, Key: hostile, Payload: []byte("follower")})
		failed := s.awaitListed(1, "--state", "failed").Messages[0]
		s.awaitListed(1, "--state", "blocked")
		if failed.ID != id.String() || failed.Key != hostile || failed.Attempts != 1 || !strings.Contains(failed.Error, lost) {
			t.Errorf("failed: %+v", failed)
		}

		status := s.run("status")
		for _, want := range []string{"WRONG: route shop: 1 message failed", "postrider list --route shop --state failed", "postrider retry --route shop"} {
			if !strings.Contains(status, want) {
				t.Errorf("status lacks %q:\n%s", want, status)
			}
		}
		s.fails(1, []string{"status", "--check"}, "1 message failed")
		var parsed struct {
			Database string
			Problems []struct {
				Kind string
				Next []string
			}
			Routes []struct{ Name string }
		}
		if err := json.Unmarshal([]byte(s.run("status", "--json")), &parsed); err != nil || parsed.Problems[0].Kind != "failed" || parsed.Routes[0].Name != "shop" {
			t.Errorf("status --json: %v %+v", err, parsed)
		}
		await(t, monitor+"/metrics", 200, `postrider_parked_messages{route="shop",state="failed"} 1`)

		place := fmt.Sprintf("%d/%d", failed.Shard, failed.Seq)
		for _, name := range []string{id.String(), place} {
			show := s.run("show", name)
			for _, want := range []string{id.String(), place, lost, `k\x1b[2J\u202e\r\n`, `bell\a`, "failed (holds its key)", `{"n":1,"text":"\x1b"}`, `h\x1b: v`} {
				if !strings.Contains(show, want) {
					t.Errorf("show lacks %q:\n%s", want, show)
				}
			}
			printable(t, show+status+s.run("list"))
		}
		printable(t, s.run("list", "--json")+s.run("retry", place, "--dry-run", "--json"))
		if raw := s.run("show", "--payload", place); raw != "{\"n\":1,\"text\":\"\x1b\"}" {
			t.Errorf("payload %q", raw)
		}
		var shown struct {
			Payload []byte
			Routes  []struct{ Route, State string }
		}
		if err := json.Unmarshal([]byte(s.run("show", "--json", place)), &shown); err != nil || string(shown.Payload) != "{\"n\":1,\"text\":\"\x1b\"}" || shown.Routes[0].State != "failed" {
			t.Errorf("show --json: %v %+v", err, shown)
		}

		if _, err := s.sqs.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &lost}); err != nil {
			t.Fatal(err)
		}
		s.fails(0, []string{"retry", id.String(), "--dry-run"}, "retry would be done to 1 message", place)
		if got := s.run("retry", id.String(), "--note", "queue\x1b made", "--by", "anna@laptop"); !strings.Contains(got, "retry: done to 1 message (record 1)") {
			t.Errorf("retry: %s", got)
		}
		if got := s.receive(1); got["Zm9sbG93ZXI="] != 1 {
			t.Errorf("received %v", got)
		}
		s.awaitListed(2, "--state", "sent")
		s.fails(1, []string{"retry", id.String()}, "left alone: it is sent", "no message fits")
		audit := s.run("audit")
		for _, want := range []string{"anna@laptop", "retry", id.String(), `queue\x1b made`} {
			if !strings.Contains(audit, want) {
				t.Errorf("audit lacks %q:\n%s", want, audit)
			}
		}
		printable(t, audit)
		if out := s.run("status", "--check"); !strings.Contains(out, "Nothing is wrong.") {
			t.Errorf("status: %s", out)
		}
		p.signal(syscall.SIGTERM)
		p.wantExit(0)
	})
}

func TestAHeldKeyIsReleased(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		s := newShop(t, db)
		p, _ := s.relayByTopic("hold")
		s.put(outbox.Message{Topic: s.queue + "-absent", Key: "k"}, outbox.Message{Topic: s.queue, Key: "k", Payload: []byte("follower")})
		s.awaitListed(1, "--state", "failed")
		s.awaitListed(1, "--state", "blocked")
		s.run("release", "--route", "shop", "--key", "k")
		if got := s.receive(1); got["Zm9sbG93ZXI="] != 1 {
			t.Errorf("received %v", got)
		}
		s.awaitListed(1, "--state", "failed")
		s.run("discard", "--key", "k")
		s.awaitListed(1, "--state", "discarded")
		p.signal(syscall.SIGTERM)
		p.wantExit(0)
	})
}

// A paused route sends nothing, through a restart too, until it is resumed.
func TestPauseAndResume(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		s := newShop(t, db)
		p, monitor := s.relay()
		s.enqueue(1)
		s.receive(1)
		s.fails(2, []string{"pause", "defualt"}, "no such route", `"default"`)
		s.run("pause", "default", "--note", "the queue moves")
		await(t, monitor+"/metrics", 200, `postrider_shards_held{route="default"} 0`)
		await(t, monitor+"/readyz", 200, "an operator paused it: postrider resume default")
		p.signal(syscall.SIGTERM)
		p.wantExit(0)
		p, monitor = s.relay()
		await(t, monitor+"/readyz", 200, "an operator paused it")
		s.enqueue(5)
		if out := s.run("status"); !strings.Contains(out, "note: route default: is paused since") || !strings.Contains(out, "the queue moves") || !strings.Contains(out, "postrider resume default") {
			t.Errorf("status: %s", out)
		}
		// As often as an unpaused relay would have looked by now.
		time.Sleep(500 * time.Millisecond)
		if n := s.inQueue(); n != "0" {
			t.Errorf("%s messages came while it was paused", n)
		}
		if out := s.run("pause", "default"); !strings.Contains(out, "was paused already") {
			t.Errorf("pause: %s", out)
		}
		s.run("resume", "default")
		if got := s.receive(5); len(got) != 5 {
			t.Errorf("received %v", got)
		}
		p.signal(syscall.SIGTERM)
		p.wantExit(0)
	})
}

func TestReplay(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		s := newShop(t, db)
		p, _ := s.relay()
		s.enqueue(5)
		s.receive(5)
		s.awaitListed(5, "--state", "sent")
		s.purge()
		s.fails(0, []string{"replay", "--topic", "orders", "--dry-run"}, "replay would be done to 5 messages")
		s.fails(2, []string{"replay", "--topic", "orders"}, "this would replay 5 messages, and nobody is there to ask", "--dry-run", "--yes")
		if n := s.inQueue(); n != "0" {
			t.Errorf("%s messages were sent by looking", n)
		}
		var done struct {
			Matched, Changed int
			Messages         []struct{ Changed bool }
		}
		if err := json.Unmarshal([]byte(s.run("replay", "--topic", "orders", "--yes", "--json")), &done); err != nil || done.Changed != 5 || len(done.Messages) != 5 || !done.Messages[0].Changed {
			t.Errorf("replay --json: %v %+v", err, done)
		}
		if got := s.receive(5); len(got) != 5 {
			t.Errorf("received %v", got)
		}
		s.awaitListed(5, "--state", "sent")
		p.signal(syscall.SIGTERM)
		p.wantExit(0)
	})
}

// purge takes what is in the queue out of it.
func (s *shop) purge() {
	s.t.Helper()
	if _, err := s.sqs.PurgeQueue(s.t.Context(), &sqs.PurgeQueueInput{QueueUrl: s.url}); err != nil {
		s.t.Fatal(err)
	}
}

func TestRouteRemove(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		s := newShop(t, db)
		p, monitor := s.relay()
		await(t, monitor+"/metrics", 200, `postrider_shards_held{route="default"} 4`)
		if out := s.run("route", "list"); !strings.Contains(out, "default") || !strings.Contains(out, "(4/4)") {
			t.Errorf("route list: %s", out)
		}
		s.fails(1, []string{"route", "remove", "default", "--yes"}, "a relay serves the route", "--force")
		p.signal(syscall.SIGTERM)
		p.wantExit(0)
		s.enqueue(3)
		if out := s.run("status"); !strings.Contains(out, "WRONG: route default: no relay serves it; about 3 messages wait") || !strings.Contains(out, "postrider route remove default") {
			t.Errorf("status: %s", out)
		}
		s.fails(2, []string{"route", "remove", "default"}, "forget about 3 messages pending", "--yes does it")
		if out := s.run("route", "remove", "default", "--yes"); !strings.Contains(out, "about 3 messages that it had not sent") {
			t.Errorf("route remove: %s", out)
		}
		s.fails(2, []string{"route", "remove", "default", "--yes"}, "no such route")
		s.fails(0, []string{"audit", "--json"}, `"action": "remove"`)
	})
}

func TestOperatorsMistakes(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		s := newShop(t, db)
		for _, tc := range []struct {
			code  int
			args  string
			texts []string
		}{
			{0, "status", []string{"No relay has served a route yet"}},
			{0, "list", []string{"no messages"}},
			{0, "audit", []string{"nothing is recorded"}},
			{0, "route list", []string{"no routes"}},
			{2, "list --route nothing", []string{"no such route", "route list"}},
			{2, "list --state faild", []string{`"faild" is no state`}},
			{2, "list --since yesterday", []string{"--since", "90m"}},
			{2, "list --since 2026-11-30 --until 2026-11-29", []string{"nothing is from"}},
			{2, "list --limit 0", []string{"1 to 10000"}},
			{2, "list --after here", []string{"--after"}},
			{2, "show 17", []string{"names no message"}},
			{2, "show 1/0", []string{"not a place"}},
			{2, "show", []string{"show --help"}},
			{1, "show 9/1", []string{"no such message", "4 shards"}},
			{1, "show 1/1", []string{"no such message"}},
			{1, "show 019ad3f2-7c1e-7e5c-9d7b-2f6a4c1e8b90", []string{"no such message"}},
			{2, "retry", []string{"every message of every route"}},
			{2, "retry --state failed", []string{"every message of every route"}},
			{2, "retry --topic x --state sent", []string{"retry is not for messages that are sent"}},
			{2, "retry --topic x --state sent --yes", []string{"retry is not for messages that are sent"}},
			{2, "retry --route nothing --yes", []string{"no such route"}},
			{2, "retry --route nothing --yes --json", []string{"no such route"}},
			{1, "retry --topic x", []string{"no message fits"}},
			{1, "replay 019ad3f2-7c1e-7e5c-9d7b-2f6a4c1e8b90", []string{"no such message"}},
			{2, "pause", []string{"pause --help"}},
			{2, "pause nothing", []string{"no such route"}},
			{2, "route", []string{"route --help"}},
			{2, "status --max-age 0s", []string{"--max-age"}},
		} {
			s.fails(tc.code, strings.Fields(tc.args), tc.texts...)
		}
		if out := s.run("list", "--json"); !strings.Contains(out, `"messages": []`) {
			t.Errorf("list --json: %s", out)
		}
	})
}

func TestOperatorWithoutTables(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		for _, args := range []string{"status", "list", "show 1/1", "retry --topic x", "pause x", "route list", "audit"} {
			world{}.run(t, append(strings.Fields(args), "--db", db)...).wantExit(2, "tables are missing", "postrider migrate up")
		}
	})
	down := "postgres://shop:" + canary + "@" + unreachable(t) + "/orders?sslmode=disable"
	for _, args := range []string{"status", "list", "retry --topic x", "pause x", "audit"} {
		p := world{}.run(t, append(strings.Fields(args), "--db", down)...)
		p.wantExit(3, "cannot connect")
		if strings.Contains(p.stderr.String()+p.stdout.String(), canary) {
			t.Error("shows the password")
		}
	}
}

// A role that may only read sees everything and changes nothing.
func TestOperatorWhoMayOnlyLook(t *testing.T) {
	s := newShop(t, pgtest.Database(t))
	u, err := url.Parse(s.db)
	if err != nil {
		t.Fatal(err)
	}
	role := strings.Trim(u.Path, "/") + "_look"
	execute(t, s.db, `CREATE ROLE `+role+` LOGIN PASSWORD 'look'; GRANT USAGE ON SCHEMA postrider TO `+role+`;
		GRANT SELECT ON ALL TABLES IN SCHEMA postrider TO `+role+`; GRANT SELECT ON ALL SEQUENCES IN SCHEMA postrider TO `+role+`;
		GRANT EXECUTE ON FUNCTION postrider.takes_topic, postrider.shard_of TO `+role)
	owner := s.db
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.WithoutCancel(t.Context()), owner)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.WithoutCancel(t.Context()))
		if _, err := conn.Exec(context.WithoutCancel(t.Context()), `DROP OWNED BY `+role+`; DROP ROLE `+role); err != nil {
			t.Error(err)
		}
	})
	p, _ := s.relayByTopic("release")
	s.put(outbox.Message{Topic: s.queue + "-absent", Key: "k"})
	s.awaitListed(1, "--state", "failed")
	u.User = url.UserPassword(role, "look")
	s.db = u.String()
	s.run("status")
	s.run("list")
	s.run("audit")
	s.run("retry", "--topic", s.queue+"-absent", "--dry-run")
	s.fails(1, []string{"retry", "--topic", s.queue + "-absent"}, "permission denied", "docs/postgresql.md")
	s.fails(1, []string{"pause", "shop"}, "permission denied")
	s.db = owner
	s.awaitListed(1, "--state", "failed")
	p.signal(syscall.SIGTERM)
	p.wantExit(0)
}
