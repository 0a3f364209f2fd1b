package page

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

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
