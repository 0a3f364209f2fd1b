package trouble

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/test/internal/programs"
)

var (
	// length is how long a trouble lasts.
	length = time.Duration(testsize.Pick(3, 150)) * time.Second
	// recovery is how soon messages flow after its end: 10 s, and what a busy
	// machine needs. Only a soak has the machine for itself.
	recovery = time.Duration(testsize.Pick(60, 12)) * time.Second
)

// trouble is one way in which a database fails its users.
type trouble struct {
	name string
	// begin begins it. It lasts until end is called; end is nil if it is over
	// as soon as it has begun.
	begin func(w *world) (end func())
	// says is what readiness has to say meanwhile, as a regular expression.
	// Empty: messages may flow well enough.
	says string
}

// suffer makes the relay live through each of the troubles, one after the other.
func (w *world) suffer(troubles []trouble) {
	w.t.Helper()
	outer := w.t
	defer func() { w.t = outer }()
	for _, trouble := range troubles {
		ok := outer.Run(trouble.name, func(t *testing.T) {
			w.t = t
			w.live(trouble)
		})
		if !ok {
			return // what comes after it would say little
		}
	}
	w.t = outer
	w.writer.stop()
	committed := w.arrive(programs.Patience)
	repeated := w.queue.check(w.t, committed, nil)
	w.t.Logf("%d messages, %d of them arrived more than once", len(committed), len(repeated))
	w.end()
}

// live lives through one trouble.
func (w *world) live(trouble trouble) {
	w.t.Helper()
	connects, cpu, lines, began := w.gate.Connects(), w.cpu(), w.relay.Output.Lines(), time.Now()
	end := trouble.begin(w)
	if trouble.says != "" {
		says := regexp.MustCompile(trouble.says)
		programs.Eventually(w.t, "readiness tells of it", nil, func() error {
			select { // a readiness probe is no hot loop either
			case <-time.After(500 * time.Millisecond):
			case <-w.t.Context().Done():
				return context.Cause(w.t.Context())
			}
			text := w.health.ready()
			return programs.Unless(text[:min(4, len(text))] == "503 " && says.MatchString(text), "it says %s", text)
		})
	}
	if end != nil {
		<-time.After(time.Until(began.Add(length)))
		w.bounded(time.Since(began), w.gate.Connects()-connects, w.cpu()-cpu, w.relay.Output.Lines()-lines)
		end()
	}
	ended := time.Now()
	w.flows(recovery)
	w.t.Logf("messages flow %v after its end", time.Since(ended).Round(10*time.Millisecond))
	if end == nil {
		w.bounded(time.Since(began), w.gate.Connects()-connects, w.cpu()-cpu, w.relay.Output.Lines()-lines)
	}
}

// bounded checks what the relay did for so long.
func (w *world) bounded(took time.Duration, connects int64, cpu time.Duration, lines int64) {
	w.t.Helper()
	w.t.Logf("in %v: %d connects, %v of processor time, %d lines in the log", took.Round(time.Millisecond), connects, cpu, lines)
	// Every connection that was open is made anew at most once; then who asks
	// for leases and who looks for other relays wait between 0.1 and 4 s, give or
	// take a fifth, and readiness asks once in two seconds.
	if most := 40 + int64(took/time.Second)*2; connects > most {
		w.t.Errorf("%d connects, want at most %d", connects, most)
	}
	// The race detector makes everything slower by ten times and more.
	if most := took/2 + time.Second; cpu > most {
		w.t.Errorf("%v of processor time, want at most %v", cpu, most)
	}
	if most := 60 + int64(took/time.Second)*4; lines > most {
		w.t.Errorf("%d lines in the log, want at most %d", lines, most)
	}
}
