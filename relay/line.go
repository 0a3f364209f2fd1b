package relay

import (
	"cmp"
	"slices"
)

// line are the messages of a key that a session has had in hand and that come
// again: the one that was refused, and those behind it that the store had handed
// out before it heard of that. None of the key's that arrived later may pass
// them. The first is the one that arrived first.
type line []waiting

type waiting struct {
	seq, arrival int64
	// waited: it came, and had to wait, after another one was refused last. If it
	// comes again, the store knows of nothing before it any more.
	waited bool
}

// mustWait reports whether a message that has come has to wait. If not it leaves
// the line.
func (l *line) mustWait(d *Delivery) bool {
	if i := l.index(d.Seq); i >= 0 {
		waited := (*l)[i].waited
		*l = slices.Delete(*l, i, i+1)
		if waited {
			*l = slices.DeleteFunc(*l, func(w waiting) bool { return w.arrival < d.Arrival })
		}
	}
	if len(*l) == 0 || (*l)[0].arrival >= d.Arrival {
		return false
	}
	l.insert(waiting{d.Seq, d.Arrival, true})
	return true
}

// refused puts a message in line that the others wait for.
func (l *line) refused(d *Delivery) {
	l.gone(d.Seq)
	for i := range *l {
		(*l)[i].waited = false
	}
	l.insert(waiting{d.Seq, d.Arrival, false})
}

// follows puts a message in line that is in hand, and has to wait for another one
// that is.
func (l *line) follows(d *Delivery) {
	l.gone(d.Seq)
	l.insert(waiting{d.Seq, d.Arrival, false})
}

// gone takes a message out.
func (l *line) gone(seq int64) {
	if i := l.index(seq); i >= 0 {
		*l = slices.Delete(*l, i, i+1)
	}
}

func (l line) index(seq int64) int {
	return slices.IndexFunc(l, func(w waiting) bool { return w.seq == seq })
}

func (l *line) insert(w waiting) {
	i, _ := slices.BinarySearchFunc(*l, w, func(a, b waiting) int { return cmp.Compare(a.arrival, b.arrival) })
	*l = slices.Insert(*l, i, w)
}
