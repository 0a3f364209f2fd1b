package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"github.com/postrider/postrider/test/internal/programs"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// broker stands right before the emulator and writes down, in the order of
// their acknowledgement, the messages that queues took and the items that
// tables took. What has reached it happens, whatever becomes of its sender.
type broker struct {
	url       string
	emulator  string
	transport *http.Transport
	changed   programs.News

	mu       sync.Mutex
	arrivals map[string][]arrival // by queue
	times    map[string]map[string]int
	puts     map[string]map[string][]put // by table and order
	hooks    []*hook
}

// arrival is a message that a queue took.
type arrival struct {
	id, key string // as attributes tell
	turn    string // header of that name
	order   string // orderId in the body
	body    string
	at      time.Time
}

// put is an item that a table took.
type put struct{ customer, amount string }

// stage of a request.
type stage int

const (
	arriving stage = iota // nothing of it has happened yet
	answered              // it has happened, and its sender does not know yet
)

// hook is called once, by the nth request of its kind, which waits for it.
type hook struct {
	operation, containing string
	stage                 stage
	nth, seen             int
	do                    func()
}

func newBroker(t testing.TB, emulator string) *broker {
	b := &broker{
		emulator: emulator, transport: &http.Transport{MaxIdleConnsPerHost: 200},
		arrivals: map[string][]arrival{}, times: map[string]map[string]int{}, puts: map[string]map[string][]put{},
	}
	server := httptest.NewServer(b)
	t.Cleanup(func() {
		server.CloseClientConnections() // of programs that were killed
		server.Close()
		b.transport.CloseIdleConnections()
	})
	b.url = server.URL
	return b
}

// once calls do when the nth request from now for the operation, whose body
// contains the text, is at the stage.
func (b *broker) once(operation, containing string, at stage, nth int, do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hooks = append(b.hooks, &hook{operation: operation, containing: containing, stage: at, nth: nth, do: do})
}

// forget drops the hooks that were not called yet.
func (b *broker) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hooks = nil
}

func (b *broker) call(operation string, body []byte, at stage) {
	b.mu.Lock()
	var due []func()
	b.hooks = slices.DeleteFunc(b.hooks, func(h *hook) bool {
		if h.stage != at || h.operation != operation || !bytes.Contains(body, []byte(h.containing)) {
			return false
		}
		if h.seen++; h.seen < h.nth {
			return false
		}
		due = append(due, h.do)
		return true
	})
	b.mu.Unlock()
	for _, do := range due {
		do()
	}
}

func (b *broker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // half a request is none
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	b.call(operation, body, arriving)
	status, header, answer, err := b.forward(r, operation, body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if status == http.StatusOK {
		b.note(operation, body, answer)
	}
	b.call(operation, body, answered)
	maps.Copy(w.Header(), header)
	w.Header().Del("Content-Length")
	w.WriteHeader(status)
	_, _ = w.Write(answer) // the sender may be gone
}

func (b *broker) forward(r *http.Request, operation string, body []byte) (int, http.Header, []byte, error) {
	if operation == "ReceiveMessage" {
		body = impatient(body)
	}
	out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, b.emulator+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	out.Header = r.Header.Clone()
	out.Header.Del("Accept-Encoding")
	response, err := b.transport.RoundTrip(out)
	if err != nil {
		return 0, nil, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, response.Header, answer, err
}

// impatient makes a request for messages wait a second at most: the emulator
// does not tell those who wait of messages that become visible again.
func impatient(body []byte) []byte {
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if decoder.Decode(&fields) != nil {
		return body
	}
	fields["WaitTimeSeconds"] = 1
	if patched, err := json.Marshal(fields); err == nil {
		return patched
	}
	return body
}

func (b *broker) note(operation string, body, answer []byte) {
	switch operation {
	case "SendMessageBatch":
		b.noteBatch(body, answer)
	case "PutItem":
		b.notePut(body)
	default:
		return
	}
	b.changed.Tell()
}

func (b *broker) noteBatch(body, answer []byte) {
	type value struct{ StringValue string }
	var request struct {
		QueueUrl string
		Entries  []struct {
			Id, MessageBody   string
			MessageAttributes map[string]value
		}
	}
	var taken struct{ Successful []struct{ Id string } }
	if json.Unmarshal(body, &request) != nil || json.Unmarshal(answer, &taken) != nil {
		return
	}
	queue := path.Base(request.QueueUrl)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.times[queue] == nil {
		b.times[queue] = map[string]int{}
	}
	for _, e := range request.Entries {
		if !slices.ContainsFunc(taken.Successful, func(ok struct{ Id string }) bool { return ok.Id == e.Id }) {
			continue
		}
		var order struct{ OrderID string }
		_ = json.Unmarshal([]byte(e.MessageBody), &order) // some are no orders
		b.arrivals[queue] = append(b.arrivals[queue], arrival{
			id: e.MessageAttributes["postrider-id"].StringValue, key: e.MessageAttributes["postrider-key"].StringValue,
			turn: e.MessageAttributes[turnHeader].StringValue, order: order.OrderID, body: e.MessageBody, at: time.Now(),
		})
		b.times[queue][order.OrderID]++
	}
}

func (b *broker) notePut(body []byte) {
	type value struct{ S, N string }
	var request struct {
		TableName string
		Item      map[string]value
	}
	if json.Unmarshal(body, &request) != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.puts[request.TableName] == nil {
		b.puts[request.TableName] = map[string][]put{}
	}
	order := request.Item["orderId"].S
	b.puts[request.TableName][order] = append(b.puts[request.TableName][order], put{request.Item["customerId"].S, request.Item["amountCents"].N})
}

// taken is what the queue took so far, in order.
func (b *broker) taken(queue string) []arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.arrivals[queue])
}

// count is how many messages the queue took, repetitions included.
func (b *broker) count(queue string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.arrivals[queue])
}

// distinct is how many orders the queue took.
func (b *broker) distinct(queue string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.times[queue])
}

// repeated is how often the queue took an order that it took more than once.
func (b *broker) repeated(queue string) map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	repeated := maps.Clone(b.times[queue])
	maps.DeleteFunc(repeated, func(_ string, n int) bool { return n == 1 })
	return repeated
}

// lacks returns which of the orders the queue has not taken yet.
func (b *broker) lacks(queue string, orders []string) (lacking []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range orders {
		if b.times[queue][id] == 0 {
			lacking = append(lacking, id)
		}
	}
	return lacking
}

// stored is what the table took, by order.
func (b *broker) stored(table string) map[string][]put {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.puts[table])
}

// unstored returns how many of the orders the table has not taken yet.
func (b *broker) unstored(table string, orders []string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range orders {
		if len(b.puts[table][id]) == 0 {
			n++
		}
	}
	return n
}
