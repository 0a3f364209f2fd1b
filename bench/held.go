package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/bench/contender"
)

// held are the places of a transaction that stays open.
var held = []string{"none", "in the same database", "in another database"}

// heldSection: whether a transaction that stays open from before the messages
// were written until after they are published holds them up.
func (b *bench) heldSection(ctx context.Context) error {
	entries, err := b.named("postrider", "watermill_1000", "skip_locked_2000")
	if err != nil {
		return err
	}
	t := &table{title: fmt.Sprintf("Drain of %s messages beside a transaction that stays open", short(float64(b.n))),
		note:   "It has an id and a snapshot, and in the same database it has enqueued a message where the contender has a way to. The ratio is to the rate without it in the same round.",
		header: []string{"contender"}}
	rates, ratios := make([][]spread, len(entries)), make([][]spread, len(entries))
	for i := range entries {
		rates[i], ratios[i] = make([]spread, len(held)), make([]spread, len(held))
	}
	for round := range b.rounds {
		for _, at := range turn(len(entries), round) {
			for k, where := range held {
				r, err := b.beside(ctx, entries[at], where)
				if err != nil {
					return err
				}
				rates[at][k] = append(rates[at][k], r.rate())
				ratios[at][k] = append(ratios[at][k], r.rate()/max(rates[at][0][round], 1))
				b.log.Info("drained", "held", where, "round", round+1, "contender", entries[at].ID, "messages", r.count, "per_second", int(r.rate()))
			}
		}
	}
	for _, where := range held {
		t.header = append(t.header, where)
		if where != held[0] {
			t.header = append(t.header, "ratio")
		}
	}
	t.header = append(t.header, "remark")
	for i, e := range entries {
		cells := []string{e.Name}
		for k := range held {
			cells = append(cells, rates[i][k].rate())
			if k > 0 {
				cells = append(cells, ratios[i][k].plain(2))
			}
		}
		t.add(append(cells, e.Remark)...)
	}
	return b.write(t)
}

// beside drains while a transaction is open.
func (b *bench) beside(ctx context.Context, e contender.Entry, where string) (r ran, err error) {
	d, err := b.database(ctx, e)
	if err != nil {
		return r, err
	}
	// The messages must be younger than the transaction, whose own one is made
	// before them: so empty first, and fill with it open.
	d.fresh = 0
	if err := e.Contender.Reset(ctx, d.pool); err != nil {
		return r, err
	}
	url := d.url
	if where == held[2] {
		url = b.server.URL("postgres")
	}
	if where != held[0] {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return r, err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if err := b.hold(ctx, conn, d, e, where == held[1]); err != nil {
			return r, err
		}
	}
	if err := b.more(ctx, d, e, 0, b.n); err != nil {
		return r, err
	}
	staller, _ := e.Contender.(contender.Staller)
	return b.do(ctx, d, task{entry: e, n: b.n, stalls: where != held[0] && staller != nil && staller.Stalls()})
}

// hold leaves a transaction open on the connection.
func (b *bench) hold(ctx context.Context, conn *pgx.Conn, d *database, e contender.Entry, enqueue bool) error {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "SELECT pg_current_xact_id()"); err != nil {
		return err
	}
	inserter, ok := e.Contender.(contender.Inserter)
	if !enqueue || !ok {
		return nil
	}
	insert, err := inserter.Insert(ctx, d.pool)
	if err != nil {
		return err
	}
	if err := insert(ctx, tx, contender.NewMessage(b.n)); err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	return nil
}
