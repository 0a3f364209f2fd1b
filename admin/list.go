package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/outbox"
)

// Admin is an operator's hold on a store. Safe for concurrent use.
type Admin struct{ store Store }

// New returns an Admin. The store's errors come back as they are, wrapped.
func New(store Store) *Admin { return &Admin{store} }

// Defaults and bounds of Query.
const (
	DefaultLimit = 50
	MaxLimit     = 10_000
	// DefaultLook is how many messages a Query looks at unless it says otherwise.
	DefaultLook = 2_000_000
	// window is how many messages one statement looks at.
	window = 20_000
)

// Query asks for one page of messages. Its zero value asks for the first ones.
type Query struct {
	Filter Filter
	// After is where the page before ended: Page.Next. Nil: the first page.
	After *Ref
	// Limit is how many messages the page has at most, up to MaxLimit. Default
	// DefaultLimit.
	Limit int
	// Look is how many messages are looked at, about, before the page ends
	// without being full. Default DefaultLook.
	Look int
}

// Page is a part of a list, in order of route, shard and number.
type Page struct {
	Messages []Item `json:"messages"`
	// Next is where the list goes on; nil: this was the last page.
	Next *Ref `json:"next"`
	// Looked is how many messages were looked at.
	Looked int `json:"looked_at"`
	// NotFound are messages that the filter names and that are not there.
	NotFound []NotFound `json:"not_found,omitempty"`
}

// NotFound is a message that somebody named, beside others, and that is not there.
type NotFound struct {
	// Message is its id or place.
	Message string `json:"message"`
	Why     string `json:"why"`
}

// List returns one page of the messages that fit. Going on from page to page
// shows every message once that is there all the time and keeps its state.
// ErrNoRoute if the filter names a route that the store does not know,
// ErrNotFound if it names messages and none of them is there.
func (a *Admin) List(ctx context.Context, q Query) (Page, error) {
	if err := q.Filter.Validate(); err != nil {
		return Page{}, err
	}
	if q.Limit <= 0 {
		q.Limit = DefaultLimit
	}
	if q.Look <= 0 {
		q.Look = DefaultLook
	}
	limit := min(q.Limit, MaxLimit)
	page := Page{Messages: []Item{}}
	missing, err := a.walk(ctx, q.Filter, q.After, func() int { return limit - len(page.Messages) }, func(route string, shard int, w Window) bool {
		page.Messages = append(page.Messages, w.Items...)
		page.Looked += w.Looked
		page.Next = &Ref{Route: route, Place: Place{shard, w.Last}}
		return len(page.Messages) < limit && page.Looked < q.Look
	})
	if errors.Is(err, errStopped) {
		return page, nil
	}
	page.Next, page.NotFound = nil, missing
	return page, err
}

var errStopped = errors.New("stopped")

// walk goes through the messages that fit, a window at a time. limit says how
// many are wanted of the next window; each gets it, and stops the walk by
// returning false: then the error is errStopped. It returns what the filter names
// and is not there.
func (a *Admin) walk(ctx context.Context, f Filter, after *Ref, limit func() int, each func(route string, shard int, w Window) bool) ([]NotFound, error) {
	layout, routes, err := a.routes(ctx, f.Route)
	if err != nil {
		return nil, err
	}
	if len(f.IDs) > 0 || len(f.Places) > 0 {
		return a.walkPlaces(ctx, f, layout, routes, after, each)
	}
	for _, route := range routes {
		for shard := range layout.Shards {
			var from int64
			if after != nil {
				if route < after.Route || route == after.Route && shard < after.Shard {
					continue
				}
				if route == after.Route && shard == after.Shard {
					from = after.Seq
				}
			}
			for more := true; more; {
				w, err := a.store.Scan(ctx, Scan{Route: route, Shard: shard, After: from, Filter: f, Look: window, Limit: limit()})
				if err != nil {
					return nil, err
				}
				if !each(route, shard, w) {
					return nil, errStopped
				}
				from, more = w.Last, w.More
			}
		}
	}
	return nil, nil
}

