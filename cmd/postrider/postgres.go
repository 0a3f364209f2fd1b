package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
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
	pool    *pgxpool.Pool
	schema  pgstore.Schema
	session session
	config  *config.Config
}

func openPostgres(ctx context.Context, c *config.Config, watchful bool) (database, error) {
	p, err := connectPostgres(ctx, c, watchful)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func connectPostgres(ctx context.Context, c *config.Config, watchful bool) (*postgres, error) {
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
	first, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	session, err := adapt(first, settings, c)
	if err != nil {
		return nil, err
	}
	pgstore.Quiet(settings)
	if watchful {
		pgstore.Watchful(settings, 0)
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), settings)
	if err != nil {
		return nil, usage(fmt.Errorf("database %s: %w", c.Database, err), "")
	}
	return &postgres{pool: pool, schema: pgstore.Schema(c.Schema), session: session, config: c}, nil
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

// Migrate goes by the direct connection where there is one.
func (p *postgres) Migrate(ctx context.Context, o migrating) ([]string, error) {
	pool := p.pool
	if p.config.DirectDatabase.Kind != "" {
		direct, err := p.direct(ctx)
		if err != nil {
			return nil, err
		}
		defer direct.Close()
		pool = direct.pool
	}
	applied, err := pgstore.Migrate(ctx, pool, pgstore.Options{Schema: p.schema, Shards: o.shards, Timeout: o.timeout, Waiting: o.waiting})
	return applied, p.session.explain(err)
}

// direct connects to the same database by its other URL.
func (p *postgres) direct(ctx context.Context) (*postgres, error) {
	c := *p.config
	c.Database, c.DirectDatabase = c.DirectDatabase, config.Database{}
	direct, err := connectPostgres(ctx, &c, false)
	if err != nil {
		return nil, err
	}
	same, err := sameDatabase(ctx, p.pool, direct.pool)
	switch {
	case err != nil:
		err = fmt.Errorf("compare direct_database with database: %w", p.session.explain(err))
	case !same:
		err = usage(fmt.Errorf("direct_database %s is not the database that --db names", c.Database), "name the same database, without the pooler")
	case direct.session.pooled:
		err = usage(fmt.Errorf("direct_database %s goes through a pooler, too", c.Database), "name the server itself, or leave it out")
	}
	if err != nil {
		return nil, errors.Join(err, direct.Close())
	}
	return direct, nil
}

// sameDatabase takes a lock on one side and looks whether it is taken on the
// other: such locks belong to one database of one server, and need no rights.
// What servers say of themselves is the same in copies of them.
func sameDatabase(ctx context.Context, a, b *pgxpool.Pool) (same bool, err error) {
	key := rand.Int64()
	err = pgx.BeginFunc(ctx, a, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_catalog.pg_advisory_xact_lock($1::pg_catalog.int8)`, key); err != nil {
			return err
		}
		var free bool
		err := b.QueryRow(ctx, `SELECT pg_catalog.pg_try_advisory_xact_lock($1::pg_catalog.int8)`, key).Scan(&free)
		same = !free
		return err
	})
	return same, err
}

func (p *postgres) Status(ctx context.Context) (status, error) {
	s, err := pgstore.ReadStatus(ctx, p.pool, p.schema)
	return status{Shards: s.Shards, Version: s.Version, Known: s.Known, CompatibleFrom: s.CompatibleFrom, Missing: s.Pending}, p.session.explain(err)
}

func (p *postgres) Relays(ctx context.Context) ([]admin.RelayStatus, error) {
	relays, err := pgstore.Members(ctx, p.pool, p.schema)
	return relays, p.session.explain(err)
}

// report tells of a pooler that stands between, and what follows from it.
func (p *postgres) report(logger *slog.Logger) {
	s := p.session
	if !s.pooled {
		return
	}
	mode := modes[s.mode]
	logger.Info("a pooler stands before the database", "query_exec_mode", mode, "set", s.risky || modeIsSet(p.config))
	if s.risky {
		logger.Warn("the pooler has to keep prepared statements for its clients (PgBouncer 1.21 with max_prepared_statements above 0 does): if it does not, leave "+modeParameter+" out of the database's URL",
			"query_exec_mode", mode)
	}
	if s.isolation != "read committed" {
		logger.Warn("reading the log at this isolation may make applications' transactions fail: ALTER ROLE … SET default_transaction_isolation = 'read committed'",
			"isolation", s.isolation)
	}
}

// Store refuses a standby. (A relay that is at work waits for the primary.)
func (p *postgres) Store(ctx context.Context) (relay.Store, error) {
	var standby bool
	if err := p.pool.QueryRow(ctx, `SELECT pg_catalog.pg_is_in_recovery()`).Scan(&standby); err != nil {
		return nil, cannotConnect(p.config, err)
	}
	if standby {
		return nil, &failure{
			code: exitConnect, err: fmt.Errorf("%s: %w", p.config.Database, pgstore.ErrStandby),
			next: "name the primary, or all servers: postgres://user@first,second/name?target_session_attrs=read-write",
		}
	}
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
