package relay

import "slices"

// line are the messages of a key that a session has had in hand and that come
// again, in the order in which they will: the one that was refused, and those
// behind it that the store had handed out before it heard of that. None may pass
// those before it, nor any other message of the key.
type line []waiting

type waiting struct {
	seq int64
	// waited: it came, and had to wait, after the one in front was refused. If it
	// comes again, the store knows of nothing before it any more.
	waited bool
}

func (l line) index(seq int64) int {
	return slices.IndexFunc(l, func(w waiting) bool { return w.seq == seq })
}

// mustWait reports whether a message that has come has to wait. If not it leaves
// the line, and so do those before it.
func (l *line) mustWait(seq int64) bool {
	switch i := l.index(seq); {
	case i < 0:
		return len(*l) > 0
	case i > 0 && !(*l)[i].waited:
		(*l)[i].waited = true
		return true
	default:
		*l = (*l)[i+1:]
		return false
	}
}

// refused puts a message in front.
func (l *line) refused(seq int64) {
	l.gone(seq)
	*l = slices.Insert(*l, 0, waiting{seq: seq})
	for i := range *l {
		(*l)[i].waited = false
	}
}

// follows puts a message behind another one.
func (l *line) follows(seq, before int64) {
	l.gone(seq)
	*l = slices.Insert(*l, l.index(before)+1, waiting{seq: seq})
}

// blocked puts a message that had to wait at the end, if it is not in the line.
func (l *line) blocked(seq int64) {
	if l.index(seq) < 0 {
		*l = append(*l, waiting{seq, true})
	}
}

// gone takes a message out.
func (l *line) gone(seq int64) {
	if i := l.index(seq); i >= 0 {
		*l = slices.Delete(*l, i, i+1)
	}
}
