package page

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

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
