package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/postrider/postrider/admin"
)

type pauseCommand struct {
	adminFlags
	byFlags
	Route string `arg:"" help:"The route's name."`
}

func (*pauseCommand) Help() string {
	return `Stops a route until it is resumed, whatever is restarted in between: its relays finish what they have begun and give its shards up within a second. Messages wait; nothing is lost.

Example:

  postrider pause orders --note 'the queue moves'`
}

func (c *pauseCommand) Run(p *process, ctx context.Context) error {
	return inOffice(p, ctx, &c.adminFlags, true, func(ctx context.Context, o *office) error {
		changed, err := o.Pause(ctx, c.Route, c.who(), c.Note)
		return o.told(err, changed, c.Route, "paused", "was paused already")
	})
}

type resumeCommand struct {
	adminFlags
	byFlags
	Route string `arg:"" help:"The route's name."`
}

func (c *resumeCommand) Run(p *process, ctx context.Context) error {
	return inOffice(p, ctx, &c.adminFlags, true, func(ctx context.Context, o *office) error {
		changed, err := o.Resume(ctx, c.Route, c.who(), c.Note)
		return o.told(err, changed, c.Route, "goes on", "was not paused")
	})
}

func (o *office) told(err error, changed bool, route, done, already string) error {
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(o.p.Stdout, struct {
			Route   string `json:"route"`
			Changed bool   `json:"changed"`
		}{route, changed})
	}
	if !changed {
		done = already
	}
	return printLines(o.p.Stdout, "route "+safe(route)+" "+done)
}

type routeCommand struct {
	List   routeList   `cmd:"" help:"List the routes that the database knows, and who serves them."`
	Remove routeRemove `cmd:"" help:"Forget a route: where it stands, and what is parked on it."`
}

type routeList struct{ adminFlags }

func (c *routeList) Run(p *process, ctx context.Context) error {
	return inOffice(p, ctx, &c.adminFlags, false, func(ctx context.Context, o *office) error {
		s, err := o.Status(ctx, admin.StatusOptions{})
		if err != nil {
			return err
		}
		if o.json {
			return printJSON(p.Stdout, s.Routes)
		}
		if len(s.Routes) == 0 {
			return printLines(p.Stdout, "no routes: no relay has served one yet")
		}
		t := newTable(p.Stdout)
		t.row("ROUTE", "TOPICS", "PENDING", "PARKED", "SERVED BY")
		for i := range s.Routes {
			r := &s.Routes[i]
			t.row(safe(r.Name), safe(strings.Join(r.Topics, ",")), fmt.Sprint(r.Pending), parked(r), safe(served(&s, r)))
		}
		return t.flush()
	})
}

// parked says how many messages of a route are parked.
func parked(r *admin.RouteStatus) string {
	var n int64
	more := ""
	for _, c := range r.Parked {
		n += c.Count
		if c.AtLeast {
			more = "+"
		}
	}
	return fmt.Sprint(n) + more
}

type routeRemove struct {
	adminFlags
	byFlags
	Route string `arg:"" help:"The route's name."`
	Force bool   `help:"Although a relay serves it. That relay begins it anew, from the oldest message in the log."`
	Yes   bool   `short:"y" help:"Do not ask."`
}

func (*routeRemove) Help() string {
	return `Deletes where the route stands and what is parked on it: messages that it has not sent are not sent by it any more. The messages stay in the log, and other routes are not touched. A route of that name that is served later begins anew.

Example:

  postrider route remove old-search --note 'replaced by search-v2'`
}

func (c *routeRemove) Run(p *process, ctx context.Context) error {
	return inOffice(p, ctx, &c.adminFlags, true, func(ctx context.Context, o *office) error {
		s, err := o.Status(ctx, admin.StatusOptions{})
		if err != nil {
			return err
		}
		for i := range s.Routes {
			if r := &s.Routes[i]; r.Name == c.Route && !c.Yes {
				if err := o.confirm("remove route "+safe(r.Name)+": "+loss(r), "--yes does it"); err != nil {
					return err
				}
			}
		}
		removed, err := o.RemoveRoute(ctx, c.Route, c.Force, c.who(), c.Note)
		if err != nil {
			return err
		}
		if o.json {
			return printJSON(p.Stdout, struct {
				Route string `json:"route"`
				admin.Removed
			}{c.Route, removed})
		}
		return printLines(p.Stdout, fmt.Sprintf("route %s removed: about %d messages that it had not sent, and %d that were parked on it, are forgotten",
			safe(c.Route), removed.Pending, removed.Parked))
	})
}

// loss says what is forgotten with a route.
func loss(r *admin.RouteStatus) string {
	parts := []string{fmt.Sprintf("about %d messages pending", r.Pending)}
	for _, c := range r.Parked {
		more := ""
		if c.AtLeast {
			more = "+"
		}
		parts = append(parts, fmt.Sprintf("%d%s %s", c.Count, more, c.State))
	}
	return "forget " + strings.Join(parts, ", ")
}

type auditCommand struct {
	adminFlags
	Limit  int   `default:"50" placeholder:"N" help:"How many to print at most (50)."`
	Before int64 `placeholder:"ID" help:"Only those before this one."`
}

func (c *auditCommand) Run(p *process, ctx context.Context) error {
	if c.Limit < 1 || c.Limit > admin.MaxLimit || c.Before < 0 {
		return usage(errors.New("--limit and --before are positive numbers"), "")
	}
	return inOffice(p, ctx, &c.adminFlags, false, func(ctx context.Context, o *office) error {
		if _, err := o.Layout(ctx); err != nil { // tells whether there are tables
			return err
		}
		entries, err := o.Audit(ctx, c.Before, c.Limit)
		if err != nil {
			return err
		}
		if o.json {
			return printJSON(p.Stdout, entries)
		}
		if len(entries) == 0 {
			return printLines(p.Stdout, "nothing is recorded")
		}
		t := newTable(p.Stdout)
		t.row("ID", "AT", "BY", "ACTION", "ROUTE", "MESSAGES", "WHICH", "NOTE")
		for _, e := range entries {
			t.row(fmt.Sprint(e.ID), stamp(e.At), safe(e.By), safe(e.Action), safe(e.Route), fmt.Sprint(e.Count), brief(which(e.Filter), 100), safe(e.Note))
		}
		return t.flush()
	})
}

// which says which messages were meant.
func which(f *admin.Filter) string {
	if f == nil {
		return ""
	}
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+" "+value)
		}
	}
	for _, id := range f.IDs {
		parts = append(parts, id.String())
	}
	for _, p := range f.Places {
		parts = append(parts, p.String())
	}
	states := make([]string, len(f.States))
	for i, s := range f.States {
		states[i] = string(s)
	}
	add("state", strings.Join(states, ","))
	add("topic", f.Topic)
	if f.Key != nil {
		add("key", fmt.Sprintf("%q", *f.Key))
	}
	add("type", f.Type)
	if !f.Since.IsZero() {
		add("since", stamp(f.Since))
	}
	if !f.Until.IsZero() {
		add("until", stamp(f.Until))
	}
	return strings.Join(parts, ", ")
}
