package pooler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgstore"
	"github.com/postrider/postrider/test/internal/awsrig"
	"github.com/postrider/postrider/test/internal/programs"
)

// post is a schema, the URL by which the programs reach its database, and a queue.
type post struct {
	t      testing.TB
	db     string        // the URL for programs
	owner  *pgxpool.Pool // the test's own, without a pooler between
	schema string
	rig    *awsrig.Rig
	queue  string
	lease  string // of relays
	env    []string
	sent   int            // messages that were enqueued for the queue
	got    map[string]int // how often each body came
}

// newPost makes the tables by the program, over db.
func newPost(t testing.TB, db string, owner *pgxpool.Pool, schema string) *post {
	t.Helper()
	rig := awsrig.New(t)
	p := &post{t: t, db: db, owner: owner, schema: schema, rig: rig, queue: rig.Queue("", nil), lease: "1m", got: map[string]int{}}
	p.env = programs.Environment(t, "AWS_ENDPOINT_URL="+rig.Proxy.URL, "AWS_REGION="+awsemulator.Region, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test")
	p.run("migrate", "up", "--shards", "2")
	return p
}

// database makes an empty one, and a pool of the test's own on it.
func database(t testing.TB) (url string, owner *pgxpool.Pool) {
	t.Helper()
	url = pgtest.Database(t)
	return url, connect(t, url)
}

// run runs the program to its end, which must be a good one.
func (p *post) run(args ...string) string {
	p.t.Helper()
	code, stdout, stderr := p.try(args...)
	if code != 0 {
		p.t.Fatalf("postrider %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

func (p *post) try(args ...string) (code int, stdout, stderr string) {
	p.t.Helper()
	return programs.Run(p.t, p.env, programs.Postrider, append(args, "--db", p.db, "--schema", p.schema)...)
}

// relay starts one whose messages go to the queue that is named as their topic.
func (p *post) relay() *programs.Process {
	p.t.Helper()
	r := programs.Start(p.t, p.env, programs.Postrider, "relay", "--db", p.db, "--schema", p.schema, "--to", "sqs://{topic}", "--http", "off", "--lease", p.lease)
	r.Said("postrider relay starts")
	return r
}

// enqueue commits n messages for the queue.
func (p *post) enqueue(n int) {
	p.t.Helper()
	msgs := make([]outbox.Message, n)
	for i := range msgs {
		p.sent++
		msgs[i] = outbox.Message{Topic: p.queue, Key: fmt.Sprint(p.sent % 50), Payload: fmt.Appendf(nil, `{"schema":%q,"n":%d}`, p.schema, p.sent)}
	}
	p.put(msgs...)
}

func (p *post) put(msgs ...outbox.Message) {
	p.t.Helper()
	err := pgx.BeginFunc(p.t.Context(), p.owner, func(tx pgx.Tx) error {
		return outbox.NewWriter(pgstore.Pgx{Schema: pgstore.Schema(p.schema)}).Enqueue(p.t.Context(), tx, msgs...)
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// take takes what is in the queue by now.
func (p *post) take() {
	p.t.Helper()
	for {
		out, err := p.rig.Queues.ReceiveMessage(p.t.Context(), &sqs.ReceiveMessageInput{QueueUrl: p.rig.URL(p.queue), MaxNumberOfMessages: 10})
		if err != nil {
			p.t.Fatal(err)
		}
		if len(out.Messages) == 0 {
			return
		}
		for _, m := range out.Messages {
			p.got[aws.ToString(m.Body)]++
			if _, err := p.rig.Queues.DeleteMessage(p.t.Context(), &sqs.DeleteMessageInput{QueueUrl: p.rig.URL(p.queue), ReceiptHandle: m.ReceiptHandle}); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

// arrive waits until everything that was enqueued has come.
func (p *post) arrive() {
	p.t.Helper()
	programs.Eventually(p.t, "everything arrives", nil, func() error {
		p.take()
		return programs.Unless(len(p.got) >= p.sent, "%d messages of %d have come", len(p.got), p.sent)
	})
	if len(p.got) > p.sent {
		p.t.Errorf("%d messages have come, and %d were sent", len(p.got), p.sent)
	}
}

// once checks that nothing came more than once.
func (p *post) once() {
	p.t.Helper()
	for body, n := range p.got {
		if n > 1 {
			p.t.Errorf("%s came %d times", body, n)
		}
	}
}

// settled waits until so many messages have the state on the route.
func (p *post) settled(state outbox.State, n int) {
	p.t.Helper()
	sql := `SELECT count(*) FROM ` + pgx.Identifier{p.schema}.Sanitize() + `.messages WHERE state = $1`
	programs.Eventually(p.t, fmt.Sprintf("%d messages are %s", n, state), nil, func() error {
		var got int
		if err := p.owner.QueryRow(p.t.Context(), sql, state).Scan(&got); err != nil {
			return err
		}
		return programs.Unless(got == n, "it is %d", got)
	})
}

// nothingMore starts a relay again after a clean stop: what was recorded is not
// sent again.
func (p *post) nothingMore() {
	p.t.Helper()
	before := map[string]int{}
	p.take()
	for body, n := range p.got {
		before[body] = n
	}
	again := p.relay()
	p.enqueue(20)
	p.arrive()
	time.Sleep(100 * time.Millisecond) // for what would come after
	again.Stop()
	p.take()
	for body, n := range before {
		if p.got[body] != n {
			p.t.Errorf("%s came again after a clean stop", body)
		}
	}
}
