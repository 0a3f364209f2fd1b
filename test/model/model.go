package model

// model explores one instance. It is not safe for concurrent use.
type model struct {
	Instance
	broken string // the promise that the step under way has broken
	plain  bool   // takes no short cuts, for the test that they hide nothing
	emit   func(step, *state)
}

func newModel(i Instance) *model {
	if i.PageSize == 0 {
		i.PageSize = maxNumbers
	}
	if i.Relays == 0 {
		i.Relays = 1
	}
	if i.MaxPromoted == 0 {
		i.MaxPromoted = 1
	}
	return &model{Instance: i}
}

func (m *model) start() state {
	var s state
	s.next, s.xmax = 2, 2 // 1 stands for an id that is finished in every snapshot
	for i := range m.Writers {
		if w := &m.Writers[i]; w.Before {
			s.writers[i] = writer{stage: committed, drawn: uint8(len(w.Rows))}
			for j := range w.Rows {
				s.log[s.last] = row{uint8(i + 1), uint8(j)}
				s.last++
			}
		}
	}
	return s
}

func (m *model) is(mistake Mistake) bool { return m.Mistake == mistake }

func (m *model) may(s *state, trouble int) bool {
	return int(s.spent[trouble]) < m.allowed(trouble)
}

func (m *model) breaks(promise string) {
	if m.broken == "" {
		m.broken = promise
	}
}
