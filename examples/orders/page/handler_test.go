package page

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// stage is a Source, and what else the page needs.
type stage struct {
	mu      sync.Mutex
	view    View
	hops    []Hop
	changed chan struct{}
	placed  []string
}

func newStage() *stage {
	s := &stage{changed: make(chan struct{})}
	s.view = View{Database: "SQLite", Orders: 1, Relay: Relay{PID: 7, Ready: true}}
	for _, name := range []string{"fulfilment", "search"} {
		s.view.Services = append(s.view.Services, Service{Name: name, Title: name, Queue: name, Store: "store", Unit: "units", One: "unit", Total: 1})
	}
	return s
}

func (s *stage) View() View { s.mu.Lock(); defer s.mu.Unlock(); return s.view }

func (s *stage) Hops(after int) ([]Hop, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hops[after:], len(s.hops)
}

func (s *stage) Changed() <-chan struct{} { s.mu.Lock(); defer s.mu.Unlock(); return s.changed }

func (s *stage) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stage) place(_ context.Context, n int, customer string, amountCents int64) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch customer {
	case "":
		return "", &Refusal{Detail: "customerId must not be <empty>"}
	case "broken":
		return "", errors.New("secret detail")
	}
	s.placed = append(s.placed, customer)
	return "id-" + customer, nil
}

// serve runs a page until the test ends.
func serve(t *testing.T, s *stage, experiments ...Experiment) *httptest.Server {
	t.Helper()
	p, err := New(Config{
		Source: s, Place: s.place, Experiments: experiments,
		Search: func(_ context.Context, query string) ([]Hit, int, error) {
			return []Hit{{ID: "0123456789abcdef", Customer: query, AmountCents: 1}}, 12, nil
		},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(p.Handler())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return server
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	return do(t, http.MethodGet, url, nil, nil)
}

func do(t *testing.T, method, url string, form url.Values, header map[string]string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func TestEverythingIsSafeToShow(t *testing.T) {
	s := newStage()
	evil := `<script>alert("x")</script>`
	s.view.Latest = []Order{{ID: evil, Customer: evil, Services: []Passing{{}, {}}}}
	s.view.Mail = &Mail{Total: 1, Latest: []Letter{{To: evil, Subject: evil, Text: evil}}}
	s.view.Services[0].Queue = evil
	server := serve(t, s)
	for _, path := range []string{"/", "/?q=" + url.QueryEscape(evil), "/find?q=" + url.QueryEscape(evil), "/licences"} {
		response, body := get(t, server.URL+path)
		if response.StatusCode != http.StatusOK || strings.Contains(body, "<script>alert") {
			t.Errorf("%s: %d\n%s", path, response.StatusCode, body)
		}
		if strings.Contains(body, " style=") || strings.Contains(body, "<style") || strings.Contains(body, " onclick=") {
			t.Errorf("%s has what its policy forbids", path)
		}
		policy := response.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", path, policy)
		}
	}
}

// Every asset that the page names is there, with a type, and may be kept.
func TestAssets(t *testing.T) {
	server := serve(t, newStage())
	_, body := get(t, server.URL+"/")
	for name, kind := range map[string]string{
		"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml",
		"vendor/htmx.min.js": "text/javascript", "vendor/htmx-sse.min.js": "text/javascript", "vendor/inter-latin.woff2": "font/woff2",
	} {
		path, err := asset(name)
		if err != nil {
			t.Fatal(err)
		}
		response, _ := get(t, server.URL+path)
		if response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), kind) || !strings.Contains(response.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", path, response.StatusCode, response.Header)
		}
		if !strings.Contains(body, path) {
			t.Errorf("the page does not use %s", path)
		}
	}
	for _, path := range []string{"/assets/old/page.css", "/assets/" + assetVersion + "/none", "/assets/" + assetVersion + "/../page.go", "/nothing"} {
		if response, _ := get(t, server.URL+path); response.StatusCode == http.StatusOK {
			t.Errorf("%s: %d", path, response.StatusCode)
		}
	}
	for _, l := range licences() {
		if len(l.Text) < 500 {
			t.Errorf("%s has no licence", l.Name)
		}
	}
}

