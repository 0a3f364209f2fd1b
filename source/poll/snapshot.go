package poll

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// snapshot is what a statement could see, as pg_current_snapshot() prints it
// (PostgreSQL documentation, "Transaction ID and Snapshot Information").
type snapshot struct {
	xmax uint64   // every transaction from here on counts as unfinished
	xip  []uint64 // sorted: unfinished ones below xmax
}

func parseSnapshot(text string) (snapshot, error) {
	var s snapshot
	_, rest, _ := strings.Cut(text, ":")
	xmax, list, ok := strings.Cut(rest, ":")
	var err error
	if s.xmax, err = strconv.ParseUint(xmax, 10, 64); err != nil || !ok {
		return s, fmt.Errorf("unexpected snapshot %q", text)
	}
	if list == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		xid, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return s, fmt.Errorf("unexpected snapshot %q", text)
		}
		s.xip = append(s.xip, xid)
	}
	slices.Sort(s.xip)
	return s, nil
}

// unfinished reports whether the transaction was open (or not begun) when the
// snapshot was taken. Running transactions at or above xmax are not listed in
// xip, so xmax decides about them.
func (s *snapshot) unfinished(xid uint64) bool {
	if xid >= s.xmax {
		return true
	}
	_, listed := slices.BinarySearch(s.xip, xid)
	return listed
}

// oldestBelow is the oldest transaction below limit that is unfinished in s;
// ok is false if there is none.
func (s *snapshot) oldestBelow(limit uint64) (xid uint64, ok bool) {
	if len(s.xip) > 0 && s.xip[0] < limit {
		return s.xip[0], true
	}
	return s.xmax, s.xmax < limit
}

// finishedSince reports whether any transaction below limit that was unfinished
// in s had finished by the later snapshot. limit 0 is no limit.
func (s *snapshot) finishedSince(later *snapshot, limit uint64) bool {
	if limit == 0 {
		limit = max(s.xmax, later.xmax)
	}
	for _, xid := range s.xip {
		if xid < limit && !later.unfinished(xid) {
			return true
		}
	}
	// Those from s.xmax on: finished unless they are in the later xip.
	end := min(limit, later.xmax)
	if end <= s.xmax {
		return false
	}
	i, _ := slices.BinarySearch(later.xip, s.xmax)
	j, _ := slices.BinarySearch(later.xip, end)
	return uint64(j-i) < end-s.xmax
}
