package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/config"
)

// carried are settings of a session that our statements rely on, whatever the
// URL, the role or the database says, and that PgBouncer carries from one server
// connection to the next (PgBouncer's manual, "ignore_startup_parameters").
var carried = map[string]string{
	"client_encoding":             "UTF8",
	"DateStyle":                   "ISO, MDY",
	"standard_conforming_strings": "on",
}

// direct are those that only a session of our own can have. With row_security off
// a policy that would hide rows is an error: numbers that the relay cannot see
// would be given up as rolled back. No statement of ours is worth compiling.
var direct = map[string]string{
	"search_path":                   "pg_catalog, pg_temp",
	"bytea_output":                  "hex",
	"default_transaction_isolation": "read committed",
	"row_security":                  "off",
	"jit":                           "off",
}

// set has the session begin with the settings, instead of what it has of the
// same names in any case of letters.
func set(c *pgx.ConnConfig, settings map[string]string) {
	for name, value := range settings {
		maps.DeleteFunc(c.RuntimeParams, func(other, _ string) bool { return strings.EqualFold(name, other) })
		c.RuntimeParams[name] = value
	}
}

// session is what the first connection has shown.
type session struct {
	// pooled: something stands between, which gives its own names to
	// connections; so the next statement may reach another session.
	pooled bool
	// mode is how statements are sent.
	mode pgx.QueryExecMode
	// risky: that mode needs a session, and the URL asks for it.
	risky bool
	// isolation that single statements have.
	isolation string
}

// askSQL needs no parameters, so that it works in every mode.
const askSQL = `SELECT pg_catalog.pg_backend_pid(), pg_catalog.current_setting('bytea_output'), pg_catalog.current_setting('DateStyle'),
	pg_catalog.current_setting('default_transaction_isolation')`

// adapt connects once, and has the pool send statements in a way that works with
// what stands between it and the server.
func adapt(ctx context.Context, pool *pgxpool.Config, c *config.Config) (session, error) {
	at, given := pool.ConnConfig, maps.Clone(pool.ConnConfig.RuntimeParams)
	set(at, carried)
	set(at, direct)
	conn, err := pgx.ConnectConfig(ctx, at)
	s := session{pooled: refused(err)}
	if s.pooled {
		at.RuntimeParams = given
		set(at, carried)
		conn, err = pgx.ConnectConfig(ctx, at)
	}
	if refused(err) {
		return s, usage(fmt.Errorf("the pooler at %s does not take a setting that the URL or PGOPTIONS has: %s", c.Database, attempts(err)),
			"remove it there (ALTER ROLE … SET does the same), or add it to the pooler's ignore_startup_parameters")
	}
	if err != nil {
		return s, cannotConnect(c, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var pid uint32
	var bytea, dates string
	if err := conn.QueryRow(ctx, askSQL, pgx.QueryExecModeSimpleProtocol).Scan(&pid, &bytea, &dates, &s.isolation); err != nil {
		return s, cannotConnect(c, err)
	}
	s.pooled = s.pooled || pid != conn.PgConn().PID()
	s.choose(at, modeIsSet(c))
	if text := s.mode == pgx.QueryExecModeExec || s.mode == pgx.QueryExecModeSimpleProtocol; text && (bytea != "hex" || !strings.HasPrefix(dates, "ISO,")) {
		return s, usage(fmt.Errorf("default_query_exec_mode=%s reads values as text, and this role's sessions at %s print them in a way of their own (bytea_output %s, DateStyle %s)",
			modes[s.mode], c.Database, bytea, dates), "leave default_query_exec_mode out of the URL")
	}
	return s, nil
}

// choose takes statements with names, which belong to a session, only where there
// is one, or where the URL asks for them: a pooler may keep them for its clients.
func (s *session) choose(at *pgx.ConnConfig, set bool) {
	s.mode = at.DefaultQueryExecMode
	if needs := s.mode == pgx.QueryExecModeCacheStatement || s.mode == pgx.QueryExecModeDescribeExec; s.pooled && needs {
		if s.risky = set; !set {
			s.mode = pgx.QueryExecModeCacheDescribe
		}
	}
	at.DefaultQueryExecMode = s.mode
}

// refused reports whether a pooler did not take a setting of the session:
// PgBouncer's words, with the code of a protocol violation.
func refused(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == "08P01" && strings.Contains(pgErr.Message, "startup parameter")
}

const modeParameter = "default_query_exec_mode"

// modeIsSet reports whether the URL says how to send statements.
func modeIsSet(c *config.Config) bool {
	u, err := url.Parse(c.Database.URL.Reveal())
	return err == nil && u.Query().Has(modeParameter)
}

// modes by the names that the URL has for them.
var modes = map[pgx.QueryExecMode]string{
	pgx.QueryExecModeCacheStatement: "cache_statement",
	pgx.QueryExecModeCacheDescribe:  "cache_describe",
	pgx.QueryExecModeDescribeExec:   "describe_exec",
	pgx.QueryExecModeExec:           "exec",
	pgx.QueryExecModeSimpleProtocol: "simple_protocol",
}

// lostStatement are PostgreSQL's codes for a statement of that name that does not
// exist, or exists already: somebody else's session answers.
var lostStatement = []string{"26000", "42P05"}

// explain says what to do about an error that a pooler between causes.
func (s session) explain(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !s.risky || !slices.Contains(lostStatement, pgErr.Code) {
		return err
	}
	return usage(fmt.Errorf("the pooler keeps no prepared statements, which %s=%s needs: %w", modeParameter, modes[s.mode], err),
		"leave "+modeParameter+" out of the URL")
}