func TestPlacing(t *testing.T) {
	s := newStage()
	server := serve(t, s)
	form := func(customer, amount, orders string) url.Values {
		return url.Values{"customer": {customer}, "amount": {amount}, "orders": {orders}}
	}
	for name, c := range map[string]struct {
		form   url.Values
		status int
		want   string
	}{
		"one":             {form("ada", "5", "1"), 200, "id-ada"},
		"many":            {form("ada", "5", "100"), 200, "100 orders placed"},
		"too many":        {form("ada", "5", "101"), 400, "from 1 to 100"},
		"none":            {form("ada", "5", "0"), 400, "from 1 to 100"},
		"no amount":       {form("ada", "x", "1"), 400, "must be a number"},
		"refused":         {form("", "5", "1"), 400, "customerId must not be &lt;empty&gt;"},
		"broken":          {form("broken", "5", "1"), 502, "the log says why"},
		"too large":       {form(strings.Repeat("x", maxForm), "5", "1"), 400, "cannot be read"},
		"nothing is sent": {url.Values{}, 400, "from 1 to 100"},
	} {
		response, body := do(t, http.MethodPost, server.URL+"/place", c.form, map[string]string{"HX-Request": "true"})
		if response.StatusCode != c.status || !strings.Contains(body, c.want) || strings.Contains(body, "secret") || strings.Contains(body, "<html") {
			t.Errorf("%s: %d\n%s", name, response.StatusCode, body)
		}
	}
	response, body := do(t, http.MethodPost, server.URL+"/place", form("grace", "x", "1"), nil)
	if response.StatusCode != http.StatusBadRequest || !strings.Contains(body, "<html") || !strings.Contains(body, `value="grace"`) {
		t.Errorf("without scripts: %d\n%s", response.StatusCode, body)
	}
	if response, _ := get(t, server.URL+"/place"); response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", response.StatusCode)
	}
}

// What another site's page sends is refused, and does nothing.
func TestOtherSites(t *testing.T) {
	s := newStage()
	server := serve(t, s, Experiment{Name: "x", Run: func(context.Context, func(string)) (string, error) {
		t.Error("it was done")
		return "", nil
	}})
	for _, header := range []map[string]string{
		{"Origin": "http://evil.example"},
		{"Origin": "null"},
		{"Sec-Fetch-Site": "cross-site"},
		{"Sec-Fetch-Site": "same-site", "Origin": server.URL},
	} {
		for _, path := range []string{"/place", "/experiments/x"} {
			response, _ := do(t, http.MethodPost, server.URL+path, url.Values{"customer": {"evil"}, "amount": {"5"}, "orders": {"1"}}, header)
			if response.StatusCode != http.StatusForbidden {
				t.Errorf("%s with %v: %d", path, header, response.StatusCode)
			}
		}
	}
	if len(s.placed) != 0 {
		t.Errorf("placed %v", s.placed)
	}
	own := map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": server.URL}
	if response, _ := do(t, http.MethodPost, server.URL+"/place", url.Values{"customer": {"own"}, "amount": {"5"}, "orders": {"1"}}, own); response.StatusCode != http.StatusOK {
		t.Errorf("its own: %d", response.StatusCode)
	}
}

// stream reads events of one viewer.
type stream struct {
	t    *testing.T
	body io.ReadCloser
	scan *bufio.Scanner
}

func watch(t *testing.T, server *httptest.Server) *stream {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d, %v", response.StatusCode, response.Header)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	s := &stream{t: t, body: response.Body, scan: bufio.NewScanner(response.Body)}
	s.scan.Buffer(nil, 1<<20)
	return s
}

// await reads until an event of that name whose data contains the text.
func (s *stream) await(name, text string) {
	s.t.Helper()
	event, data := "", ""
	for s.scan.Scan() {
		line := s.scan.Text()
		switch {
		case strings.HasPrefix(line, "event: "):
			event, data = line[7:], ""
		case strings.HasPrefix(line, "data: "):
			data += line[6:] + "\n"
		case line == "" && event == name && strings.Contains(data, text):
			return
		}
	}
	s.t.Fatalf("the stream ended without %s with %q: %v", name, text, s.scan.Err())
}

// All viewers see the same, those who come later too.
func TestStream(t *testing.T) {
	s := newStage()
	server := serve(t, s)
	first := watch(t, server)
	first.await("figures", `"verdict":"Nothing is lost: 1 order in all two services, each once."`)
	s.change(func() {
		s.view.Orders = 2
		s.view.Complete = 1
		s.view.Latest = []Order{{ID: "an-order", Customer: "a\r\ndata: b", Services: []Passing{{}, {}}}}
		s.hops = append(s.hops, Hop{"an-order", "commit"})
	})
	first.await("figures", `"verdict":"1 of 2 orders have reached all two services; the rest is on its way."`)
	first.await("latest", "an-order")
	second := watch(t, server)
	second.await("figures", `"placed":"2"`)
	second.await("latest", "an-order")
	s.change(func() { s.hops = append(s.hops, Hop{"an-order", "take"}) })
	first.await("hops", `[{"m":"an-order","h":"take"}]`)
	second.await("hops", `[{"m":"an-order","h":"take"}]`)
}

