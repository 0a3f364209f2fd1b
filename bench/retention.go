package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/bench/contender"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgstore"
)

const (
	retainedRows  = 100_000 // that a cleaning leaves
	retainedChunk = 20_000  // that are enqueued between two
	retainedOnce  = 100     // that one INSERT enqueues
	partitionRows = 50_000  // numbers of a partition
)

// cleaning is a way to get rid of old messages.
type cleaning struct {
	name, remark string
	setup        string // of the table, after the outbox is there
	table        string
	// clean deletes the rows up to a number.
	clean func(ctx context.Context, d *pgxpool.Pool, upto int) error
}

func cleanings() []cleaning {
	log := pgstore.Schema("").Log(0)
	options := func(o string) string { return `ALTER TABLE ` + log + ` SET (` + o + `)` }
	var cleaner *pgstore.Cleaner
	deleting := func(ctx context.Context, pool *pgxpool.Pool, upto int) error {
		if cleaner == nil || upto <= retainedChunk {
			cleaner = pgstore.NewCleaner(pool, "", 1)
		}
		if _, err := pool.Exec(ctx, `UPDATE postrider.cursor SET pos = $1`, upto); err != nil {
			return err
		}
		for more := true; more; {
			cleaned, err := cleaner.Clean(ctx, relay.Retention{Sent: 1, Failed: relay.Keep})
			if err != nil {
				return err
			}
			more = cleaned.More
		}
		return nil
	}
	const plain = `postrider.log_0`
	return []cleaning{
		{name: "nothing is deleted", table: plain, clean: func(context.Context, *pgxpool.Pool, int) error { return nil }},
		{name: "this project: DELETE in pages", table: plain, clean: deleting},
		{name: "the same, vacuum after every 5 %", table: plain, clean: deleting, setup: options("autovacuum_vacuum_scale_factor = 0.05")},
		{name: "the same, vacuum after 10,000 rows", table: plain, clean: deleting, setup: options("autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000")},
		{name: "partitions, DROP", table: `postrider.parts`, remark: fmt.Sprintf("%s numbers each", short(partitionRows)),
			setup: `CREATE TABLE postrider.parts (LIKE ` + log + ` INCLUDING DEFAULTS INCLUDING INDEXES) PARTITION BY RANGE (seq)`,
			clean: func(ctx context.Context, pool *pgxpool.Pool, upto int) error {
				if upto < partitionRows {
					return nil
				}
				_, err := pool.Exec(ctx, fmt.Sprintf(`DROP TABLE IF EXISTS postrider.part_%d`, upto/partitionRows-1))
				return err
			}},
	}
}

// retentionSection: what it costs that old messages go.
func (b *bench) retentionSection(ctx context.Context) (err error) {
	naptime := func(ctx context.Context, statement string) error {
		_, err := b.admin.Exec(ctx, statement)
		if err == nil {
			_, err = b.admin.Exec(ctx, `SELECT pg_reload_conf()`)
		}
		return err
	}
	if err := naptime(ctx, `ALTER SYSTEM SET autovacuum_naptime = '1s'`); err != nil {
		return err
	}
	defer func() { // other sections measure the server as it is
		err = errors.Join(err, naptime(context.WithoutCancel(ctx), `ALTER SYSTEM RESET autovacuum_naptime`))
	}()
	t := &table{title: "Old messages",
		note: fmt.Sprintf("%s messages are enqueued, %d an INSERT; after every %s the older ones are deleted but for %s. The server looks for something to vacuum every second. Processor time of PostgreSQL is for both, per message.",
			short(float64(b.n)), retainedOnce, short(retainedChunk), short(retainedRows)),
		header: []string{"way", "PostgreSQL µs/message", "bytes of WAL/message", "MiB on the disk", "remark"}}
	all := cleanings()
	cpu, wal, disk := make([]spread, len(all)), make([]spread, len(all)), make([]spread, len(all))
	for round := range b.rounds {
		for _, at := range turn(len(all), round) {
			c, w, s, err := b.retain(ctx, all[at])
			if err != nil {
				return fmt.Errorf("%s: %w", all[at].name, err)
			}
			b.log.Info("retained", "round", round+1, "way", all[at].name, "µs", c, "wal", w, "MiB", s)
			cpu[at], wal[at], disk[at] = append(cpu[at], c), append(wal[at], w), append(disk[at], s)
		}
	}
	for i, c := range all {
		t.add(c.name, cpu[i].span(1), wal[i].span(0), disk[i].span(0), c.remark)
	}
	return b.write(t)
}

