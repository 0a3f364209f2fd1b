package awsmsg

import (
	"fmt"

	"github.com/postrider/postrider/outbox"
)

// waves yields the first message of each group, then the second, and so on.
func waves(items []item) func(yield func([]item) bool) {
	return func(yield func([]item) bool) {
		for rest := items; len(rest) > 0; {
			seen := map[string]bool{}
			var wave, later []item
			for _, it := range rest {
				if group := it.entry.GroupID; !seen[group] {
					seen[group] = true
					wave = append(wave, it)
				} else {
					later = append(later, it)
				}
			}
			if !yield(wave) {
				return
			}
			rest = later
		}
	}
}

// behindFailures answers the messages that have one of their group before them
// which is still to be sent, and returns the others. A permanent failure is
// nothing to wait for.
func (c *publishing) behindFailures(wave, all []item) []item {
	unsent := map[string]error{}
	for _, it := range all {
		err := c.results[it.index].Err
		if err != nil && outbox.ClassOf(err) != outbox.ClassPermanent && unsent[it.entry.GroupID] == nil {
			unsent[it.entry.GroupID] = err
		}
	}
	var free []item
	for _, it := range wave {
		if err := unsent[it.entry.GroupID]; err != nil {
			c.results[it.index].Err = outbox.Unsent(fmt.Errorf("%s: not sent, because an earlier message of its key was not: %w", c.Package, err))
			continue
		}
		free = append(free, it)
	}
	return free
}
