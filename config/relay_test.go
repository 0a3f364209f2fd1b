package config

import (
	"testing"
	"time"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memstore"
)

// What this package takes for the longest time-out of a publish, the relay
// takes too, and nothing longer; so the operator hears of it with its line.
func TestLongestTimeoutIsTheRelays(t *testing.T) {
	for _, lease := range []time.Duration{MinLease, 3 * time.Second, relay.DefaultLease, MaxLease} {
		for _, more := range []time.Duration{0, time.Millisecond} {
			_, err := relay.New(relay.Config{
				Store: memstore.New(memstore.Options{}), Lease: lease,
				Routes: []relay.Route{{Name: "r", Topics: []string{"**"}, Publisher: &membroker.Publisher{}, PublishTimeout: longestTimeout(lease) + more}},
			})
			if (err != nil) != (more > 0) {
				t.Errorf("lease %s, time-out %s: %v", lease, longestTimeout(lease)+more, err)
			}
		}
	}
}
