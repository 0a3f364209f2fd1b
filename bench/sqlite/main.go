// Command sqlite measures the two SQLite drivers that need no C compiler on
// what store/sqlitestore does, in one run, in turns, and prints medians:
//
//	cd bench && go run ./sqlite -rounds 5
//
// It also compares one log table for all shards with one table per shard.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"
	_ "modernc.org/sqlite"
)

// payloadSize is what one message carries, in bytes.
const payloadSize = 200

// shards of the log.
const shards = 4

// subject is one driver with one layout of the log.
type subject struct {
	name, driver string
	perShard     bool // a log table per shard, instead of one with an index
}

var subjects = []subject{
	{"modernc, table per shard", "sqlite", true},
	{"ncruces, table per shard", "sqlite3", true},
	{"modernc, one table", "sqlite", false},
	{"ncruces, one table", "sqlite3", false},
}

// measure is one kind of work; it returns what it did per second.
type measure struct {
	name, unit string
	run        func(ctx context.Context, b *bench) (float64, error)
}

var measures = []measure{
	{"enqueue, 1 connection, synchronous=FULL", "tx/s", func(ctx context.Context, b *bench) (float64, error) { return b.enqueue(ctx, 1) }},
	{"enqueue, 8 connections, synchronous=FULL", "tx/s", func(ctx context.Context, b *bench) (float64, error) { return b.enqueue(ctx, 8) }},
	{"read in pages of 500", "rows/s", func(ctx context.Context, b *bench) (float64, error) { return b.read(ctx) }},
	{"settle, synchronous=FULL", "tx/s", func(ctx context.Context, b *bench) (float64, error) { return b.settle(ctx, "FULL") }},
	{"settle, synchronous=NORMAL", "tx/s", func(ctx context.Context, b *bench) (float64, error) { return b.settle(ctx, "NORMAL") }},
	{"idle poll (PRAGMA data_version)", "polls/s", func(ctx context.Context, b *bench) (float64, error) { return b.poll(ctx) }},
}

func main() {
	rounds := flag.Int("rounds", 3, "how often each measure is taken")
	span := flag.Duration("span", time.Second, "how long each measure takes")
	dir := flag.String("dir", "", "where the database files go (default: a temporary folder)")
	flag.Parse()
	if err := run(context.Background(), *rounds, *span, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "sqlite:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, span time.Duration, dir string) error {
	dir, err := os.MkdirTemp(dir, "bench-sqlite")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	results := map[string][]result{}
	for round := range rounds {
		for i := range subjects {
			s := subjects[(i+round)%len(subjects)] // no one always goes first
			b, err := open(ctx, s, filepath.Join(dir, fmt.Sprintf("%d-%d.db", round, i)), span)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			for _, m := range measures {
				before := cpu()
				rate, err := m.run(ctx, b)
				if err != nil {
					return fmt.Errorf("%s: %s: %w", s.name, m.name, err)
				}
				used := (cpu() - before - b.aside).Seconds() * 1e6
				b.aside = 0
				results[m.name+s.name] = append(results[m.name+s.name], result{rate: rate, cpu: used / (rate * span.Seconds())})
			}
			if err := b.close(); err != nil {
				return fmt.Errorf("%s: close: %w", s.name, err)
			}
		}
	}
	return print(results, rounds)
}

// result is what one measure gave: how much per second, and the microseconds of
// processor time that each took, which a busy machine changes less.
type result struct{ rate, cpu float64 }

// cpu is the processor time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it cannot fail for oneself
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func print(results map[string][]result, rounds int) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "median of %d rounds (range), CPU µs for each", rounds)
	for _, s := range subjects {
		fmt.Fprintf(w, "\t%s", s.name)
	}
	fmt.Fprintln(w)
	for _, m := range measures {
		fmt.Fprintf(w, "%s, %s", m.name, m.unit)
		for _, s := range subjects {
			var rates, cpus []float64
			for _, r := range results[m.name+s.name] {
				rates, cpus = append(rates, r.rate), append(cpus, r.cpu)
			}
			slices.Sort(rates)
			slices.Sort(cpus)
			fmt.Fprintf(w, "\t%.0f (%.0f–%.0f), %.1f", rates[len(rates)/2], rates[0], rates[len(rates)-1], cpus[len(cpus)/2])
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// bench is one fresh database.
type bench struct {
	subject
	span time.Duration
	db   *sql.DB
	// aside is processor time that the present measure spent on preparing.
	aside time.Duration
}

const tables = `
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, amount INTEGER NOT NULL);
CREATE TABLE cursor (route TEXT, shard INTEGER, token INTEGER NOT NULL, expires INTEGER NOT NULL,
	pos INTEGER NOT NULL, unsettled TEXT NOT NULL, PRIMARY KEY (route, shard)) WITHOUT ROWID;
INSERT INTO cursor VALUES ('orders', 0, 1, 0, 0, '[]');
`

const logColumns = `
	id BLOB NOT NULL, topic TEXT NOT NULL, key TEXT NOT NULL, type TEXT NOT NULL, payload BLOB NOT NULL,
	content_type TEXT NOT NULL, headers TEXT NOT NULL, not_before INTEGER, expires INTEGER,
	created_at INTEGER NOT NULL DEFAULT (CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000));`

func open(ctx context.Context, s subject, path string, span time.Duration) (*bench, error) {
	db, err := sql.Open(s.driver, "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(8)
	ddl := tables
	if s.perShard {
		for n := range shards {
			ddl += fmt.Sprintf("CREATE TABLE log_%d (seq INTEGER PRIMARY KEY AUTOINCREMENT,%s\n", n, logColumns)
		}
	} else {
		ddl += "CREATE TABLE log (seq INTEGER PRIMARY KEY AUTOINCREMENT, shard INTEGER NOT NULL," + logColumns +
			"CREATE INDEX log_shard ON log (shard, seq);\n"
	}
	if _, err := db.ExecContext(ctx, ddl); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &bench{subject: s, span: span, db: db}, nil
}

func (b *bench) close() error { return b.db.Close() }

// rate runs work until the span is over and returns how much it did per second.
func (b *bench) rate(work func() (int, error)) (float64, error) {
	start, n := time.Now(), 0
	for time.Since(start) < b.span {
		done, err := work()
		if err != nil {
			return 0, err
		}
		n += done
	}
	return float64(n) / time.Since(start).Seconds(), nil
}

func (b *bench) insert(shard int) string {
	if b.perShard {
		return fmt.Sprintf("INSERT INTO log_%d (id, topic, key, type, payload, content_type, headers) VALUES (?, ?, ?, ?, ?, ?, ?)", shard)
	}
	return fmt.Sprintf("INSERT INTO log (shard, id, topic, key, type, payload, content_type, headers) VALUES (%d, ?, ?, ?, ?, ?, ?, ?)", shard)
}

// enqueue commits transactions of one order and one message.
func (b *bench) enqueue(ctx context.Context, connections int) (float64, error) {
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex
		total float64
		errs  []error
	)
	for c := range connections {
		wait.Go(func() {
			shard, payload := c, make([]byte, payloadSize)
			got, err := b.rate(func() (int, error) {
				shard = (shard + 1) % shards
				return 1, b.enqueueOne(ctx, shard, payload)
			})
			mu.Lock()
			defer mu.Unlock()
			total += got
			errs = append(errs, err)
		})
	}
	wait.Wait()
	return total, errors.Join(errs...)
}

func (b *bench) enqueueOne(ctx context.Context, shard int, payload []byte) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (customer, amount) VALUES (?, ?)", "c1", 4999); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, b.insert(shard), payload[:16], "orders", "key", "order.created", payload, "application/json", "{}"); err != nil {
		return err
	}
	return tx.Commit()
}

