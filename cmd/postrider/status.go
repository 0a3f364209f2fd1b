package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/outbox"
)

type statusCommand struct {
	adminFlags
	Check  bool          `help:"Exit with 1 if somebody has to do something."`
	MaxAge time.Duration `default:"1m" placeholder:"DURATION" help:"How long a message may wait before that is wrong (1m)."`
}

func (*statusCommand) Help() string {
	return `Tells what is wrong first, with what to type next, and then how each route stands: how many messages wait and for how long, how many failed, and which relays serve it.

PENDING is an estimate: it counts numbers of the log, also of other topics and of transactions that were rolled back.

Examples:

  postrider status --db postgres://shop@db.example/shop
  postrider status --check --max-age 5m    # for a monitor: exit 1 if something is wrong
  postrider status --json | jq '.routes[] | {name, pending}'`
}

// found is a finding with what to type next.
type found struct {
	admin.Finding
	Next []string `json:"next"`
}

func (s *statusCommand) Run(p *process, ctx context.Context) error {
	if s.MaxAge <= 0 {
		return usage(fmt.Errorf("--max-age %s: it must be longer", s.MaxAge), "")
	}
	return inOffice(p, ctx, &s.adminFlags, false, func(ctx context.Context, o *office) error {
		status, err := o.Status(ctx, admin.StatusOptions{})
		if err != nil {
			return err
		}
		problems := []found{}
		bad := false
		for _, f := range status.Findings(s.MaxAge) {
			problems = append(problems, found{f, o.next(f)})
			bad = bad || f.Bad
		}
		if o.json {
			err = printJSON(p.Stdout, struct {
				Database string `json:"database"`
				admin.Status
				Problems []found `json:"problems"`
			}{o.config.Database.String(), status, problems})
		} else {
			err = o.printStatus(&status, problems)
		}
		if err == nil && bad && s.Check {
			return &alreadySaid{errors.New("something is wrong")}
		}
		return err
	})
}

func (o *office) printStatus(s *admin.Status, problems []found) error {
	head := safe(o.config.Database.String())
	if o.config.Database.Kind == config.Postgres {
		head += ", schema " + safe(o.config.Schema)
	}
	lines := []string{fmt.Sprintf("%s, %s, %s, at %s", head, plural(s.Shards, "shard"), plural(len(s.Relays), "relay"), s.At.UTC().Format(time.RFC3339)), stored(s), ""}
	for _, f := range problems {
		mark := "note: "
		if f.Bad {
			mark = "WRONG: "
		}
		if f.Route != "" {
			mark += "route " + safe(f.Route) + ": "
		}
		lines = append(lines, mark+safe(f.Text))
		for _, n := range f.Next {
			lines = append(lines, "    "+safe(n))
		}
	}
	switch {
	case len(s.Routes) == 0:
		lines = append(lines, "No relay has served a route yet. Start one:", "    postrider relay --help")
	case len(problems) == 0:
		lines = append(lines, "Nothing is wrong.")
	}
	if err := printLines(o.p.Stdout, append(lines, "")...); err != nil || len(s.Routes) == 0 {
		return err
	}
	return o.printRoutes(s)
}

// stored tells what is kept.
func stored(s *admin.Status) string {
	if s.Stored.Oldest.IsZero() {
		return "keeps no messages in the log, " + mebibytes(s.Stored.Bytes) + " on the disk"
	}
	return "keeps messages of the last " + admin.Short(admin.Age(s.Stored.Oldest, s.At)) + ", " + mebibytes(s.Stored.Bytes) + " on the disk"
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func (o *office) printRoutes(s *admin.Status) error {
	t := newTable(o.p.Stdout)
	t.row("ROUTE", "TOPICS", "PENDING", "OLDEST", "RETRYING", "BLOCKED", "SCHEDULED", "FAILED", "EXPIRED", "DISCARDED", "SERVED BY")
	for i := range s.Routes {
		r := &s.Routes[i]
		cells := []string{safe(r.Name), brief(strings.Join(r.Topics, ","), 40), fmt.Sprint(r.Pending), ago(r.OldestPending, s.At, admin.Short)}
		for _, state := range []outbox.State{outbox.StateRetrying, outbox.StateBlocked, outbox.StateScheduled, outbox.StateFailed, outbox.StateExpired, outbox.StateDiscarded} {
			n, more := r.Count(state)
			cell := fmt.Sprint(n)
			if more {
				cell += "+"
			}
			cells = append(cells, cell)
		}
		t.row(append(cells, safe(served(s, r)))...)
	}
	return t.flush()
}

// served tells who serves the route: each relay with its shards.
func served(s *admin.Status, r *admin.RouteStatus) string {
	switch {
	case r.Paused:
		return "PAUSED"
	case r.Orphaned:
		return "nobody"
	}
	var owners []string
	shards := map[string]int{}
	for _, shard := range r.Shards {
		if shard.Owner == "" {
			continue
		}
		if shards[shard.Owner] == 0 {
			owners = append(owners, shard.Owner)
		}
		shards[shard.Owner]++
	}
	if owners == nil {
		return "nobody just now"
	}
	for i, owner := range owners {
		owners[i] = fmt.Sprintf("%s (%d/%d)", owner, shards[owner], s.Shards)
	}
	return strings.Join(owners, ", ")
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// next is what to type about a finding.
func (o *office) next(f admin.Finding) []string {
	route := shell(f.Route)
	var commands []string
	switch f.Kind {
	case admin.KindLog:
		return []string{"as the tables' owner, in SQL: " + f.Mend}
	case admin.KindFailed:
		commands = []string{"list --route " + route + " --state failed", "retry --route " + route + "    # once the cause is mended"}
	case admin.KindRetrying:
		commands = []string{"list --route " + route + " --state retrying"}
	case admin.KindStuck:
		commands = []string{"health    # on the relay's machine: it says why"}
	case admin.KindOrphaned:
		commands = []string{"relay    # with this route in its settings", "route remove " + route + "    # if it is gone for good"}
	case admin.KindPaused:
		commands = []string{"resume " + route}
	case admin.KindMixed:
		return []string{"give all its relays the same topics; then see postrider list --route " + route + " --state unknown"}
	case admin.KindUnrouted:
		return []string{"add a route for it to the relay's settings, or correct the application's topic"}
	}
	for i, c := range commands {
		commands[i] = "postrider " + c
	}
	return commands
}