// retain measures one way: processor time in µs and bytes of WAL, each per
// message, and MiB on the disk at the end.
func (b *bench) retain(ctx context.Context, c cleaning) (cpu, wal, disk float64, err error) {
	const name = "bench_retention"
	for _, statement := range []string{`DROP DATABASE IF EXISTS ` + name, `CREATE DATABASE ` + name + ` TEMPLATE template0`} {
		if _, err := b.admin.Exec(ctx, statement); err != nil {
			return 0, 0, 0, err
		}
	}
	pool, err := pgxpool.New(ctx, b.server.URL(name))
	if err != nil {
		return 0, 0, 0, err
	}
	defer pool.Close()
	if _, err := pgstore.Migrate(ctx, pool, pgstore.Options{Shards: 1}); err != nil {
		return 0, 0, 0, err
	}
	setup := c.setup + `; INSERT INTO postrider.cursor (route, shard, pos, token, owner, lease_until, topics, topics_from, started)
		VALUES ('bench', 0, 0, gen_random_uuid(), 'bench', '-infinity', '{**}', 0, 0)`
	if c.table == `postrider.parts` {
		for i := range b.n/partitionRows + 2 {
			setup += fmt.Sprintf(`; CREATE TABLE postrider.part_%d PARTITION OF postrider.parts FOR VALUES FROM (%d) TO (%d)`, i, i*partitionRows, (i+1)*partitionRows)
		}
	}
	if _, err := pool.Exec(ctx, setup, pgx.QueryExecModeSimpleProtocol); err != nil {
		return 0, 0, 0, err
	}
	if _, err := b.admin.Exec(ctx, "CHECKPOINT"); err != nil {
		return 0, 0, 0, err
	}
	var from, to int64
	const written = `SELECT pg_current_wal_insert_lsn() - '0/0'`
	if err := b.admin.QueryRow(ctx, written).Scan(&from); err != nil {
		return 0, 0, 0, err
	}
	begun := treeTime(b.server.PID())
	insert := fmt.Sprintf(`INSERT INTO %s (id, topic, key, payload) SELECT gen_random_uuid(), 'orders', 'key ' || i, $1 FROM generate_series(1, %d) AS i`, c.table, retainedOnce)
	payload := make([]byte, contender.PayloadSize)
	for done := 0; done < b.n; done += retainedChunk {
		for range retainedChunk / retainedOnce {
			if _, err := pool.Exec(ctx, insert, payload); err != nil {
				return 0, 0, 0, err
			}
		}
		if upto := done + retainedChunk - retainedRows; upto > 0 {
			if err := c.clean(ctx, pool, upto); err != nil {
				return 0, 0, 0, err
			}
		}
	}
	time.Sleep(2 * time.Second) // for a vacuum that is due
	taken := treeTime(b.server.PID()) - begun
	if err := b.admin.QueryRow(ctx, written).Scan(&to); err != nil {
		return 0, 0, 0, err
	}
	var bytes int64
	err = pool.QueryRow(ctx, `SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relkind = 'r' AND relnamespace = 'postrider'::regnamespace`).Scan(&bytes)
	return float64(taken.Microseconds()) / float64(b.n), float64(to-from) / float64(b.n), float64(bytes) / (1 << 20), err
}
