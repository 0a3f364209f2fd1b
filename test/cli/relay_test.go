package cli_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgstore"
	"github.com/postrider/postrider/store/sqlitestore"
)

// shop is a database with the tables, and a queue behind a proxy.
type shop struct {
	t     *testing.T
	db    string
	queue string
	proxy *awsproxy.Server
	sqs   *sqs.Client // to the emulator itself
	url   *string     // of the queue
}

func newShop(t *testing.T, db string) *shop {
	t.Helper()
	emulator := awsemulator.Start()
	t.Cleanup(emulator.Close)
	proxy, err := awsproxy.Start(emulator.Endpoint, testsize.Seed(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	s := &shop{
		t: t, db: db, proxy: proxy, sqs: sqs.NewFromConfig(emulator.Config()),
		queue: fmt.Sprintf("cli-%d", time.Now().UnixNano()),
	}
	made, err := s.sqs.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &s.queue})
	if err != nil {
		t.Fatal(err)
	}
	s.url = made.QueueUrl
	world{}.run(t, "migrate", "up", "--db", s.db).wantExit(0)
	return s
}

func (s *shop) world() world { return world{env: []string{"AWS_ENDPOINT_URL=" + s.proxy.URL}} }

// relay starts a relay, and returns it with its monitor's URL once it serves.
func (s *shop) relay(args ...string) (p *process, monitor string) {
	s.t.Helper()
	p = s.world().start(s.t, append([]string{"relay", "--db", s.db, "--to", "sqs://" + s.queue, "--http", "127.0.0.1:0", "--lease", "3s"}, args...)...)
	line := p.awaitLog("postrider relay starts")
	address := regexp.MustCompile(`http"?[=:]"?(127\.0\.0\.1:\d+)`).FindStringSubmatch(line)
	if address == nil {
		s.t.Fatalf("no address in %s", line)
	}
	return p, "http://" + address[1]
}

func (s *shop) enqueue(n int) {
	s.t.Helper()
	msgs := make([]outbox.Message, n)
	for i := range msgs {
		msgs[i] = outbox.Message{Topic: "orders", Key: fmt.Sprint(i), Payload: fmt.Appendf(nil, `{"n":%d}`, i)}
	}
	if path, ok := strings.CutPrefix(s.db, "sqlite:"); ok {
		s.enqueueSQLite(path, msgs)
	} else {
		s.enqueuePostgres(msgs)
	}
}

