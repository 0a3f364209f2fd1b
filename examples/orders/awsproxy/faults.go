package awsproxy

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Fault is what happens to a request. Make one with the functions below.
type Fault struct {
	do     func(x *exchange) (done bool)
	passes bool // the request goes on to further rules
}

func ending(do func(x *exchange)) Fault {
	return Fault{do: func(x *exchange) bool { do(x); return true }}
}

// Latency delays the request.
func Latency(d time.Duration) Fault {
	return Fault{passes: true, do: func(x *exchange) bool {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return false
		case <-x.r.Context().Done():
			return true
		}
	}}
}

// Hang answers nothing until the client goes away.
func Hang() Fault { return ending(func(x *exchange) { <-x.r.Context().Done() }) }

// ResetConnection resets the connection before the request is forwarded.
func ResetConnection() Fault { return ending(func(x *exchange) { x.reset() }) }

// LoseAnswer forwards the request and resets the connection instead of
// answering.
func LoseAnswer() Fault {
	return ending(func(x *exchange) {
		_, _ = x.forward(x.body)
		x.reset()
	})
}

// Status answers with an HTTP status and a body that AWS did not write, as load
// balancers do.
func Status(code int) Fault {
	return ending(func(x *exchange) { http.Error(x.w, http.StatusText(code), code) })
}

// ServiceError answers as AWS does: an HTTP status and an error code such as
// "com.amazonaws.sqs#QueueDoesNotExist". queryCode, if not empty, is the older
// name of the code, which SQS sends along.
func ServiceError(status int, code, queryCode, message string) Fault {
	return ending(func(x *exchange) { x.fail(status, code, queryCode, message) })
}

// Throttle answers that there are too many requests.
func Throttle() Fault {
	return ServiceError(http.StatusBadRequest, "com.amazon.coral.availability#ThrottlingException", "", "Rate exceeded")
}

// Unavailable answers 503 as AWS does.
func Unavailable() Fault {
	return ServiceError(http.StatusServiceUnavailable, "com.amazon.coral.service#ServiceUnavailableException", "",
		"The request has failed due to a temporary failure of the server.")
}

// MissingQueue answers as SQS does when a queue does not exist.
func MissingQueue() Fault {
	return ServiceError(http.StatusBadRequest, "com.amazonaws.sqs#QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue;Sender",
		"The specified queue does not exist.")
}

// ExpiredCredentials answers that the session token is too old.
func ExpiredCredentials() Fault {
	return ServiceError(http.StatusForbidden, "com.amazon.coral.service#ExpiredTokenException", "ExpiredToken;Sender",
		"The security token included in the request is expired")
}

// AccessDenied answers that the caller may not do this.
func AccessDenied() Fault {
	return ServiceError(http.StatusForbidden, "com.amazon.coral.service#AccessDeniedException", "AccessDenied;Sender",
		"User is not authorized to perform this action on this resource.")
}

// Entry is one entry of a batch request, with its place in it.
type Entry struct {
	Index int
	JSON  string
}

// At chooses entries by their place, counted from 0.
func At(indices ...int) func(Entry) bool {
	return func(e Entry) bool { return slices.Contains(indices, e.Index) }
}

// Containing chooses the entries whose JSON contains the text.
func Containing(text string) func(Entry) bool {
	return func(e Entry) bool { return strings.Contains(e.JSON, text) }
}

// FailEntries is a partial failure of SendMessageBatch, DeleteMessageBatch or
// ChangeMessageVisibilityBatch: the chosen entries come back in Failed with the
// code; only the others are forwarded. Other requests pass.
func FailEntries(choose func(Entry) bool, code string, senderFault bool) Fault {
	return Fault{do: func(x *exchange) bool {
		batch, ok := parseBatch(x.body)
		if !ok {
			return false
		}
		kept, chosen := batch.split(choose)
		if len(chosen) == 0 {
			return false
		}
		merged := batchAnswer{Successful: []json.RawMessage{}, Failed: []json.RawMessage{}}
		a := answer{status: http.StatusOK, header: http.Header{"Content-Type": {contentType}}}
		if len(kept) > 0 {
			var err error
			a, err = x.forward(batch.with(kept))
			if err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &merged) != nil {
				x.send(a)
				return true
			}
		}
		for _, entry := range chosen {
			merged.Failed = append(merged.Failed, mustJSON(map[string]any{
				"Id": entryID(entry), "Code": code, "SenderFault": senderFault, "Message": "injected by awsproxy",
			}))
		}
		a.body = mustJSON(merged)
		x.send(a)
		return true
	}}
}

