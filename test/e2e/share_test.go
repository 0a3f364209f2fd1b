package e2e

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/test/internal/programs"
)

// briefLease is for relays that are to lose it.
const briefLease = 2 * time.Second

// disturbance is what happens to one of several relays at a time.
type disturbance struct {
	at     time.Duration // after the start
	relay  int
	signal syscall.Signal // SIGKILL, and another one is started; SIGSTOP; SIGCONT
}

func (d disturbance) String() string {
	return fmt.Sprintf("%v: %v for relay %d", d.at, d.signal, d.relay)
}

// drawDisturbances kills each of the relays, or stops it for longer than its
// lease lasts.
func drawDisturbances(random *rand.Rand, relays int) (all []disturbance) {
	for i := range relays {
		at := time.Duration(random.Int64N(int64(2 * time.Second)))
		if random.IntN(2) == 0 {
			all = append(all, disturbance{at, i, syscall.SIGKILL})
			continue
		}
		on := at + briefLease + time.Duration(random.Int64N(int64(2*time.Second)))
		all = append(all, disturbance{at, i, syscall.SIGSTOP}, disturbance{on, i, syscall.SIGCONT})
	}
	slices.SortFunc(all, func(a, b disturbance) int { return cmp.Compare(a.at, b.at) })
	return all
}

