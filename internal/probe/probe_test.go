package probe

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestGet(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/well":
		case "/elsewhere":
			http.Redirect(w, r, "/well", http.StatusFound)
		default:
			http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	address := server.Listener.Addr().String()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	for _, where := range []string{address, ":" + port, "0.0.0.0:" + port, "[::]:" + port} {
		if err := Get(t.Context(), where, "/well"); err != nil {
			t.Errorf("at %s: %v", where, err)
		}
	}
	for path, want := range map[string]string{"/ill": "the database does not answer", "/elsewhere": "302"} {
		if err := Get(t.Context(), address, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that says %q", path, err, want)
		}
	}
	if err := Get(t.Context(), "localhost", "/"); err == nil || !strings.Contains(err.Error(), "host:port") {
		t.Errorf("without a port: %v", err)
	}
	server.Close()
	if err := Get(t.Context(), address, "/well"); err == nil {
		t.Error("a server that is not there is well")
	}
}
