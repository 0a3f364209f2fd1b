package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/postrider/postrider/outbox"
)

// Takes are the states that messages must have for an action, and usual those
// that it takes where nobody names states or messages.
var takes = map[Action]struct{ all, usual []outbox.State }{
	Retry: {
		[]outbox.State{outbox.StateFailed, outbox.StateRetrying, outbox.StateExpired, outbox.StateDiscarded},
		[]outbox.State{outbox.StateFailed},
	},
	Release: {[]outbox.State{outbox.StateFailed}, []outbox.State{outbox.StateFailed}},
	Discard: {
		[]outbox.State{outbox.StatePending, outbox.StateRetrying, outbox.StateBlocked, outbox.StateScheduled, outbox.StateFailed, outbox.StateExpired},
		[]outbox.State{outbox.StateRetrying, outbox.StateBlocked, outbox.StateScheduled, outbox.StateFailed},
	},
	Replay: {[]outbox.State{outbox.StateSent, Unknown}, []outbox.State{outbox.StateSent}},
}

// Takes returns the states that a message must have for the action. For stores.
func (a Action) Takes() []outbox.State { return takes[a].all }

// ErrTooWide means that a Request names neither messages nor anything that
// narrows them down.
var ErrTooWide = errors.New("neither messages nor a filter are named: that would be every message of every route")

// ErrWrongState means that an action is not for messages of a state that a
// Request names.
var ErrWrongState = errors.New("wrong state")

// Request asks for an action.
type Request struct {
	Action Action
	// Filter says on which messages. Without States and named messages it means
	// those in the usual states: failed ones for Retry and Release, those that
	// wait or failed for Discard, sent ones for Replay. Messages that are
	// enqueued after the call began are not meant.
	Filter Filter
	// DryRun only looks.
	DryRun bool
	// Among bounds it to what a dry run found before, so that no message is
	// touched that nobody was told of, whatever has changed since. Nil: all that
	// fit.
	Among *Found
	// By is who asks, and Note why; both are recorded.
	By, Note string
	// Each is told of every message that fits, before Act returns; may be nil.
	Each func(Touched)
}

// Touched is a message that fits a Request.
type Touched struct {
	Item // as it was before
	// Changed: the action was done. False on a dry run, and if the message was
	// just being sent, or had got another state in between, or has one that the
	// action does not take.
	Changed bool `json:"changed"`
	// Left says why a message that was named was left alone.
	Left string `json:"left,omitempty"`
}

// Result says what an action did.
type Result struct {
	Action Action `json:"action"`
	DryRun bool   `json:"dry_run"`
	// Matched messages fit the request and have a state that the action takes.
	Matched int64 `json:"matched"`
	// Changed are those of them on which it was done.
	Changed int64 `json:"changed"`
	// AuditID is the record's; 0: nothing was changed.
	AuditID int64 `json:"audit_id,omitempty"`
	// NotFound are messages that the request names and that are not there.
	NotFound []NotFound `json:"not_found,omitempty"`
	// Found are the messages that a dry run matched, for Request.Among.
	Found *Found `json:"-"`
}

// Found are messages on routes that a dry run matched: eight bytes for each.
type Found struct{ numbers map[foundIn][]int64 }

type foundIn struct {
	route string
	shard int
}

// add notes numbers that are greater than all before of that shard and route.
func (f *Found) add(route string, shard int, seqs []int64) {
	at := foundIn{route, shard}
	f.numbers[at] = append(f.numbers[at], seqs...)
}

func (f *Found) has(item *Item) bool {
	_, found := slices.BinarySearch(f.numbers[foundIn{item.Route, item.Shard}], item.Seq)
	return found
}

// Act does the action on the messages that fit, in transactions of at most
// MaxOperation messages, each of which records what it did. If it ends with an
// error, the Result tells what was done before. ErrNotFound if messages are named
// and none of them is there.
func (a *Admin) Act(ctx context.Context, r Request) (Result, error) {
	result := Result{Action: r.Action, DryRun: r.DryRun}
	if r.DryRun {
		result.Found = &Found{make(map[foundIn][]int64)}
	}
	kind, ok := takes[r.Action]
	if !ok {
		return result, fmt.Errorf("%q is no action on messages", r.Action)
	}
	asked := r.Filter
	if err := r.Filter.Validate(); err != nil {
		return result, err
	}
	named := len(r.Filter.IDs) > 0 || len(r.Filter.Places) > 0
	if !named {
		if err := a.narrow(ctx, &r, kind.all, kind.usual); err != nil {
			return result, err
		}
	}
	entry := &Entry{By: r.By, Action: string(r.Action), Route: asked.Route, Filter: &asked, Note: r.Note}
	var failed error
	missing, err := a.walk(ctx, r.Filter, nil, func() int { return MaxOperation }, func(route string, shard int, w Window) bool {
		failed = a.change(ctx, &r, &result, entry, route, shard, w.Items)
		return failed == nil
	})
	result.AuditID, result.NotFound = entry.ID, missing
	if failed != nil {
		err = failed
	}
	return result, err
}

