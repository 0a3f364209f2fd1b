package event

import "github.com/postrider/postrider/outbox"

// Read returns the order that a message announces. ok is false for a message of
// another type, which a service that reacts to orders has nothing to do with,
// and for one that can never be read: its error is permanent.
func Read(m outbox.Message) (e OrderCreated, ok bool, err error) {
	if m.Type != "" && m.Type != TypeOrderCreated {
		return OrderCreated{}, false, nil
	}
	if e, err = DecodeOrderCreated(m.Payload); err != nil {
		return OrderCreated{}, false, outbox.Permanent(err)
	}
	return e, true, nil
}
