package years

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/pgserver"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgstore"
	"github.com/postrider/postrider/test/internal/load"
)

// EnvDuration is for how long TestSoak runs, as a duration of Go. Unset: a short
// while, or half an hour at full size.
const EnvDuration = "POSTRIDER_TEST_DURATION"

func soakDuration(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv(EnvDuration)
	if text == "" {
		return pick(15*time.Second, 30*time.Minute)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", EnvDuration, err)
	}
	return d
}

// soak is three relays, a load, and whatever happens to them.
type soak struct {
	*world
	server  *pgserver.Server
	counter *load.Counter
	random  *rand.Rand
	sink    string
	relays  []*relay
	lent    context.CancelFunc // ends what a long transaction does
	faults  map[string]int
	samples []sample
	bulks   int
}

// sample is what the whole took at one time.
type sample struct {
	at          time.Duration
	memory      int // the largest relay, in bytes
	connections int // of relays
	tables, wal int // bytes
	rows        int
}

// For as long as one likes, a random load and random faults: relays killed,
// stopped past their lease, ended and started; the broker away; the database's
// sessions ended, the server stopped, crashed and started again; a snapshot held;
// a transaction with many messages; a route paused. Nothing is lost, first
// deliveries keep each key's order, and memory, connections, tables and WAL stay
// within bounds.
func TestSoak(t *testing.T) {
	span := soakDuration(t)
	seed := testsize.Seed(t)
	server, err := pgserver.Start(t.Context(), pgserver.Options{Settings: map[string]string{
		"max_wal_size": "64MB", "checkpoint_timeout": "30s", "autovacuum_naptime": "5s", "max_connections": "60",
	}, Version: pgserver.VersionForTests()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{t: t, url: server.URL("postgres")}
	w.pool = w.connect("")
	if _, err := pgstore.Migrate(t.Context(), w.pool, pgstore.Options{}); err != nil {
		t.Fatal(err)
	}
	s := &soak{world: w, server: server, counter: load.NewCounter(40), random: testsize.Rand(seed, "faults"), faults: map[string]int{}}
	var stopSink func()
	if s.sink, stopSink, err = load.Serve(s.counter); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stopSink)
	for range 3 {
		s.relays = append(s.relays, s.start())
	}
	l := &load.Load{Pool: w.connect(""), Rate: testsize.Pick(200, 1000), Writers: 6, Size: 300, Name: "load", Tolerant: true}
	stop := background(t, l)
	begun := time.Now()
	for next := begun; time.Since(begun) < span; {
		s.fault()
		if time.Now().After(next) {
			s.sample(time.Since(begun))
			next = time.Now().Add(span / 60)
		}
		time.Sleep(time.Duration(s.random.IntN(3000)) * time.Millisecond)
	}
	if s.lent != nil {
		s.lent()
	}
	committed := stop()
	s.sample(time.Since(begun))
	s.drain(l)
	report := s.counter.Report()
	if report.Disorder > 0 || report.Wrong > 0 {
		t.Errorf("%d messages came out of order, %d were none of ours", report.Disorder, report.Wrong)
	}
	s.log(span, committed, report)
}

func (s *soak) start() *relay {
	s.t.Helper()
	return s.relay("-sent", "5s", "-sink", s.sink, "-lease", "3s", "-retry", "0")
}

// drain waits until everything has come and was deleted, and stops the relays.
func (s *soak) drain(l *load.Load) {
	s.t.Helper()
	s.counter.SetDead(false)
	for _, r := range s.relays {
		_ = r.cmd.Process.Signal(syscall.SIGCONT)
	}
	eventually(s.t, "resume", func() error {
		_, err := s.pool.Exec(s.t.Context(), `DELETE FROM postrider.route`)
		return err
	})
	eventually(s.t, "send everything", func() error {
		if lost := l.Lost(s.counter); len(lost) > 0 {
			slices.Sort(lost)
			return fmt.Errorf("%d messages did not come, such as %s", len(lost), lost[0])
		}
		return nil
	})
	eventually(s.t, "delete what was sent", func() error {
		if n := s.rows(); n > 0 {
			return fmt.Errorf("%d rows are left", n)
		}
		return nil
	})
	s.sample(0)
	for _, r := range s.relays {
		s.end(r)
	}
}

// end stops a relay. Without the database it may not be able to record
// everything, nor what it had in hand when it lost a lease that it did not get
// back since.
func (s *soak) end(r *relay) {
	s.t.Helper()
	r.signal(syscall.SIGTERM)
	<-r.ended
	if code := r.cmd.ProcessState.ExitCode(); code != 0 && code != 4 {
		s.t.Errorf("a relay ended with %d", code)
	}
}

// fault has something happen.
func (s *soak) fault() {
	s.t.Helper()
	at := s.random.IntN(len(s.relays))
	r := s.relays[at]
	pause := func(longest time.Duration) { time.Sleep(time.Duration(s.random.Int64N(int64(longest)))) }
	switch kind := s.random.IntN(20); kind {
	case 0, 1:
		s.faults["relays killed"]++
		_ = r.cmd.Process.Kill()
		<-r.ended
		s.relays[at] = s.start()
	case 2, 3:
		s.faults["relays stopped past their lease"]++
		r.signal(syscall.SIGSTOP)
		pause(6 * time.Second)
		r.signal(syscall.SIGCONT)
	case 4, 5:
		s.faults["relays ended cleanly"]++
		s.end(r)
		s.relays[at] = s.start()
	case 6, 7:
		s.faults["times the broker was away"]++
		s.counter.SetDead(true)
		pause(4 * time.Second)
		s.counter.SetDead(false)
	case 8, 9:
		s.faults["times all sessions were ended"]++
		_, _ = s.pool.Exec(s.t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
	case 10:
		s.faults["server stops"]++
		s.restart(s.server.Stop)
	case 11:
		s.faults["server crashes"]++
		s.restart(s.server.Immediate)
	case 12, 13:
		if s.lent != nil {
			s.lent()
		}
		s.faults["snapshots held"]++
		s.lent = s.holdSnapshot()
	case 14, 15:
		s.faults["transactions with 20,000 messages"]++
		s.bulk()
	case 16, 17:
		s.faults["pauses of the route"]++
		_, _ = s.pool.Exec(s.t.Context(), `INSERT INTO postrider.route (name, paused_at) VALUES ('count', now()) ON CONFLICT DO NOTHING`)
		pause(3 * time.Second)
		eventually(s.t, "resume", func() error {
			_, err := s.pool.Exec(s.t.Context(), `DELETE FROM postrider.route`)
			return err
		})
	}
}

func (s *soak) restart(stop func(context.Context) error) {
	s.t.Helper()
	if err := stop(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	time.Sleep(time.Duration(s.random.IntN(3000)) * time.Millisecond)
	if err := s.server.Restart(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// holdSnapshot keeps a snapshot until it is cancelled, or the server goes.
func (s *soak) holdSnapshot() context.CancelFunc {
	ctx, cancel := context.WithCancel(s.t.Context())
	go func() {
		_ = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SELECT count(*) FROM postrider.cursor`); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
	}()
	return cancel
}

// bulk enqueues many messages, whose counting is not this test's, and rolls some
// of them back.
func (s *soak) bulk() {
	const n, page = 20_000, 1000
	enqueue := outbox.NewWriter(pgstore.Pgx{})
	roll := s.random.IntN(2) == 0
	s.bulks++
	_ = pgx.BeginFunc(s.t.Context(), s.pool, func(tx pgx.Tx) error {
		for i := range n / page {
			msgs := make([]outbox.Message, page)
			for key := range msgs {
				msgs[key] = load.Message(fmt.Sprintf("bulk %d/%d", s.bulks, key), i+1, time.Time{}, 300)
			}
			if err := enqueue.Enqueue(s.t.Context(), tx, msgs...); err != nil {
				return err
			}
		}
		if roll {
			return pgx.ErrTxClosed
		}
		return nil
	})
}

// sample notes what everything takes; nothing while the server is away.
func (s *soak) sample(at time.Duration) {
	one := sample{at: at}
	for _, r := range s.relays {
		one.memory = max(one.memory, peakMemory(r.cmd.Process.Pid))
	}
	err := s.pool.QueryRow(s.t.Context(), `SELECT
		(SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counter'),
		(SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c WHERE c.relnamespace = 'postrider'::regnamespace AND c.relkind = 'r')::bigint,
		(SELECT sum(size) FROM pg_ls_waldir())::bigint,
		(SELECT sum(n) FROM (`+onLogs(`SELECT count(*) AS n FROM {log}`)+`) AS logs)::bigint`).
		Scan(&one.connections, &one.tables, &one.wal, &one.rows)
	if err == nil {
		s.samples = append(s.samples, one)
	}
}

// log tells what happened, and checks the bounds.
func (s *soak) log(span time.Duration, committed int, report load.Report) {
	s.t.Helper()
	var most sample
	for _, one := range s.samples {
		most.memory, most.connections = max(most.memory, one.memory), max(most.connections, one.connections)
		most.tables, most.wal, most.rows = max(most.tables, one.tables), max(most.wal, one.wal), max(most.rows, one.rows)
	}
	var faults []string
	for name, n := range s.faults {
		faults = append(faults, fmt.Sprintf("%d %s", n, name))
	}
	slices.Sort(faults)
	s.t.Logf("%s: %d messages of the load committed, %d came in all, %d of them again; %s; at most: %d MiB of memory for a relay, %d connections of relays, %d MiB of tables with %d messages, %d MiB of WAL",
		span, committed, report.Got, report.Doubles, strings.Join(faults, ", "), most.memory>>20, most.connections, most.tables>>20, most.rows, most.wal>>20)
	if most.memory > memoryLimit {
		s.t.Errorf("a relay took %d bytes", most.memory)
	}
	if most.connections > len(s.relays)*8 {
		s.t.Errorf("the relays had %d connections", most.connections)
	}
	if most.wal > 256<<20 {
		s.t.Errorf("the server kept %d bytes of WAL", most.wal)
	}
	// Half of the run later the tables are no larger, whatever is dead in them.
	if n := len(s.samples); testsize.Full() && n > 20 {
		largest := func(part []sample) (most int) {
			for _, one := range part {
				most = max(most, one.tables)
			}
			return most
		}
		if first, second := largest(s.samples[:n/2]), largest(s.samples[n/2:]); second > first*3/2 {
			s.t.Errorf("the tables grew from %d to %d bytes", first, second)
		}
	}
}
