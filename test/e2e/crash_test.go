package e2e

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/pgserver"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/test/internal/dbgate"
	"github.com/postrider/postrider/test/internal/programs"
)

// recovery is how soon a relay must deliver again after its database is back.
// Only a soak has the machine for itself.
var recovery = time.Duration(testsize.Pick(60, 15)) * time.Second

// PostgreSQL crashes under the relay and is away for a while.
func TestDatabaseCrash(t *testing.T) {
	t.Parallel()
	away := time.Duration(testsize.Pick(5, 30)) * time.Second
	seed := testsize.Seed(t)
	server := pgtest.Server(t)
	s := newShop(t, seed, server.URL("postgres"))
	gate := dbgate.New(t, s.db)
	relay := s.relay("--db", gate.URL)
	s.consumer()
	load := s.newLoad(testsize.Rand(seed, "load"))
	load.tolerant = true // orders fail while the database is away
	for range testsize.Pick(1, 5) {
		before := s.broker.count(s.queue)
		placed := load.begin(400)
		await(t, programs.Patience, &s.broker.changed, "messages flow", func() string { return unless(s.broker.count(s.queue) > before+100, "too few") })
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		down, connects := time.Now(), gate.Connects()
		<-time.After(time.Second)
		first := gate.Connects() - connects
		placed()
		<-time.After(time.Until(down.Add(away)))
		later := gate.Connects() - connects - first
		t.Logf("the database was away: %d connects in the first second, %d later", first, later)
		// What was under way notices, and gives its lease up. Then one asks at a
		// time for a lease, and one for the other relays, with waits that grow from
		// 0.1 s to 4 s, give or take a fifth.
		if most := int64(8 * shards); first > most {
			t.Errorf("%d connects in the first second, want at most %d", first, most)
		}
		if most := int64(2 * (6 + away/(3*time.Second))); later > most {
			t.Errorf("%d connects later, want at most %d", later, most)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		back := time.Now()
		load.placeAll(100)
		s.awaitArrivals(s.queue, recovery-time.Since(back))
		t.Logf("all arrived %v after the database was back", time.Since(back))
	}
	s.awaitFulfilments()
	t.Logf("%d repetitions", s.checkArrivals(s.queue))
	s.checkFulfilments()
	if code := relay.Terminate(); code != 0 && code != 4 {
		t.Errorf("exit code %d", code)
	}
}

// PostgreSQL crashes and loses commits whose messages were sent already. The
// numbers that these had are given out again.
func TestDatabaseLosesCommits(t *testing.T) {
	t.Parallel()
	seed := testsize.Seed(t)
	server := pgtest.Server(t, "synchronous_commit=off", "bgwriter_lru_maxpages=0")
	s := newShop(t, seed, server.URL("postgres"))
	s.relay()
	load := s.newLoad(testsize.Rand(seed, "load"))
	load.placeAll(100)
	s.awaitArrivals(s.queue, programs.Patience)
	for round := range testsize.Pick(3, 20) {
		lost := 0
		for try := 0; lost == 0; try++ {
			if try == 5 {
				t.Fatal("no crash loses a commit that was read, so this test tests nothing")
			}
			s.stopWALWriter(server)
			load.placeAll(50)
			s.awaitArrivals(s.queue, programs.Patience)
			before, _ := s.committed()
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			load.ready()
			after, _ := s.committed()
			lost = len(before) - len(after)
		}
		_, survivors := s.committed()
		back := time.Now()
		load.placeAll(200)
		s.awaitArrivals(s.queue, recovery)
		t.Logf("round %d: %d commits were lost; all later ones arrived %v after the restart", round, lost, time.Since(back))
		s.checkLater(survivors)
	}
}

// stopWALWriter keeps commits that do not wait for the disk from getting there.
// Only a crash ends that.
func (s *shop) stopWALWriter(server *pgserver.Server) {
	s.t.Helper()
	if server.PID() == 0 {
		return // in a container; some commits are lost there too
	}
	var pid int
	if err := s.data.DB.QueryRowContext(s.t.Context(), "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'").Scan(&pid); err != nil {
		s.t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
}

// ready waits until the order service has its database again.
func (l *load) ready() {
	l.shop.t.Helper()
	await(l.shop.t, programs.Patience, &l.shop.broker.changed, "the order service has its database", func() string {
		var n int
		if err := l.shop.data.DB.QueryRowContext(l.shop.t.Context(), "SELECT 1").Scan(&n); err != nil {
			return err.Error()
		}
		return ""
	})
}

// checkLater checks that the orders besides the given ones arrived in the order
// of their commits.
func (s *shop) checkLater(than []string) {
	s.t.Helper()
	orders, _ := s.committed()
	for _, id := range than {
		delete(orders, id)
	}
	last, seen := map[string]int{}, map[string]bool{}
	for _, a := range s.broker.taken(s.queue) {
		if _, ok := orders[a.order]; !ok || seen[a.id] {
			continue
		}
		seen[a.id] = true
		turn, err := strconv.Atoi(a.turn)
		if before, ok := last[a.key]; err != nil || ok && turn != before+1 {
			s.t.Errorf("%s's order %s came after %d", a.key, a.turn, before)
		}
		last[a.key] = turn
	}
	if len(seen) != len(orders) {
		s.t.Errorf("%d messages arrived for %d orders", len(seen), len(orders))
	}
}
