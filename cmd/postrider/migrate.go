package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/store/pgstore"
	"github.com/postrider/postrider/store/sqlitestore"
)

type migrateCommand struct {
	Up     migrateUp     `cmd:"" help:"Create the tables, or bring them up to date. Safe to run twice and by several at once."`
	Status migrateStatus `cmd:"" help:"Show what the tables have and lack; exit 1 if they lack something."`
	Print  migratePrint  `cmd:"" help:"Print the SQL that creates the tables, or roles for them, to run it yourself."`
}

type migrateUp struct {
	commonFlags
	Shards  *int          `placeholder:"N" help:"Parts of the log that relays share; fixed for ever by the first run (4)."`
	Timeout time.Duration `placeholder:"DURATION" default:"5m" help:"How long to go on trying while transactions of others hold locks on the tables (5m)."`

	DirectDatabase     *string `placeholder:"URL" help:"The same PostgreSQL database without the pooler that --db goes through: the tables are changed over this connection."`
	DirectDatabaseFile *string `placeholder:"FILE" help:"File that holds that URL."`
}

func (m *migrateUp) settings() map[string]string {
	flags := make(map[string]string)
	put(flags, "direct_database", m.DirectDatabase)
	put(flags, "direct_database_file", m.DirectDatabaseFile)
	return flags
}

func (*migrateUp) Help() string {
	return `Run it before the programs of a new version start. Those of the version before go on meanwhile: it waits for its locks half a second at a time, so that nobody waits long behind it, and says for whom. Everything is done in one transaction, or nothing.

Examples:

  postrider migrate up --db postgres://owner@db.example/shop
  postrider migrate up --db sqlite:shop.db --shards 2`
}

type migrateStatus struct {
	commonFlags
	JSON bool `help:"Print JSON, for programs."`
}

type migratePrint struct {
	commonFlags
	Shards *int `placeholder:"N" help:"Parts of the log that relays share (4)."`

	Roles    bool   `help:"Print the SQL that creates roles with the rights that each needs instead."`
	Owner    string `placeholder:"ROLE" default:"postrider_owner" help:"With --roles: who migrates the tables (postrider_owner)."`
	Writer   string `placeholder:"ROLE" default:"postrider_writer" help:"With --roles: applications (postrider_writer)."`
	Relay    string `placeholder:"ROLE" default:"postrider_relay" help:"With --roles: relays (postrider_relay)."`
	Viewer   string `placeholder:"ROLE" default:"postrider_viewer" help:"With --roles: who looks (postrider_viewer)."`
	Operator string `placeholder:"ROLE" default:"postrider_operator" help:"With --roles: who looks and acts (postrider_operator)."`
	Consumer string `placeholder:"ROLE" default:"postrider_consumer" help:"With --roles: consumers that keep their inbox there (postrider_consumer)."`
}

func (*migratePrint) Help() string {
	return `It prints SQL for PostgreSQL, or for SQLite with --db sqlite:PATH. It does not connect.

Example:

  postrider migrate print --schema outbox | psql shop

With --roles the tables have to be there. The roles are groups, without a login; what exists of them stays. Run it again after every migrate up:

  postrider migrate print --roles | psql -v ON_ERROR_STOP=1 shop
  psql shop -c 'GRANT postrider_writer TO shop; GRANT postrider_relay TO relay'`
}