func (s *shop) enqueuePostgres(msgs []outbox.Message) {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.db)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(s.t.Context()))
	err = pgx.BeginFunc(s.t.Context(), conn, func(tx pgx.Tx) error {
		return outbox.NewWriter(pgstore.Pgx{}).Enqueue(s.t.Context(), tx, msgs...)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) enqueueSQLite(path string, msgs []outbox.Message) {
	s.t.Helper()
	db, err := sql.Open("sqlite", sqlitestore.DSN(path))
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(s.t.Context(), nil)
	if err == nil {
		if err = outbox.NewWriter(sqlitestore.SQL{}).Enqueue(s.t.Context(), tx, msgs...); err == nil {
			err = tx.Commit()
		}
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// receive takes n messages from the queue and returns how often each came.
func (s *shop) receive(n int) map[string]int {
	s.t.Helper()
	got := make(map[string]int)
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for len(got) < n {
		out, err := s.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: s.url, MaxNumberOfMessages: 10, WaitTimeSeconds: 1})
		if err != nil {
			s.t.Fatalf("%d of %d messages: %v", len(got), n, err)
		}
		for _, m := range out.Messages {
			got[aws.ToString(m.Body)]++
		}
	}
	return got
}

func (s *shop) inQueue() string {
	s.t.Helper()
	out, err := s.sqs.GetQueueAttributes(s.t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: s.url, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		s.t.Fatal(err)
	}
	return out.Attributes["ApproximateNumberOfMessages"]
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// await asks until the answer is as wanted.
func await(t *testing.T, url string, status int, text string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		code, body := get(t, url)
		if code == status && strings.Contains(body, text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s still says %d %s, not %d with %s", url, code, end(body), status, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestRelayOnPostgres(t *testing.T) {
	db := pgtest.Database(t)
	u, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	testRelay(t, db, "postgres://postgres@"+u.Host+u.Path+" schema=postrider")
}

func TestRelayOnSQLite(t *testing.T) {
	db := "sqlite:" + filepath.Join(t.TempDir(), "shop.db")
	testRelay(t, db, db)
}

func testRelay(t *testing.T, db, shown string) {
	s := newShop(t, db)
	p, monitor := s.relay()
	line := strings.SplitN(p.stderr.String(), "\n", 2)[0]
	for _, want := range []string{"v9.8.7-test", "database=" + shown, "shards=4", "default: ** -> sqs://" + s.queue, "source=poll", "source_reason=", "lease=3s"} {
		if !strings.Contains(line, want) {
			t.Errorf("the first line lacks %q: %s", want, line)
		}
	}
	if code, body := get(t, monitor+"/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("healthz: %d %q", code, body)
	}
	await(t, monitor+"/readyz", 200, "ready\n")
	s.world().run(t, "health", "--http", strings.TrimPrefix(monitor, "http://")).wantExit(0)
	await(t, monitor+"/metrics", 200, "go_goroutines")
	await(t, monitor+"/metrics", 200, `postrider_shards_held{route="default"} 4`)
	if code, _ := get(t, monitor+"/"); code != 404 {
		t.Errorf("/: %d", code)
	}
	s.enqueue(100)
	if got := s.receive(100); len(got) != 100 {
		t.Errorf("%d messages", len(got))
	}
	p.signal(syscall.SIGTERM)
	p.wantExit(0, "stopping", "everything that was sent is recorded")

	// What was sent is recorded: another run sends nothing of it again.
	p, monitor = s.relay("--log-format", "json")
	await(t, monitor+"/readyz", 200, "ready\n")
	s.enqueue(1)
	s.receive(1)
	p.signal(syscall.SIGINT)
	p.wantExit(0)
	if n := s.inQueue(); n != "0" {
		t.Errorf("%s messages came twice", n)
	}
}

func TestReadyzSaysWhyNot(t *testing.T) {
	s := newShop(t, pgtest.Database(t))
	s.proxy.Add(awsproxy.Rule{Fault: awsproxy.AccessDenied()})
	p, monitor := s.relay()
	s.enqueue(1)
	await(t, monitor+"/readyz", 503, "route default: an operator has to act")
	if code, _ := get(t, monitor+"/healthz"); code != 200 {
		t.Errorf("healthz: %d", code)
	}
	address := strings.TrimPrefix(monitor, "http://")
	s.world().run(t, "health", "--http", address).wantExit(1, "route default: an operator has to act")
	p.signal(syscall.SIGTERM)
	p.wantExit(0)
	s.world().run(t, "health", "--http", address).wantExit(1, "connection refused")
	s.world().run(t, "health", "--http", "off").wantExit(2, "nothing to ask")
}

// A shard whose log was emptied by hand makes the relay stop there, which is
// for an operator to hear of: nothing else shows it.
func TestReadyzNamesTheShardThatStandsStill(t *testing.T) {
	s := newShop(t, pgtest.Database(t))
	p, monitor := s.relay()
	s.enqueue(100)
	s.receive(100)
	await(t, monitor+"/readyz", 200, "ready\n")
	execute(t, s.db, "TRUNCATE postrider.log_2 RESTART IDENTITY")
	await(t, monitor+"/readyz", 503, "route default: shard 2 stands still since ")
	await(t, monitor+"/metrics", 200, `postrider_shards_failing{route="default"} 1`)
	if _, body := get(t, monitor+"/readyz"); strings.Count(body, "stands still") != 1 {
		t.Errorf("the other shards work: %s", body)
	}
	p.signal(syscall.SIGTERM)
	p.wantExit(0)
}

// A publish that never returns: the first signal stops politely and waits, the
// second ends at once with 4.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	s := newShop(t, pgtest.Database(t))
	s.proxy.Add(awsproxy.Rule{Target: "SendMessageBatch", Fault: awsproxy.Hang()})
	p, _ := s.relay("--lease", "10m") // a polite stop would take minutes
	s.enqueue(1)
	awaitRequest(t, s.proxy)
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGTERM) // as timeout(1) does, to the process and to its group
	p.awaitLog("stopping")
	p.signal(syscall.SIGINT)
	p.wantExit(4, "second signal")
}

// The answer of the broker is lost and the relay stops meanwhile: whether the
// message was taken nobody knows, and the exit code says so.
func TestExitCodeOfAnUnsettledStop(t *testing.T) {
	s := newShop(t, pgtest.Database(t))
	s.proxy.Add(awsproxy.Rule{Target: "SendMessageBatch", Fault: awsproxy.Hang()})
	p, _ := s.relay("--lease", "2s")
	s.enqueue(1)
	awaitRequest(t, s.proxy)
	p.signal(syscall.SIGTERM)
	p.wantExit(4, "may be published again")
}

// Nothing can be sent before the queue's address is known, so a stop while the
// question for it hangs has nothing to confess.
func TestExitCodeOfAStopBeforeAnythingWasSent(t *testing.T) {
	s := newShop(t, pgtest.Database(t))
	s.proxy.Add(awsproxy.Rule{Target: "GetQueueUrl", Fault: awsproxy.Hang()})
	p, _ := s.relay("--lease", "2s")
	s.enqueue(1)
	awaitCall(t, s.proxy, "GetQueueUrl")
	p.signal(syscall.SIGTERM)
	p.wantExit(0, "everything that was sent is recorded")
}

// awaitRequest waits until a batch is on its way.
func awaitRequest(t *testing.T, proxy *awsproxy.Server) {
	t.Helper()
	awaitCall(t, proxy, "SendMessageBatch")
}

func awaitCall(t *testing.T, proxy *awsproxy.Server, target string) {
	t.Helper()
	for deadline := time.Now().Add(patience); proxy.Requests(target) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s was sent", target)
		}
	}
}