func TestTooManyViewers(t *testing.T) {
	server := serve(t, newStage())
	var last *stream
	for range MaxViewers {
		last = watch(t, server)
	}
	response, _ := get(t, server.URL+"/events")
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("one more: %d", response.StatusCode)
	}
	_ = last.body.Close()
	for { // its place is free as soon as the server has noticed
		response, err := http.Get(server.URL + "/events")
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Who does not read is dropped, and holds nobody up.
func TestSlowViewer(t *testing.T) {
	s := newStage()
	server := serve(t, s)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /events HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	h := newHub()
	slow, quick := h.join(), h.join()
	for i := range 2 * backlog {
		h.publish([]happening{{"figures", strings.Repeat("x", i)}}, nil, "")
		for len(quick.frames) > 0 {
			<-quick.frames
		}
	}
	if h.count() != 1 {
		t.Errorf("%d viewers are left", h.count())
	}
	for range slow.frames {
		// what it had, up to the end
	}
	s.change(func() { s.view.Orders = 3 })
	watch(t, server).await("figures", `"placed":"3"`)
}

func TestExperiments(t *testing.T) {
	release, begun := make(chan struct{}), make(chan struct{})
	server := serve(t, newStage(),
		Experiment{Name: "good", Title: "Good", Run: func(_ context.Context, say func(string)) (string, error) {
			say("half way")
			close(begun)
			<-release
			return "as <expected>", nil
		}},
		Experiment{Name: "bad", Title: "Bad", Run: func(context.Context, func(string)) (string, error) { return "", errors.New("it broke") }},
	)
	viewer := watch(t, server)
	htmx := map[string]string{"HX-Request": "true"}
	post := func(name string, header map[string]string) (int, string) {
		response, body := do(t, http.MethodPost, server.URL+"/experiments/"+name, url.Values{}, header)
		return response.StatusCode, body
	}
	if status, _ := post("none", htmx); status != http.StatusNotFound {
		t.Errorf("one that there is not: %d", status)
	}
	if status, _ := post("good", htmx); status != http.StatusNoContent {
		t.Errorf("status %d", status)
	}
	<-begun
	viewer.await("experiment-good", "half way")
	if status, body := post("bad", htmx); status != http.StatusConflict || !strings.Contains(body, "“Good” is running") {
		t.Errorf("a second one: %d %s", status, body)
	}
	close(release)
	viewer.await("experiment-good", "as &lt;expected&gt;")
	viewer.await("announcement", "Good: as &lt;expected&gt;")
	if status, _ := post("bad", nil); status != http.StatusSeeOther {
		t.Errorf("without scripts: %d", status)
	}
	viewer.await("experiment-bad", "Not as expected: it broke.")
}

// A stop lets an experiment put back what it broke, and ends the streams.
func TestStopDuringAnExperiment(t *testing.T) {
	s := newStage()
	restored := false
	begun, mended := make(chan struct{}), make(chan struct{})
	p, err := New(Config{Source: s, Place: s.place, Experiments: []Experiment{{Name: "x", Run: func(ctx context.Context, _ func(string)) (string, error) {
		close(begun)
		<-ctx.Done()
		<-mended
		restored = true
		return "", ctx.Err()
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(p.Handler())
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	viewer := watch(t, server)
	do(t, http.MethodPost, server.URL+"/experiments/x", url.Values{}, nil)
	<-begun
	cancel()
	select {
	case <-done:
		t.Error("it did not wait for the experiment")
	case <-time.After(50 * time.Millisecond):
	}
	close(mended)
	if err := <-done; err != nil || !restored {
		t.Errorf("restored %v, error %v", restored, err)
	}
	for viewer.scan.Scan() {
		// until the stream ends
	}
	if response, _ := get(t, server.URL+"/events"); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("after the stop: %d", response.StatusCode)
	}
	if response, body := do(t, http.MethodPost, server.URL+"/experiments/x", url.Values{}, nil); response.StatusCode != http.StatusConflict || !strings.Contains(body, "stopping") {
		t.Errorf("after the stop: %d %s", response.StatusCode, body)
	}
}

func TestConfigReportsEverything(t *testing.T) {
	_, err := New(Config{})
	if err == nil || !strings.Contains(err.Error(), "Source") || !strings.Contains(err.Error(), "Place") {
		t.Errorf("error %v", err)
	}
}
