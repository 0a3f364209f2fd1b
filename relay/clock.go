package relay

import "time"

// storeClock is a lower bound of the store's clock: no message was created
// later than the store's now. A message that expires while it is in hand is
// so found out without trusting this machine's clock, of which only the
// passing of time is used. The store's clock may have been ahead and then be
// corrected: what the store says of a message is believed, not the bound.
type storeClock struct {
	latest time.Time // the latest creation seen, by the store's clock
	at     time.Time // when it was seen, by ours
}

func (c *storeClock) see(created, now time.Time) {
	if created.After(c.now(now)) {
		c.latest, c.at = created, now
	}
}

// alive notes that the store hands out a message as not expired. A bound that
// contradicts it goes back to the message's creation.
func (c *storeClock) alive(created, expires, now time.Time) {
	if !c.expired(expires, now) {
		return
	}
	*c = storeClock{}
	if created.Before(expires) {
		c.latest, c.at = created, now
	}
}

func (c *storeClock) now(now time.Time) time.Time { return c.latest.Add(now.Sub(c.at)) }

// expired reports whether a message with this deadline is surely too late.
func (c *storeClock) expired(expires, now time.Time) bool {
	return !expires.IsZero() && !c.at.IsZero() && !expires.After(c.now(now))
}
