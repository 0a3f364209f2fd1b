package trouble

import (
	"net/url"
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/test/internal/dbgate"
)

// What is between relay and server fails; the server is well, and applications
// reach it.
func TestNetwork(t *testing.T) {
	everyVersion(t, func(t *testing.T, version string) {
		var proxy *toxiproxy.Proxy
		w := newWorld(t, pgtest.ServerOf(t, version), func(url string) string {
			proxy = newProxy(t, url)
			return dbgate.At(t, url, proxy.Listen)
		})
		w.start(w.gate.URL)
		w.suffer([]trouble{
			{"accepts and answers nothing", func(w *world) func() {
				const hole = `{"name": "hole", "type": "timeout", "stream": "downstream", "attributes": {"timeout": 0}}`
				_, err := proxy.Toxics.AddToxicJson(strings.NewReader(hole))
				w.must(err)
				return func() { w.must(proxy.Toxics.RemoveToxic(w.t.Context(), "hole")) }
			}, "the database does not answer"},
			{"refuses", func(w *world) func() {
				proxy.Stop()
				return func() { w.must(proxy.Start()) }
			}, "the database does not answer"},
			// An address has moved: nobody says that the old connections are dead.
			{"connections are dead", func(w *world) func() { w.gate.Deaden(); return nil }, ""},
		})
	})
}

func newProxy(t *testing.T, database string) *toxiproxy.Proxy {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	proxy := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "database", "127.0.0.1:0", u.Host)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	return proxy
}
