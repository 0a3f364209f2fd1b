// Package awsproxy stands between an AWS client and an AWS endpoint (the JSON
// protocol of SQS and DynamoDB, the query protocol of SNS and STS) and does on purpose what
// networks and services do now and then: throttle, fail, hang, reset, answer a
// part of a batch with errors, lose an answer, deliver twice. The demo and the
// tests use it. What no rule touches passes through unchanged.
package awsproxy

import (
	"bytes"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Rule says which requests meet which fault.
type Rule struct {
	// Target is an operation ("SendMessageBatch"), or a service
	// ("AmazonSQS", "DynamoDB_20120810"), or both with a dot between them, as
	// in the header X-Amz-Target. "AmazonSNS" and "AWSSecurityTokenService",
	// which send no such header, are called so here. Empty: every request.
	Target string
	// Containing limits the rule to requests whose body contains it, such as a
	// queue's name; a form is read without its escapes. Empty: all.
	Containing string
	// Skip leaves the first so many matching requests alone.
	Skip int
	// Count is how many requests meet the fault before the rule ends. 0: no end.
	Count int
	// Probability that a matching request meets the fault. 0: always.
	Probability float64
	// Fault is what happens; required.
	Fault Fault
}

// Proxy is the http.Handler. Safe for concurrent use. Server serves one.
type Proxy struct {
	upstream  string
	transport http.RoundTripper

	mu       sync.Mutex
	random   *rand.Rand
	rules    []*activeRule
	requests map[string]int
	again    map[string][]answer // what ReceiveMessage answers once more, by queue URL
}

type activeRule struct {
	Rule
	matched, used int
}

// New returns a proxy in front of the endpoint with that base URL. The seed
// decides where a Probability does.
func New(upstream string, seed int64) *Proxy {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.MaxIdleConnsPerHost = 100
	return &Proxy{
		upstream:  strings.TrimSuffix(upstream, "/"),
		transport: transport,
		random:    rand.New(rand.NewPCG(uint64(seed), 0)),
		requests:  map[string]int{},
		again:     map[string][]answer{},
	}
}

// Add puts a rule in force and returns the function that ends it. The first
// rule in force that matches decides, but for Latency, after which the search
// goes on.
func (p *Proxy) Add(rule Rule) (remove func()) {
	active := &activeRule{Rule: rule}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, active)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rules = slices.DeleteFunc(p.rules, func(r *activeRule) bool { return r == active })
	}
}

// Reset ends all rules and forgets the counts.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = nil
	clear(p.requests)
	clear(p.again)
}

// Requests is how many requests for the operation (as in Rule.Target) arrived,
// whatever became of them.
func (p *Proxy) Requests(target string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for full, count := range p.requests {
		if targetMatches(target, full) {
			n += count
		}
	}
	return n
}

// Counts is the number of requests by full target, such as
// "AmazonSQS.SendMessageBatch".
func (p *Proxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.requests)
}

func targetMatches(want, full string) bool {
	if want == "" || want == full {
		return true
	}
	service, operation, _ := strings.Cut(full, ".")
	return want == service || want == operation
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	x := &exchange{proxy: p, w: w, r: r, body: body, target: r.Header.Get("X-Amz-Target"), form: parseForm(r, body)}
	text := body
	if x.form != nil {
		x.target, text = targetOf(x.form), readable(body)
	}
	p.mu.Lock()
	p.requests[x.target]++
	p.mu.Unlock()
	for _, fault := range p.faults(x.target, text) {
		if fault.do(x) {
			return
		}
	}
	if p.repeat(x) {
		return
	}
	x.pass()
}

// faults returns what the request meets, up to the first that ends it.
func (p *Proxy) faults(target string, text []byte) []Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	var met []Fault
	for _, r := range p.rules {
		if r.Count > 0 && r.used >= r.Count || !targetMatches(r.Target, target) || !bytes.Contains(text, []byte(r.Containing)) {
			continue
		}
		r.matched++
		if r.matched <= r.Skip || r.Probability > 0 && p.random.Float64() >= r.Probability {
			continue
		}
		r.used++
		met = append(met, r.Fault)
		if !r.Fault.passes {
			break
		}
	}
	return met
}

// exchange is one request on its way.
type exchange struct {
	proxy  *Proxy
	w      http.ResponseWriter
	r      *http.Request
	body   []byte
	target string
	form   url.Values // nil unless it is of the query protocol
}

// answer is what upstream said.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// forward sends the request on with the given body.
func (x *exchange) forward(body []byte) (answer, error) {
	out, err := http.NewRequestWithContext(x.r.Context(), x.r.Method, x.proxy.upstream+x.r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	out.Header = x.r.Header.Clone()
	out.Header.Del("Accept-Encoding")
	out.Host = x.r.Host
	resp, err := x.proxy.transport.RoundTrip(out)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: read}, err
}

func (x *exchange) send(a answer) {
	h := x.w.Header()
	maps.Copy(h, a.header)
	h.Del("Content-Length")
	x.w.WriteHeader(a.status)
	_, _ = x.w.Write(a.body) // the client may be gone
}

// pass forwards and answers; an upstream that is away is a 502.
func (x *exchange) pass() {
	a, err := x.forward(x.body)
	if err != nil {
		http.Error(x.w, "awsproxy: "+err.Error(), http.StatusBadGateway)
		return
	}
	x.send(a)
}
