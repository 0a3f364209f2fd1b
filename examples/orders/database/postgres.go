package database

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/store/pgstore"
)

// Connections of the service's and of the relay's pool. The relay uses up to
// two for each shard and one more.
const (
	serviceConnections = 16
	relayConnections   = 2*pgstore.DefaultShards + 2
)

func openPostgres(ctx context.Context, url, schema string) (*Database, error) {
	d := &Database{Inserter: pgstore.SQL{Schema: pgstore.Schema(schema)}}
	pool, err := d.openPool(url, serviceConnections)
	if err != nil {
		return nil, err
	}
	if _, err := pgstore.Migrate(ctx, pool, pgstore.Options{Schema: pgstore.Schema(schema)}); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.DB = stdlib.OpenDBFromPool(pool)
	d.closers = append(d.closers, d.DB.Close)
	d.relayStore = func() (relay.Store, error) {
		own, err := d.openPool(url, relayConnections)
		if err != nil {
			return nil, err
		}
		return poll.New(poll.Config{Pool: own, Schema: pgstore.Schema(schema)})
	}
	return d, nil
}

// openPool makes a pool that d closes. It does not connect yet.
func (d *Database) openPool(url string, connections int32) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	d.closers = append(d.closers, func() error { pool.Close(); return nil })
	return pool, nil
}
