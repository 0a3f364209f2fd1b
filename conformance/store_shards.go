package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// shardTests: a key belongs to one shard for ever.
func shardTests[Tx any]() []storeTest[Tx] {
	return []storeTest[Tx]{
		{name: "their number is fixed", shards: 3, run: func(r *storeRig[Tx]) {
			for _, store := range []relay.Store{r.h.Store, r.second()} {
				n, err := store.Shards(r.ctx)
				r.ok("shards", err)
				if n != 3 {
					r.tb.Fatalf("%d shards, want 3", n)
				}
			}
		}},
		{name: "each message is in one of them, equal keys in the same", shards: 4, run: func(r *storeRig[Tx]) {
			const keys, each = 40, 3
			var all []outbox.Message
			for round := range each {
				for k := range keys {
					key := fmt.Sprintf("key-%d", k)
					all = append(all, message(key, fmt.Sprintf("%s/%d", key, round)))
				}
			}
			r.enqueue(all...)
			shardOf, perKey, used := map[string]int{}, map[string][]string{}, 0
			for s, got := range r.drain(4, len(all)) {
				if len(got) > 0 {
					used++
				}
				for _, d := range got {
					key := d.Message.Key
					if at, ok := shardOf[key]; ok && at != s {
						r.tb.Fatalf("key %q is in shards %d and %d", key, at, s)
					}
					shardOf[key] = s
					perKey[key] = append(perKey[key], d.Message.Type)
				}
			}
			if used < 2 {
				r.tb.Fatalf("%d keys went to %d shard", keys, used)
			}
			for k := range keys {
				key := fmt.Sprintf("key-%d", k)
				want := []string{key + "/0", key + "/1", key + "/2"}
				if !slices.Equal(perKey[key], want) {
					r.tb.Fatalf("key %q: received %v, want %v", key, perKey[key], want)
				}
			}
		}},
		{name: "messages without a key are spread", shards: 4, run: func(r *storeRig[Tx]) {
			r.enqueue(messages("", numbered(200)...)...)
			for s, got := range r.drain(4, 200) {
				if len(got) == 0 {
					r.tb.Fatalf("shard %d got none of 200 messages", s)
				}
			}
		}},
		{name: "their leases are apart", shards: 2, run: func(r *storeRig[Tx]) {
			r.acquire(shard(0), owner("one"))
			r.acquireFrom(r.second(), shard(1), owner("two"))
			r.held(r.second(), shard(0), owner("two"))
			r.held(r.h.Store, shard(1), owner("one"))
		}},
	}
}

// drain takes n messages from all shards together, and returns them by shard.
func (r *storeRig[Tx]) drain(shards, n int) [][]relay.Delivery {
	r.tb.Helper()
	leases, all := make([]relay.Lease, shards), make([][]relay.Delivery, shards)
	for s := range shards {
		leases[s] = r.acquire(shard(s))
	}
	total := 0
	for end := time.Now().Add(patience); total < n; {
		for s := range shards {
			got, _ := r.receiveWithin(leases[s], silence)
			all[s] = append(all[s], got...)
			total += len(got)
		}
		if time.Now().After(end) {
			r.tb.Fatalf("received %d messages of %d", total, n)
		}
	}
	for s := range shards {
		r.quiet(leases[s])
	}
	return all
}