// narrow makes the filter say what the request means without saying it.
func (a *Admin) narrow(ctx context.Context, r *Request, all, usual []outbox.State) error {
	f := &r.Filter
	if f.Route == "" && f.Topic == "" && f.Key == nil && f.Type == "" && f.Since.IsZero() && f.Until.IsZero() {
		return ErrTooWide
	}
	if len(f.States) == 0 {
		f.States = usual
	}
	for _, s := range f.States {
		if !slices.Contains(all, s) {
			return fmt.Errorf("%w: %s is not for messages that are %s: it takes those that are %s", ErrWrongState, r.Action, s, join(all))
		}
	}
	layout, err := a.store.Layout(ctx)
	if err != nil {
		return err
	}
	if f.Until.IsZero() || f.Until.After(layout.Now) {
		f.Until = layout.Now
	}
	return nil
}

// change does the action on one window's messages, and tells of them.
func (a *Admin) change(ctx context.Context, r *Request, result *Result, entry *Entry, route string, shard int, items []Item) error {
	op := Operation{Action: r.Action, Route: route, Shard: shard}
	if r.Among != nil {
		items = slices.DeleteFunc(items, func(item Item) bool { return !r.Among.has(&item) })
	}
	for i := range items {
		if r.Action.refuses(&items[i]) == "" {
			op.Seqs = append(op.Seqs, items[i].Seq)
		}
	}
	result.Matched += int64(len(op.Seqs))
	if r.DryRun {
		result.Found.add(route, shard, op.Seqs)
	}
	var changed []int64
	if !r.DryRun && len(op.Seqs) > 0 {
		var err error
		if changed, err = a.store.Change(ctx, op, entry); err != nil {
			return err
		}
		result.Changed += int64(len(changed))
	}
	if r.Each == nil {
		return nil
	}
	for i := range items {
		t := Touched{Item: items[i], Changed: slices.Contains(changed, items[i].Seq), Left: r.Action.refuses(&items[i])}
		if t.Left == "" && !r.DryRun && !t.Changed {
			t.Left = "it is on its way just now, or has changed its state"
		}
		r.Each(t)
	}
	return nil
}

// refuses says why the action does not take the message as it stands; empty if
// it does.
func (a Action) refuses(item *Item) string {
	all := a.Takes()
	switch {
	case !slices.Contains(all, item.State):
		return fmt.Sprintf("it is %s: %s takes what is %s", item.State, a, join(all))
	case a == Discard && item.State == outbox.StatePending && item.ChangedAt.IsZero():
		return "it is pending in the log, where nothing is changed: discard takes it once a relay has tried it or set it aside"
	}
	return ""
}

// Pause stops a route: its relays finish what they have begun and send nothing
// of it until Resume, whatever is restarted in between. It reports whether that
// is news. ErrNoRoute.
func (a *Admin) Pause(ctx context.Context, route, by, note string) (changed bool, err error) {
	return a.setPaused(ctx, route, true, &Entry{By: by, Action: "pause", Route: route, Note: note})
}

// Resume lets a route go on that was paused. It reports whether that is news.
// ErrNoRoute.
func (a *Admin) Resume(ctx context.Context, route, by, note string) (changed bool, err error) {
	return a.setPaused(ctx, route, false, &Entry{By: by, Action: "resume", Route: route, Note: note})
}

func (a *Admin) setPaused(ctx context.Context, route string, paused bool, entry *Entry) (bool, error) {
	if _, _, err := a.routes(ctx, route); err != nil {
		return false, err
	}
	return a.store.SetPaused(ctx, route, paused, entry)
}

// RemoveRoute deletes everything that the store knows of a route: where it
// stands, and what is parked on it. Should a relay serve it again, it begins as
// a new one. ErrServed while a relay serves it, unless force; ErrNoRoute.
func (a *Admin) RemoveRoute(ctx context.Context, route string, force bool, by, note string) (Removed, error) {
	if _, _, err := a.routes(ctx, route); err != nil {
		return Removed{}, err
	}
	return a.store.RemoveRoute(ctx, route, force, &Entry{By: by, Action: "remove", Route: route, Note: note})
}

// Audit returns what operators did, from the newest to the oldest, with IDs below
// before (0: from the newest), at most limit.
func (a *Admin) Audit(ctx context.Context, before int64, limit int) ([]Entry, error) {
	if limit <= 0 {
		limit = DefaultLimit
	}
	return a.store.Audit(ctx, before, min(limit, MaxLimit))
}
