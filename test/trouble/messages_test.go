package trouble

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/test/internal/awsrig"
	"github.com/postrider/postrider/test/internal/programs"
)

// writer enqueues messages, about fifty a second, whenever the database lets it.
type writer struct {
	news programs.News

	stop func() // and waits until it has; may be called again

	mu   sync.Mutex
	n    int
	last error
}

func startWriter(t testing.TB, at string) *writer {
	w := &writer{}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var writing sync.WaitGroup
	writing.Go(func() { w.run(ctx, at) })
	w.stop = func() { stop(); writing.Wait() }
	t.Cleanup(w.stop)
	return w
}

func (w *writer) run(ctx context.Context, at string) {
	var conn *pgx.Conn
	for i := 0; ctx.Err() == nil; i++ {
		err := func() (err error) {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			if conn == nil || conn.IsClosed() {
				if conn, err = connect(ctx, at); err != nil {
					return err
				}
			}
			_, err = conn.Exec(ctx, "SELECT postrider.enqueue('orders', convert_to($2, 'UTF8'), $1)",
				fmt.Sprint("customer ", i%13), fmt.Sprintf(`{"n":%d}`, i))
			return err
		}()
		w.mu.Lock()
		if w.last = err; err == nil {
			w.n++
		}
		w.mu.Unlock()
		w.news.Tell()
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	if conn != nil {
		_ = conn.Close(context.Background())
	}
}

// writes waits until it has committed another few.
func (w *writer) writes(t testing.TB) {
	t.Helper()
	count := func() (int, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.n, w.last
	}
	before, _ := count()
	programs.Eventually(t, "messages are enqueued", &w.news, func() error {
		n, err := count()
		return programs.Unless(n >= before+5, "%d since: %v", n-before, err)
	})
}

// arrivals stands right before the emulator and writes down what the queue took,
// in the order in which it acknowledged it.
type arrivals struct {
	name, url string // of the queue; where it stands
	news      programs.News

	mu    sync.Mutex
	times map[string]int
	order []string // ids, in order of their first arrival
}

func newArrivals(rig *awsrig.Rig) *arrivals {
	a := &arrivals{name: rig.Queue("", nil), times: map[string]int{}}
	target, err := url.Parse(*rig.Direct.BaseEndpoint)
	if err != nil {
		rig.T.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Header.Del("Accept-Encoding") },
		ModifyResponse: a.note,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // half a request is none
		}
		// What has reached it happens, whatever becomes of its sender.
		r = r.WithContext(context.WithValue(context.WithoutCancel(r.Context()), bodyKey{}, body))
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	rig.T.Cleanup(server.Close)
	a.url = server.URL
	return a
}

type bodyKey struct{}

// note takes note of what a request to send achieved.
func (a *arrivals) note(response *http.Response) error {
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	response.Body = io.NopCloser(bytes.NewReader(answer))
	var request struct {
		Entries []struct {
			Id                string
			MessageAttributes map[string]struct{ StringValue string }
		}
	}
	var taken struct{ Successful []struct{ Id string } }
	body, _ := response.Request.Context().Value(bodyKey{}).([]byte)
	if response.StatusCode != http.StatusOK || json.Unmarshal(body, &request) != nil || json.Unmarshal(answer, &taken) != nil {
		return nil
	}
	ids := map[string]string{}
	for _, e := range request.Entries {
		ids[e.Id] = e.MessageAttributes["postrider-id"].StringValue
	}
	a.mu.Lock()
	for _, ok := range taken.Successful {
		id := ids[ok.Id]
		if a.times[id]++; a.times[id] == 1 {
			a.order = append(a.order, id)
		}
	}
	a.mu.Unlock()
	a.news.Tell()
	return nil
}

// lacks is how many of the messages have not arrived.
func (a *arrivals) lacks(want []message) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range want {
		if a.times[m.id] == 0 {
			n++
		}
	}
	return n
}

// seen is how often each message has arrived, and their order.
func (a *arrivals) seen() (times map[string]int, order []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	times = make(map[string]int, len(a.times))
	for id, n := range a.times {
		times[id] = n
	}
	return times, append([]string(nil), a.order...)
}

// check checks what has arrived: all that is committed, nothing else but for
// lost commits, and each key's messages in the order of their numbers. It
// returns the ids of those that arrived more than once.
func (a *arrivals) check(t testing.TB, committed []message, lost map[string]bool) (repeated []string) {
	t.Helper()
	times, order := a.seen()
	by := make(map[string]message, len(committed))
	for _, m := range committed {
		by[m.id] = m
		if times[m.id] == 0 {
			t.Errorf("message %d/%d never arrived", m.shard, m.seq)
		}
	}
	last := map[string]int64{}
	for _, id := range order {
		m, ok := by[id]
		switch {
		case !ok && !lost[id]:
			t.Errorf("message %s arrived and was never committed", id)
		case !ok:
		case m.seq < last[m.key]:
			t.Errorf("%s: number %d of shard %d arrived after %d", m.key, m.seq, m.shard, last[m.key])
		default:
			last[m.key] = m.seq
		}
		if times[id] > 1 {
			repeated = append(repeated, id)
		}
	}
	return repeated
}
