package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgstore"
	"github.com/postrider/postrider/store/sqlitestore"
)

// adminFlags are those of every command for operators.
type adminFlags struct {
	commonFlags
	JSON bool `name:"json" help:"Print JSON, for programs."`
}

// byFlags say who does something, and why; both are recorded.
type byFlags struct {
	By   string `placeholder:"NAME" help:"Who does it, for the record (user@host)."`
	Note string `placeholder:"TEXT" help:"Why, for the record."`
}

// who is the operator.
func (b byFlags) who() string {
	if b.By != "" {
		return b.By
	}
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

// office is where an operator works: the store, and where to print.
type office struct {
	*admin.Admin
	p      *process
	config *config.Config
	json   bool
	db     database
}

// openOffice connects. write: something is to be changed.
func openOffice(p *process, ctx context.Context, flags *adminFlags, write bool) (*office, error) {
	c, err := load(p, &flags.commonFlags, nil, config.Input{Database: true})
	if err != nil {
		return nil, err
	}
	warn(newLogger(p.Stderr, c.Log), c)
	c.Limits.Connections = min(c.Limits.Connections, 2)
	db, err := openDatabase(ctx, c, opening{})
	if err != nil {
		return nil, err
	}
	store, err := db.Admin(ctx, write)
	if err != nil {
		return nil, errors.Join(adminError(c, err), db.Close())
	}
	return &office{Admin: admin.New(store), p: p, config: c, json: flags.JSON, db: db}, nil
}

// inOffice runs a command on the store.
func inOffice(p *process, ctx context.Context, flags *adminFlags, write bool, run func(ctx context.Context, o *office) error) error {
	o, err := openOffice(p, ctx, flags, write)
	if err != nil {
		return err
	}
	err = run(ctx, o)
	if err != nil {
		err = adminError(o.config, err)
	}
	if closing := o.db.Close(); closing != nil && err == nil {
		err = closing
	}
	return err
}

// adminError gives an error its exit code, and says what to do next.
func adminError(c *config.Config, err error) error {
	if _, ok := errors.AsType[*failure](err); ok {
		return err
	}
	pgErr, isPG := errors.AsType[*pgconn.PgError](err)
	switch {
	case errors.Is(err, pgstore.ErrNoSchema), errors.Is(err, sqlitestore.ErrNoTables):
		return usage(fmt.Errorf("the outbox tables are missing from %s", c.Database), "create them: "+migrateUpCommand(c))
	case errors.Is(err, pgstore.ErrNewerSchema), errors.Is(err, sqlitestore.ErrNewer):
		return usage(err, "use that version of postrider")
	case errors.Is(err, admin.ErrNoRoute):
		return usage(err, "postrider route list shows them")
	case errors.Is(err, admin.ErrTooWide):
		return usage(err, "name ids, or narrow it down with --route, --topic, --key, --type, --since or --until")
	case errors.Is(err, admin.ErrWrongState):
		return usage(err, "")
	case errors.Is(err, admin.ErrNotFound):
		return &failure{code: exitFinding, err: err, next: "postrider list shows what there is"}
	case errors.Is(err, admin.ErrServed):
		return &failure{code: exitFinding, err: err, next: "stop that relay, or take the route out of its settings, first; --force does it all the same"}
	case isPG && pgErr.Code == "42501":
		return &failure{code: exitFinding, err: err, next: "docs/postgresql.md lists the rights of an operator"}
	case isPG && pgErr.Code == "25006":
		return &failure{code: exitFinding, err: err, next: "is it a standby, or a role that may only read? Name the primary"}
	case isUnreachable(err):
		return cannotConnect(c, err)
	}
	return err
}

func isUnreachable(err error) bool {
	_, connect := errors.AsType[*pgconn.ConnectError](err)
	return connect
}

// filterFlags select messages.
type filterFlags struct {
	Route string   `placeholder:"NAME" help:"On this route alone."`
	State []string `placeholder:"STATE" help:"In these states, with commas: pending, retrying, blocked, scheduled, failed, expired, discarded, sent, unknown."`
	Topic string   `placeholder:"TOPIC" help:"Of this topic, or pattern as routes have them."`
	Key   *string  `placeholder:"KEY" help:"With exactly this key; an empty one means without."`
	Type  string   `placeholder:"TYPE" help:"Of this type."`
	Since string   `placeholder:"TIME" help:"Enqueued since then: 90m, 2d, 2026-11-30 or 2026-11-30T16:00:00Z."`
	Until string   `placeholder:"TIME" help:"Enqueued before then."`
}

// filter reads the flags, and the messages that were named. now is the time by
// the database's clock.
func (f *filterFlags) filter(messages []string, now time.Time) (admin.Filter, error) {
	out := admin.Filter{Route: f.Route, Topic: f.Topic, Key: f.Key, Type: f.Type}
	var errs []error
	for _, s := range f.State {
		out.States = append(out.States, outbox.State(s))
	}
	for _, m := range messages {
		id, place, err := parseMessage(m)
		switch {
		case err != nil:
			errs = append(errs, err)
		case place.Seq > 0:
			out.Places = append(out.Places, place)
		default:
			out.IDs = append(out.IDs, id)
		}
	}
	for _, t := range []struct {
		flag, text string
		into       *time.Time
	}{{"--since", f.Since, &out.Since}, {"--until", f.Until, &out.Until}} {
		at, err := parseTime(t.text, now)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.flag, err))
		}
		*t.into = at
	}
	errs = append(errs, out.Validate())
	if err := errors.Join(errs...); err != nil {
		return out, usage(err, "")
	}
	return out, nil
}

// parseMessage reads how a message is named: by its id, or its place.
func parseMessage(text string) (uuid.UUID, admin.Place, error) {
	if strings.Contains(text, "/") {
		place, err := admin.ParsePlace(text)
		return uuid.Nil, place, err
	}
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, admin.Place{}, fmt.Errorf("%q names no message: give its id, such as 019ad3f2-7c1e-7e5c-9d7b-2f6a4c1e8b90, or its place, such as 2/4711", text)
	}
	return id, admin.Place{}, nil
}

// parseTime reads a length of time before now, or a time. Without a zone it is
// UTC, as all times that are printed.
func parseTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, ok := parseAgo(text); ok {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time: write how long ago, such as 90m or 2d, or a time, such as 2026-11-30T16:00:00Z", text)
}

// parseAgo reads a length of time, days too: 2d, 2d6h, 90m.
func parseAgo(text string) (time.Duration, bool) {
	var sum time.Duration
	if days, rest, found := strings.Cut(text, "d"); found {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, false
		}
		sum, text = time.Duration(n)*24*time.Hour, rest
		if rest == "" {
			return sum, true
		}
	}
	d, err := config.ParseDuration(text)
	return sum + d, err == nil && d <= 10*365*24*time.Hour
}