func (m *migrateUp) Run(p *process, ctx context.Context) error {
	shards, err := checkShards(m.Shards)
	if err != nil {
		return err
	}
	c, db, err := openForMigration(p, ctx, &m.commonFlags, m.settings(), true)
	if err != nil {
		return err
	}
	defer db.Close()
	before, err := db.Status(ctx)
	if err != nil {
		return tablesError(c, err)
	}
	if shards != 0 && before.Shards != 0 && shards != before.Shards {
		return usage(fmt.Errorf("--shards %d: the log has %d shards, fixed when it was created", shards, before.Shards), "leave --shards out")
	}
	if m.Timeout < 0 {
		return usage(fmt.Errorf("--timeout %s is negative", m.Timeout), "")
	}
	logger := newLogger(p.Stderr, c.Log)
	applied, err := db.Migrate(ctx, migrating{shards: shards, timeout: max(m.Timeout, time.Millisecond), waiting: func(w pgstore.Wait) {
		logger.Warn("waiting for locks on the tables", "held_by", w.HeldBy(), "next_attempt_in", w.Pause.Round(time.Millisecond), "giving_up_in", w.Left.Round(time.Millisecond))
	}})
	if errors.Is(err, pgstore.ErrLocked) {
		return &failure{code: exitFinding, err: err, next: "end those transactions, or run it again at another time or with a longer --timeout"}
	}
	if err != nil {
		return tablesError(c, err)
	}
	for _, name := range applied {
		if err := printLines(p.Stdout, "applied "+name); err != nil {
			return err
		}
	}
	switch {
	case before.Version > before.Known:
		return printLines(p.Stdout, "nothing to do: the tables are a later version's, and this one can use them")
	case len(applied) == 0:
		return printLines(p.Stdout, "nothing to do: the tables are up to date")
	}
	return nil
}

func (m *migratePrint) Run(p *process, ctx context.Context) error {
	shards, err := checkShards(m.Shards)
	if err != nil {
		return err
	}
	c, err := load(p, &m.commonFlags, nil, config.Input{})
	if err != nil {
		return err
	}
	sql, err := m.script(c, shards)
	if err != nil {
		return usage(err, "")
	}
	_, err = io.WriteString(p.Stdout, sql)
	return err
}

func (m *migratePrint) script(c *config.Config, shards int) (string, error) {
	if !m.Roles {
		return migrationScript(c, shards)
	}
	if c.Database.Kind == config.SQLite {
		return "", errors.New("--roles: SQLite has no roles")
	}
	return pgstore.RolesScript(pgstore.Options{Schema: pgstore.Schema(c.Schema), Shards: shards}, pgstore.Roles{
		Owner: m.Owner, Writer: m.Writer, Relay: m.Relay, Viewer: m.Viewer, Operator: m.Operator, Consumer: m.Consumer,
	})
}

// checkShards returns 0 if nobody said how many.
func checkShards(n *int) (int, error) {
	switch {
	case n == nil:
		return 0, nil
	case *n < 1 || *n > pgstore.MaxShards:
		return 0, usage(fmt.Errorf("--shards %d: a log has 1 to %d shards", *n, pgstore.MaxShards), "leave --shards out for 4")
	}
	return *n, nil
}

// openForMigration connects; more are flags of the command's own, create allows
// making the database's file.
func openForMigration(p *process, ctx context.Context, flags *commonFlags, more map[string]string, create bool) (*config.Config, database, error) {
	c, err := load(p, flags, nil, config.Input{Database: true, Flags: more})
	if err != nil {
		return nil, nil, err
	}
	warn(newLogger(p.Stderr, c.Log), c)
	db, err := openDatabase(ctx, c, opening{create: create})
	return c, db, err
}

// migrateUpCommand is what to type to create or update the tables.
func migrateUpCommand(c *config.Config) string {
	command := "postrider migrate up"
	if c.File != "" && c.File != config.DefaultFile {
		command += " --config " + shell(c.File)
	}
	if c.File == "" {
		command += " --db " + shell(c.Database.String())
	}
	if c.Schema != config.DefaultSchema {
		command += " --schema " + shell(c.Schema)
	}
	return command
}

// shell quotes a word for a shell if it needs to be.
func shell(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// tablesError adds what to do about tables that this version cannot use.
func tablesError(c *config.Config, err error) error {
	switch {
	case errors.Is(err, pgstore.ErrNoSchema):
		return usage(err, migrateUpCommand(c))
	case errors.Is(err, pgstore.ErrNewerSchema), errors.Is(err, sqlitestore.ErrNewer):
		return usage(err, "")
	}
	return err
}
