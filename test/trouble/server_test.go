package trouble

import (
	"testing"

	"github.com/postrider/postrider/internal/pgtest"
)

// The server goes and comes back in several ways.
func TestServer(t *testing.T) {
	everyVersion(t, func(t *testing.T, version string) {
		w := newWorld(t, pgtest.ServerOf(t, version), nil)
		w.start(w.gate.URL)
		w.suffer([]trouble{
			{"gone", func(w *world) func() {
				w.must(w.server.Stop(w.t.Context()))
				return w.back
			}, "the database does not answer"},
			{"restarts", func(w *world) func() { w.back(); return nil }, ""},
			{"immediate shutdown", func(w *world) func() {
				w.must(w.server.Immediate(w.t.Context()))
				w.back()
				return nil
			}, ""},
			{"killed", func(w *world) func() {
				w.must(w.server.Kill())
				return w.back
			}, "the database does not answer"},
		})
	})
}

func (w *world) back() {
	w.t.Helper()
	w.must(w.server.Restart(w.t.Context()))
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}