// read reads one shard from end to end, again and again.
func (b *bench) read(ctx context.Context) (float64, error) {
	before := cpu()
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	payload := make([]byte, payloadSize)
	for n := range 20_000 {
		if _, err := tx.ExecContext(ctx, b.insert(n%shards), payload[:16], "orders", "key", "order.created", payload, "application/json", "{}"); err != nil {
			return 0, errors.Join(err, tx.Rollback())
		}
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	b.aside = cpu() - before
	query := "SELECT seq, id, topic, key, type, payload, content_type, headers, not_before, expires, created_at FROM log WHERE shard = 0 AND seq > ? ORDER BY seq LIMIT 500"
	if b.perShard {
		query = "SELECT seq, id, topic, key, type, payload, content_type, headers, not_before, expires, created_at FROM log_0 WHERE seq > ? ORDER BY seq LIMIT 500"
	}
	pos := int64(0)
	return b.rate(func() (int, error) {
		last, n, err := b.page(ctx, query, pos)
		pos = last
		if n == 0 {
			pos = 0
		}
		return n, err
	})
}

func (b *bench) page(ctx context.Context, query string, pos int64) (last int64, n int, err error) {
	rows, err := b.db.QueryContext(ctx, query, pos)
	if err != nil {
		return pos, 0, err
	}
	defer rows.Close()
	var (
		id, payload                            []byte
		topic, key, kind, contentType, headers string
		notBefore, expires                     sql.NullInt64
		created                                int64
	)
	for rows.Next() {
		if err := rows.Scan(&pos, &id, &topic, &key, &kind, &payload, &contentType, &headers, &notBefore, &expires, &created); err != nil {
			return pos, n, err
		}
		n++
	}
	return pos, n, rows.Err()
}

// settle moves the cursor of one shard.
func (b *bench) settle(ctx context.Context, synchronous string) (float64, error) {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "PRAGMA synchronous = "+synchronous); err != nil {
		return 0, err
	}
	pos := 0
	got, err := b.rate(func() (int, error) {
		tx, err := conn.BeginTx(ctx, nil)
		if err != nil {
			return 0, err
		}
		defer tx.Rollback()
		pos++
		if _, err := tx.ExecContext(ctx, `UPDATE cursor SET pos = ?, unsettled = ?,
			expires = CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000 + 15000000
			WHERE route = 'orders' AND shard = 0 AND token = 1`, pos, "[[1,5]]"); err != nil {
			return 0, err
		}
		return 1, tx.Commit()
	})
	_, back := conn.ExecContext(ctx, "PRAGMA synchronous = FULL")
	return got, errors.Join(err, back)
}

// poll asks whether anything changed.
func (b *bench) poll(ctx context.Context) (float64, error) {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return b.rate(func() (int, error) {
		var version int64
		return 1, conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version)
	})
}
