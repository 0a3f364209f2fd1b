package awsproxy

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
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
// name of the code, which SQS sends along and which is the only one of services
// of the query protocol (SNS, STS).
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

// MissingTopic answers as SNS does when a topic does not exist.
func MissingTopic() Fault {
	return ServiceError(http.StatusNotFound, "com.amazonaws.sns#NotFoundException", "NotFound;Sender", "Topic does not exist")
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

func (x *exchange) fail(status int, code, queryCode, message string) {
	if x.form != nil {
		x.send(queryFailure(status, code, queryCode, message))
		return
	}
	h := http.Header{"Content-Type": {jsonType}, "X-Amzn-Requestid": {"injected-by-awsproxy"}}
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