// Once running the relay survives the database: it says so, and goes on by
// itself when the database is back.
func TestDatabaseRestart(t *testing.T) {
	server := pgtest.Server(t)
	s := newShop(t, server.URL("postgres"))
	p, monitor := s.relay("--lease", "5s")
	s.enqueue(10)
	s.receive(10)
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, monitor+"/readyz", 503, "the database does not answer")
	if code, _ := get(t, monitor+"/healthz"); code != 200 {
		t.Errorf("healthz: %d", code)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, monitor+"/readyz", 200, "ready")
	s.enqueue(10)
	deadline := time.Now().Add(patience)
	for seen := 0; seen < 10; {
		seen += len(s.receive(1))
		if time.Now().After(deadline) {
			t.Fatal("messages stopped")
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 && code != 4 {
		t.Errorf("exit %d", code)
	}
	u, err := url.Parse(s.db)
	if err != nil {
		t.Fatal(err)
	}
	if password, ok := u.User.Password(); ok && strings.Contains(p.stderr.String(), password) {
		t.Error("the log shows the password")
	}
}

// A file with two routes, each with its own destination.
func TestRoutesOfAFile(t *testing.T) {
	s := newShop(t, "sqlite:"+filepath.Join(t.TempDir(), "shop.db"))
	dir := t.TempDir()
	write(t, dir, "postrider.yaml", `
database: `+s.db+`
http: off
lease: 3s
log_format: json
routes:
  - {name: orders, topics: [orders], to: "sqs://${QUEUE}", encoding: base64, retry: {jitter: 0}}
  - {name: nothing, topics: ["billing.*"], to: sqs://nowhere, rate: 5}
`)
	w := s.world()
	w.dir, w.env = dir, append(w.env, "QUEUE="+s.queue, "POSTRIDER_LAESE=9s")
	p := w.start(t, "relay")
	p.awaitLog("did you mean POSTRIDER_LEASE?")
	line := p.awaitLog("postrider relay starts")
	for _, want := range []string{`"config":"postrider.yaml"`, `"orders: orders -> sqs://` + s.queue + `"`, `"nothing: billing.* -> sqs://nowhere"`, `"lease":"3s"`} {
		if !strings.Contains(line, want) {
			t.Errorf("the first line lacks %s: %s", want, line)
		}
	}
	s.enqueue(1)
	for body := range s.receive(1) {
		if body != "eyJuIjowfQ==" { // {"n":0}
			t.Errorf("body %q", body)
		}
	}
	p.signal(syscall.SIGTERM)
	p.wantExit(0)
}