// Four relays share the shards, and each is killed, or stopped past its lease,
// at random, under load. Nothing is lost, nothing is sent that was rolled back,
// and what a key's messages came in first is their order. In the end all four
// have their part.
func TestFourRelaysKilledAndStopped(t *testing.T) {
	t.Parallel()
	const keys, relays = 20, 4
	each := testsize.Pick(100, 500)
	seed := testsize.Seed(t)
	refused, stops := 0.0, 0
	for round := range testsize.Pick(2, 200) {
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) {
			random := testsize.Rand(seed, fmt.Sprint("disturbances ", round))
			s := newShop(t, seed, pgtest.Database(t))
			crew := make([]*process, relays)
			for i := range crew {
				crew[i] = s.relay("--lease", briefLease.String())
			}
			crew[0].holds("default", 1)
			load := s.newLoad(testsize.Rand(seed, fmt.Sprint("load ", round)))
			load.customers = keys
			placed := load.begin(keys * each)
			begun := time.Now()
			stopped := map[int]bool{}
			for _, d := range drawDisturbances(random, relays) {
				<-time.After(time.Until(begun.Add(d.at)))
				t.Logf("%v; %d messages have arrived", d, s.broker.count(s.queue))
				if d.signal == syscall.SIGKILL {
					crew[d.relay].Kill()
					crew[d.relay] = s.relay("--lease", briefLease.String())
					continue
				}
				crew[d.relay].Signal(d.signal)
				stopped[d.relay] = true
			}
			placed()
			s.awaitArrivals(s.queue, programs.Patience)
			t.Logf("%d repetitions", s.checkArrivals(s.queue))
			for i, p := range crew {
				p.holds("default", shards/relays)
				if stopped[i] {
					n, err := p.metric(`postrider_fenced_calls_total{route="default"}`)
					if err != nil {
						t.Error(err)
					}
					refused, stops = refused+n, stops+1
				}
			}
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("%v stale writes were refused, of relays that were stopped %d times", refused, stops)
	if testsize.Full() && refused == 0 {
		t.Error("no refused write was counted")
	}
}

// Three relays are replaced one after the other under load, as in a deployment.
// Each that stops leaves its shards to the others at once, though its leases
// would last much longer, and nothing is sent twice.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	seed := testsize.Seed(t)
	s := newShop(t, seed, pgtest.Database(t))
	crew := []*process{s.relay("--lease", "60s"), s.relay("--lease", "60s")}
	for _, p := range crew {
		p.holds("default", shards/2)
	}
	load := s.newLoad(testsize.Rand(seed, "load"))
	for i := range testsize.Pick(3, 30) {
		placed := load.begin(200)
		if code := crew[0].Terminate(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		ended := time.Now()
		crew[1].holds("default", shards)
		t.Logf("restart %d: all taken over %v after the end", i, time.Since(ended))
		if took := time.Since(ended); took > time.Duration(testsize.Pick(15, 2))*time.Second {
			t.Errorf("taken over %v after a clean stop", took)
		}
		crew = []*process{crew[1], s.relay("--lease", "60s")}
		for _, p := range crew {
			p.holds("default", shards/2)
		}
		placed()
		s.awaitArrivals(s.queue, programs.Patience)
	}
	for _, p := range crew {
		if n, err := p.metric(`postrider_leases_lost_total{route="default"}`); err != nil || n != 0 {
			t.Errorf("%v leases were lost (%v)", n, err)
		}
		if code := p.Terminate(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	if n := s.checkArrivals(s.queue); n != 0 {
		t.Errorf("%d messages were sent again", n)
	}
}

// Somebody deletes the rows that tell relays of each other, again and again.
// Messages flow all the same, none twice, and the relays find back together.
func TestRosterThatIsPruned(t *testing.T) {
	t.Parallel()
	seed := testsize.Seed(t)
	s := newShop(t, seed, pgtest.Database(t))
	crew := []*process{s.relay(), s.relay()}
	load := s.newLoad(testsize.Rand(seed, "load"))
	for range testsize.Pick(5, 50) {
		placed := load.begin(100)
		s.exec(`DELETE FROM postrider.member`)
		placed()
		s.exec(`UPDATE postrider.member SET routes = '{}', expires = '-infinity'`)
	}
	s.awaitArrivals(s.queue, programs.Patience)
	for _, p := range crew {
		p.holds("default", shards/2)
	}
	if n := s.checkArrivals(s.queue); n != 0 {
		t.Errorf("%d messages were sent again", n)
	}
}

// A route that an operator pauses sends nothing, and is not called unwell; when
// it is resumed everything goes on, and nothing was sent twice.
func TestPausedRoute(t *testing.T) {
	t.Parallel()
	seed := testsize.Seed(t)
	s := newShop(t, seed, pgtest.Database(t))
	crew := []*process{s.relay(), s.relay()}
	for _, p := range crew {
		p.holds("default", shards/2)
	}
	load := s.newLoad(testsize.Rand(seed, "load"))
	placed := load.begin(300)
	await(t, programs.Patience, &s.broker.changed, "messages flow", func() string { return unless(s.broker.count(s.queue) > 50, "too few") })
	s.exec(`INSERT INTO postrider.route (name, paused_at, paused_by) VALUES ('default', now(), 'the test')`)
	for _, p := range crew {
		p.holds("default", 0)
	}
	placed()
	load.placeAll(100)
	before := s.broker.count(s.queue)
	if _, ids := s.committed(); before >= len(ids) {
		t.Fatal("everything was sent before the pause, so this test tests nothing")
	}
	late := s.relay() // also one that starts now
	late.Said("route paused by an operator")
	for _, p := range append(crew, late) {
		p.ready()
	}
	if after := s.broker.count(s.queue); after != before {
		t.Errorf("%d messages were sent while the route was paused", after-before)
	}
	s.exec(`UPDATE postrider.route SET paused_at = NULL`)
	s.awaitArrivals(s.queue, programs.Patience)
	if n := s.checkArrivals(s.queue); n != 0 {
		t.Errorf("%d messages were sent again", n)
	}
}

// ready waits until the relay says that it is ready.
func (p *process) ready() {
	p.t.Helper()
	await(p.t, programs.Patience, &p.Output.News, "the relay is ready", func() string {
		response, err := monitorClient.Get("http://" + p.Said(" http=") + "/readyz")
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		return unless(response.StatusCode == http.StatusOK, "%s", response.Status)
	})
}
