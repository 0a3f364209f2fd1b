package sqlitestore

import (
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

// row is a delivery, or the reason why there is none.
type row struct {
	relay.Delivery
	unreadable error
	since      int64 // that it is due as it is, of a parked one
}

// readable returns the rows as deliveries: those that make no message as failed.
func readable(rows []row) []relay.Delivery {
	ds := make([]relay.Delivery, len(rows))
	for i := range rows {
		d := rows[i].Delivery
		if err := rows[i].unreadable; err != nil {
			d.State, d.Error = outbox.StateFailed, fmt.Sprintf("not a message that can be delivered: %v", err)
		}
		ds[i] = d
	}
	return ds
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
