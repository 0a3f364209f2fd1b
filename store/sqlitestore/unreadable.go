package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// A row that makes no message must not stop its shard: it is given up, as
// failed with the reason, like a message that its broker refuses. The tables'
// checks let no such row in, but a program can ignore them, tables from before
// them lack them, and rows of the log can be deleted.

// errGone means that the log no longer has what the parked set refers to.
var errGone = errors.New("the message is gone from the log, where it waited for its turn")

// errGivenUp makes the relay take the lease anew.
var errGivenUp = errors.New("a message could not be read and was given up: what it means for its key is read anew")

// row is a delivery, or the reason why there is none.
type row struct {
	relay.Delivery
	unreadable error
}

// readable returns the deliveries among rows, and notes the others.
func (l *lease) readable(rows []row) []relay.Delivery {
	ds := make([]relay.Delivery, 0, len(rows))
	for i := range rows {
		r := &rows[i]
		if r.unreadable == nil {
			ds = append(ds, r.Delivery)
			continue
		}
		l.unreadable = append(l.unreadable, relay.Outcome{
			Delivery: r.Delivery, State: outbox.StateFailed, Attempts: r.Attempts,
			Error: fmt.Sprintf("not a message that can be delivered: %v", r.unreadable),
		})
		// The relay counts what stands in a key's way, but does not see this one.
		if r.Message.Key != "" && (r.Parked || l.claim.Hold) {
			l.miscounted = true
		}
	}
	return ds
}

// giveUp records those that were noted. If one of them matters to others of its
// key, the relay must learn of it: errGivenUp.
func (l *lease) giveUp(ctx context.Context) error {
	if len(l.unreadable) == 0 {
		return nil
	}
	if err := l.Settle(ctx, l.unreadable); err != nil {
		return fmt.Errorf("give up number %d (%s): %w", l.unreadable[0].Delivery.Seq, l.unreadable[0].Error, err)
	}
	first := l.unreadable[0]
	l.unreadable = nil
	if l.miscounted {
		return fmt.Errorf("number %d (%s): %w", first.Delivery.Seq, first.Error, errGivenUp)
	}
	return nil
}

// checkText refuses what cannot be delivered, as the tables' checks cannot or
// did not.
func checkText(m *outbox.Message) error {
	if m.Topic == "" {
		return errors.New("its topic is empty")
	}
	for _, field := range []struct{ name, text string }{{"topic", m.Topic}, {"key", m.Key}, {"type", m.Type}, {"content type", m.ContentType}} {
		if !utf8.ValidString(field.text) {
			return fmt.Errorf("its %s is not valid UTF-8", field.name)
		}
	}
	return nil
}
