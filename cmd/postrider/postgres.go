package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/store/pgstore"
)

// connectTimeout bounds the first connection. Once running the relay connects
// again for ever; at the start a wrong address should be known at once.
const connectTimeout = 10 * time.Second

type postgres struct {
	pool   *pgxpool.Pool
	schema pgstore.Schema
}

func openPostgres(ctx context.Context, c *config.Config) (database, error) {
	settings, err := pgxpool.ParseConfig(c.Database.URL.Reveal())
	if err != nil { // config has parsed it already
		return nil, usage(fmt.Errorf("database %s: its URL cannot be used", c.Database), "")
	}
	settings.MaxConns = int32(c.Limits.Connections) // at most 1000
	settings.MinConns = min(settings.MinConns, settings.MaxConns)
	if settings.ConnConfig.ConnectTimeout == 0 || settings.ConnConfig.ConnectTimeout > connectTimeout {
		settings.ConnConfig.ConnectTimeout = connectTimeout
	}
	if settings.ConnConfig.RuntimeParams["application_name"] == "" {
		settings.ConnConfig.RuntimeParams["application_name"] = "postrider"
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), settings)
	if err != nil {
		return nil, usage(fmt.Errorf("database %s: %w", c.Database, err), "")
	}
	first, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := pool.Ping(first); err != nil {
		pool.Close()
		return nil, cannotConnect(c, err)
	}
	return &postgres{pool: pool, schema: pgstore.Schema(c.Schema)}, nil
}

// attempts makes one line of an error that tells the same of each address and
// of each try with and without TLS.
func attempts(err error) string {
	var lines []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}

func cannotConnect(c *config.Config, err error) error {
	return &failure{
		code: exitConnect, err: fmt.Errorf("cannot connect to the database %s: %s", c.Database, attempts(err)),
		next: "check the URL, the password (PGPASSWORD, ~/.pgpass, --db-file), and that this machine may connect",
	}
}

func (p *postgres) Migrate(ctx context.Context, shards int) ([]string, error) {
	return pgstore.Migrate(ctx, p.pool, pgstore.Options{Schema: p.schema, Shards: shards})
}

func (p *postgres) Status(ctx context.Context) (status, error) {
	s, err := pgstore.ReadStatus(ctx, p.pool, p.schema)
	return status{Shards: s.Shards, Version: s.Version, Missing: s.Pending}, err
}

func (p *postgres) Store(context.Context) (relay.Store, error) {
	return poll.New(poll.Config{Pool: p.pool, Schema: p.schema})
}

func (p *postgres) Admin(context.Context, bool) (admin.Store, error) {
	return pgstore.NewAdmin(p.pool, p.schema), nil
}

func (p *postgres) Ping(ctx context.Context) error { return p.pool.Ping(ctx) }

func (p *postgres) Close() error {
	p.pool.Close()
	return nil
}
