package awsproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// upstream answers batches with success, and remembers what came.
type upstream struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	header http.Header
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		u.mu.Lock()
		u.bodies, u.header = append(u.bodies, string(body)), r.Header
		u.mu.Unlock()
		w.Header().Set("X-Upstream", "yes")
		switch r.Header.Get("X-Amz-Target") {
		case "AmazonSQS.SendMessageBatch":
			b, _ := parseJSONBatch(body)
			var answer batchAnswer
			for _, e := range b.entries() {
				answer.successful = append(answer.successful, answered{e.id, mustJSON(map[string]string{"Id": e.id, "MessageId": "m" + e.id})})
			}
			_, _ = w.Write(b.format(answer))
		case "AmazonSQS.ReceiveMessage":
			_, _ = io.WriteString(w, `{"Messages":[{"Body":"hello"}]}`)
		default:
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write(append([]byte("echo "), body...))
		}
	}))
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) last() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.bodies) == 0 {
		return ""
	}
	return u.bodies[len(u.bodies)-1]
}

func (u *upstream) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.bodies)
}

func start(t *testing.T, u *upstream) *Server {
	t.Helper()
	s, err := Start(u.URL, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

type reply struct {
	status int
	body   string
	header http.Header
}

// call makes a request on a connection of its own.
func call(t *testing.T, s *Server, target, body string) (reply, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return callWith(ctx, s, target, body)
}

func callWith(ctx context.Context, s *Server, target, body string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/some/path?q=1", strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("X-Amz-Target", target)
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 as it was")
	req.Close = true
	resp, err := (&http.Transport{}).RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, string(read), resp.Header}, err
}

func mustCall(t *testing.T, s *Server, target, body string) reply {
	t.Helper()
	r, err := call(t, s, target, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const batchOf3 = `{"QueueUrl":"http://localhost:4566/0/q","Entries":[{"Id":"a","MessageBody":"<&>"},{"Id":"b","MessageBody":"2"},{"Id":"c","MessageBody":"3"}]}`

func TestPassesUnchanged(t *testing.T) {
	u := newUpstream(t)
	s := start(t, u)
	body := "{ \"odd\":  \x00\"spacing\xff\" }"
	got := mustCall(t, s, "DynamoDB_20120810.GetItem", body)
	if got.status != http.StatusTeapot || got.body != "echo "+body || got.header.Get("X-Upstream") != "yes" {
		t.Errorf("%+v", got)
	}
	if u.header.Get("Authorization") != "AWS4-HMAC-SHA256 as it was" {
		t.Errorf("headers %v", u.header)
	}
}

func TestRulesCountAndEnd(t *testing.T) {
	u := newUpstream(t)
	s := start(t, u)
	end := s.Add(Rule{Target: "AmazonSQS", Containing: "q", Skip: 1, Count: 2, Fault: Throttle()})
	var statuses []int
	for range 5 {
		statuses = append(statuses, mustCall(t, s, "AmazonSQS.ReceiveMessage", `{"QueueUrl":"q"}`).status)
	}
	if want := []int{200, 400, 400, 200, 200}; !equal(statuses, want) {
		t.Errorf("%v, want %v", statuses, want)
	}
	end()
	for _, other := range [][2]string{{"DynamoDB_20120810.GetItem", "q"}, {"AmazonSQS.ReceiveMessage", "x"}} {
		s.Add(Rule{Target: "AmazonSQS.ReceiveMessage", Containing: "q", Fault: Throttle()})
		if got := mustCall(t, s, other[0], other[1]); got.status == 400 {
			t.Errorf("%v met the fault", other)
		}
	}
	if n, all := s.Requests("ReceiveMessage"), s.Requests(""); n != 6 || all != 7 || s.Counts()["DynamoDB_20120810.GetItem"] != 1 {
		t.Errorf("%d of %d requests, %v", n, all, s.Counts())
	}
	s.Reset()
	if got := mustCall(t, s, "AmazonSQS.ReceiveMessage", "q"); got.status != 200 || s.Requests("") != 1 {
		t.Errorf("after Reset: %d, %v", got.status, s.Counts())
	}
}

func equal(a, b []int) bool { return string(mustJSON(a)) == string(mustJSON(b)) }

func TestProbabilityFollowsTheSeed(t *testing.T) {
	u := newUpstream(t)
	run := func() []int {
		s := start(t, u)
		s.Add(Rule{Probability: 0.5, Fault: Status(500)})
		var statuses []int
		for range 40 {
			statuses = append(statuses, mustCall(t, s, "x.y", "").status)
		}
		return statuses
	}
	one, other := run(), run()
	if !equal(one, other) {
		t.Errorf("the same seed, and %v and %v", one, other)
	}
	if text := string(mustJSON(one)); !strings.Contains(text, "500") || !strings.Contains(text, "418") {
		t.Errorf("no chance in %s", text)
	}
}

func TestFailEntries(t *testing.T) {
	u := newUpstream(t)
	s := start(t, u)
	s.Add(Rule{Count: 1, Fault: FailEntries(At(1), "InternalError", false)})
	got := mustCall(t, s, "AmazonSQS.SendMessageBatch", batchOf3)
	var answer struct {
		Successful []struct{ Id, MessageId string }
		Failed     []struct {
			Id, Code    string
			SenderFault bool
		}
	}
	if err := json.Unmarshal([]byte(got.body), &answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Successful) != 2 || answer.Successful[0].MessageId != "ma" || len(answer.Failed) != 1 || answer.Failed[0].Id != "b" || answer.Failed[0].Code != "InternalError" {
		t.Errorf("%+v", answer)
	}
	var forwarded, sent struct {
		QueueUrl string
		Entries  []struct{ Id, MessageBody string }
	}
	_ = json.Unmarshal([]byte(u.last()), &forwarded)
	_ = json.Unmarshal([]byte(batchOf3), &sent)
	if len(forwarded.Entries) != 2 || forwarded.Entries[0] != sent.Entries[0] || forwarded.Entries[1] != sent.Entries[2] || forwarded.QueueUrl != sent.QueueUrl {
		t.Errorf("forwarded %+v", forwarded)
	}

	before := u.count()
	s.Add(Rule{Count: 1, Fault: FailEntries(Containing("MessageBody"), "X", true)})
	if got := mustCall(t, s, "AmazonSQS.SendMessageBatch", batchOf3); strings.Count(got.body, `"Code":"X"`) != 3 || u.count() != before {
		t.Errorf("all chosen: %s, %d forwarded", got.body, u.count()-before)
	}
	s.Add(Rule{Count: 1, Fault: OmitEntries(At(0))})
	if got := mustCall(t, s, "AmazonSQS.SendMessageBatch", batchOf3); strings.Contains(got.body, `"ma"`) || !strings.Contains(got.body, `"mb"`) || u.last() != batchOf3 {
		t.Errorf("omitted: %s", got.body)
	}
	s.Add(Rule{Count: 1, Fault: FailEntries(At(0), "X", true)})
	if got := mustCall(t, s, "AmazonSQS.ReceiveMessage", "{}"); got.status != 200 || !strings.Contains(got.body, "hello") {
		t.Errorf("no batch: %+v", got)
	}
}

func TestErrorsLookLikeThoseOfSQS(t *testing.T) {
	s := start(t, newUpstream(t))
	s.Add(Rule{Fault: MissingQueue()})
	got := mustCall(t, s, "AmazonSQS.ReceiveMessage", "{}")
	if got.status != 400 || got.header.Get("X-Amzn-Query-Error") != "AWS.SimpleQueueService.NonExistentQueue;Sender" ||
		!strings.Contains(got.body, `"__type":"com.amazonaws.sqs#QueueDoesNotExist"`) {
		t.Errorf("%+v", got)
	}
}

func TestDeliverTwice(t *testing.T) {
	u := newUpstream(t)
	s := start(t, u)
	s.Add(Rule{Target: "ReceiveMessage", Count: 1, Fault: DeliverTwice()})
	for i := range 2 {
		if got := mustCall(t, s, "AmazonSQS.ReceiveMessage", `{"QueueUrl":"q"}`); !strings.Contains(got.body, "hello") || u.count() != 1 {
			t.Errorf("answer %d: %s after %d requests", i, got.body, u.count())
		}
	}
	mustCall(t, s, "AmazonSQS.ReceiveMessage", `{"QueueUrl":"q"}`)
	if u.count() != 2 {
		t.Error("it answers a third time")
	}
}

func TestConnections(t *testing.T) {
	u := newUpstream(t)
	s := start(t, u)
	mustReset := func(what string) {
		t.Helper()
		if _, err := call(t, s, "x.y", ""); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", what, err)
		}
	}
	end := s.Add(Rule{Fault: ResetConnection()})
	mustReset("reset")
	if u.count() != 0 {
		t.Error("what is reset was forwarded")
	}
	end()
	end = s.Add(Rule{Fault: LoseAnswer()})
	mustReset("lost answer")
	if u.count() != 1 {
		t.Error("only the answer is to be lost")
	}
	end()

	before := s.Connects()
	s.Down()
	for range 3 {
		mustReset("down")
	}
	if n := s.Connects() - before; n != 3 {
		t.Errorf("%d connects counted, want 3", n)
	}
	s.Up()
	mustCall(t, s, "x.y", "")

	s.Refuse()
	if _, err := call(t, s, "x.y", ""); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refused: %v", err)
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	mustCall(t, s, "x.y", "")
}

// Down cuts what hangs already.
func TestHangAndDown(t *testing.T) {
	s := start(t, newUpstream(t))
	s.Add(Rule{Fault: Hang()})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := callWith(ctx, s, "x.y", ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it does not hang: %v", err)
	}
	done := make(chan error)
	go func() { _, err := callWith(context.Background(), s, "x.y", ""); done <- err }()
	for s.Requests("") < 2 {
		time.Sleep(time.Millisecond)
	}
	s.Down()
	if err := <-done; err == nil {
		t.Error("answered")
	}
}

func TestLatencyPassesOn(t *testing.T) {
	s := start(t, newUpstream(t))
	s.Add(Rule{Fault: Latency(60 * time.Millisecond)})
	s.Add(Rule{Skip: 1, Fault: Status(503)})
	for _, want := range []int{418, 503} {
		started := time.Now()
		if got := mustCall(t, s, "x.y", ""); got.status != want || time.Since(started) < 60*time.Millisecond {
			t.Errorf("%d after %v, want %d", got.status, time.Since(started), want)
		}
	}
}

func TestUpstreamAway(t *testing.T) {
	u := newUpstream(t)
	s := start(t, u)
	u.Close()
	if got := mustCall(t, s, "x.y", ""); got.status != http.StatusBadGateway || !bytes.Contains([]byte(got.body), []byte("awsproxy")) {
		t.Errorf("%+v", got)
	}
}