// walkPlaces goes through the messages that were named. There are no pages.
func (a *Admin) walkPlaces(ctx context.Context, f Filter, layout Layout, routes []string, after *Ref, each func(string, int, Window) bool) ([]NotFound, error) {
	places, missing, err := a.places(ctx, f, layout)
	if err != nil {
		return nil, err
	}
	listed := make(map[Place]bool)
	for _, route := range routes {
		for _, p := range places {
			ref := Ref{route, p}
			if after != nil && compare(ref, *after) <= 0 {
				continue
			}
			w, err := a.store.Scan(ctx, Scan{Route: route, Shard: p.Shard, After: p.Seq - 1, UpTo: p.Seq, Filter: f, Look: 1, Limit: 1})
			if err != nil {
				return nil, err
			}
			w.Last = p.Seq
			listed[p] = listed[p] || len(w.Items) > 0
			if !each(route, p.Shard, w) {
				return nil, errStopped
			}
		}
	}
	if after != nil {
		return nil, nil
	}
	there := 0
	for _, p := range places {
		if !listed[p] { // it does not fit, or is not there
			_, _, err := a.store.Message(ctx, p)
			if errors.Is(err, ErrNotFound) {
				missing = append(missing, NotFound{p.String(), "nothing is there"})
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		there++
	}
	if there == 0 {
		return nil, noneOf(missing)
	}
	return missing, nil
}

func compare(a, b Ref) int {
	return cmp.Or(cmp.Compare(a.Route, b.Route), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Seq, b.Seq))
}

// noneOf is ErrNotFound for everything that was named.
func noneOf(missing []NotFound) error {
	all := make([]string, len(missing))
	for i, m := range missing {
		all[i] = m.Message + ": " + m.Why
	}
	return fmt.Errorf("%w: %s", ErrNotFound, strings.Join(all, "; "))
}

// places are those that the filter names, sorted, each once, of which some may be
// empty, and what certainly is not there. ErrNotFound if that is all.
func (a *Admin) places(ctx context.Context, f Filter, layout Layout) (there []Place, missing []NotFound, err error) {
	for _, p := range f.Places {
		if p.Shard < 0 || p.Shard >= layout.Shards {
			missing = append(missing, NotFound{p.String(), fmt.Sprintf("the log has %d shards, counted from 0", layout.Shards)})
			continue
		}
		there = append(there, p)
	}
	for _, id := range f.IDs {
		found, err := a.store.Find(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		if len(found) == 0 {
			missing = append(missing, NotFound{id.String(), "no message has this id"})
		}
		there = append(there, found...)
	}
	if len(there) == 0 {
		return nil, nil, noneOf(missing)
	}
	slices.SortFunc(there, func(x, y Place) int { return compare(Ref{Place: x}, Ref{Place: y}) })
	return slices.Compact(there), missing, nil
}

// routes are the one that is named, or all.
func (a *Admin) routes(ctx context.Context, name string) (Layout, []string, error) {
	layout, err := a.store.Layout(ctx)
	if err != nil {
		return Layout{}, nil, err
	}
	if name == "" {
		return layout, layout.Routes, nil
	}
	if !slices.Contains(layout.Routes, name) {
		return Layout{}, nil, noRoute(name, layout.Routes)
	}
	return layout, []string{name}, nil
}

func noRoute(name string, known []string) error {
	if len(known) == 0 {
		return fmt.Errorf("%w: %q (no relay has served any yet)", ErrNoRoute, name)
	}
	return fmt.Errorf("%w: %q (there are: %q)", ErrNoRoute, name, known)
}

// Detail is everything about one message.
type Detail struct {
	Place   Place
	Message outbox.Message
	// InLog: it is still in the log, so that it can be sent again.
	InLog bool
	// Routes that take it, with how it stands there.
	Routes []RouteStanding
}

// RouteStanding is how a message stands on one route.
type RouteStanding struct {
	Route string `json:"route"`
	Standing
}

// Show returns everything about the messages with that id, which nearly always
// is one. ErrNotFound.
func (a *Admin) Show(ctx context.Context, id uuid.UUID) ([]Detail, error) {
	return a.show(ctx, Filter{IDs: []uuid.UUID{id}})
}

// ShowPlace returns everything about the message at a place. ErrNotFound.
func (a *Admin) ShowPlace(ctx context.Context, at Place) (Detail, error) {
	all, err := a.show(ctx, Filter{Places: []Place{at}})
	if err != nil {
		return Detail{}, err
	}
	return all[0], nil
}

func (a *Admin) show(ctx context.Context, f Filter) ([]Detail, error) {
	layout, err := a.store.Layout(ctx)
	if err != nil {
		return nil, err
	}
	places, _, err := a.places(ctx, f, layout)
	if err != nil {
		return nil, err
	}
	var all []Detail
	for _, p := range places {
		d := Detail{Place: p, Routes: []RouteStanding{}}
		if d.Message, d.InLog, err = a.store.Message(ctx, p); err != nil {
			return nil, err
		}
		_, err = a.walkPlaces(ctx, Filter{Places: []Place{p}}, layout, layout.Routes, nil, func(route string, _ int, w Window) bool {
			for _, item := range w.Items {
				d.Routes = append(d.Routes, RouteStanding{route, item.Standing})
			}
			return true
		})
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// Layout names the routes that the store knows, and tells the time by its clock.
func (a *Admin) Layout(ctx context.Context) (Layout, error) { return a.store.Layout(ctx) }

// Status tells how the routes stand.
func (a *Admin) Status(ctx context.Context, o StatusOptions) (Status, error) {
	return a.store.Status(ctx, o)
}

// Age is how long ago something was, by the clock that now is of; 0 if it never
// was, or is still to come.
func Age(at, now time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return max(now.Sub(at), 0)
}