// OmitEntries forwards a batch whole and leaves the chosen entries out of the
// answer. Other requests pass.
func OmitEntries(choose func(Entry) bool) Fault {
	return Fault{do: func(x *exchange) bool {
		batch, ok := parseBatch(x.body)
		if !ok {
			return false
		}
		_, chosen := batch.split(choose)
		var omitted []string
		for _, entry := range chosen {
			omitted = append(omitted, entryID(entry))
		}
		a, err := x.forward(x.body)
		var all batchAnswer
		if err != nil || json.Unmarshal(a.body, &all) != nil {
			x.send(a)
			return true
		}
		gone := func(raw json.RawMessage) bool { return slices.Contains(omitted, entryID(raw)) }
		all.Successful = slices.DeleteFunc(all.Successful, gone)
		all.Failed = slices.DeleteFunc(all.Failed, gone)
		a.body = mustJSON(all)
		x.send(a)
		return true
	}}
}

// DeliverTwice makes the next ReceiveMessage on the same queue answer with the
// same messages, receipt handles included, as SQS may do. It counts requests
// that brought no message too.
func DeliverTwice() Fault {
	return ending(func(x *exchange) {
		a, err := x.forward(x.body)
		if err != nil {
			http.Error(x.w, "awsproxy: "+err.Error(), http.StatusBadGateway)
			return
		}
		var got struct{ Messages []json.RawMessage }
		if json.Unmarshal(a.body, &got) == nil && len(got.Messages) > 0 {
			x.proxy.mu.Lock()
			queue := queueOf(x.body)
			x.proxy.again[queue] = append(x.proxy.again[queue], a)
			x.proxy.mu.Unlock()
		}
		x.send(a)
	})
}

// repeat answers what DeliverTwice has kept for the queue.
func (p *Proxy) repeat(x *exchange) bool {
	if !targetMatches("ReceiveMessage", x.target) {
		return false
	}
	p.mu.Lock()
	queue := queueOf(x.body)
	kept := p.again[queue]
	if len(kept) > 0 {
		p.again[queue] = kept[1:]
	}
	p.mu.Unlock()
	if len(kept) == 0 {
		return false
	}
	x.send(kept[0])
	return true
}

const contentType = "application/x-amz-json-1.0"

func (x *exchange) fail(status int, code, queryCode, message string) {
	h := http.Header{"Content-Type": {contentType}, "X-Amzn-Requestid": {"injected-by-awsproxy"}}
	if queryCode != "" && strings.HasPrefix(x.target, "AmazonSQS.") {
		h.Set("X-Amzn-Query-Error", queryCode)
	}
	x.send(answer{status: status, header: h, body: mustJSON(map[string]string{"__type": code, "message": message})})
}

// reset closes the connection so that the client sees a reset, not an end.
func (x *exchange) reset() {
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2: reset the stream
	}
	resetConn(conn)
}

func resetConn(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// batch is a batch request; what is not Entries stays as it came.
type batch struct {
	fields  map[string]json.RawMessage
	entries []json.RawMessage
}

type batchAnswer struct {
	Successful []json.RawMessage
	Failed     []json.RawMessage
}

func parseBatch(body []byte) (batch, bool) {
	var b batch
	if json.Unmarshal(body, &b.fields) != nil || json.Unmarshal(b.fields["Entries"], &b.entries) != nil {
		return b, false
	}
	return b, true
}

func (b batch) split(choose func(Entry) bool) (kept, chosen []json.RawMessage) {
	for i, raw := range b.entries {
		if choose(Entry{Index: i, JSON: string(raw)}) {
			chosen = append(chosen, raw)
		} else {
			kept = append(kept, raw)
		}
	}
	return kept, chosen
}

func (b batch) with(entries []json.RawMessage) []byte {
	b.fields["Entries"] = mustJSON(entries)
	return mustJSON(b.fields)
}

func entryID(entry json.RawMessage) string {
	var e struct{ Id string }
	_ = json.Unmarshal(entry, &e)
	return e.Id
}

func queueOf(body []byte) string {
	var q struct{ QueueUrl string }
	_ = json.Unmarshal(body, &q)
	return q.QueueUrl
}

func mustJSON(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("awsproxy: %v", err)) // only values of our own making
	}
	return out
}
