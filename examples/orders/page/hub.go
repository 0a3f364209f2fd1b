package page

import (
	"bytes"
	"encoding/json"
	"html/template"
	"slices"
	"strings"
	"sync"
)

// backlog is how many frames a viewer may be behind before it is dropped. Its
// browser comes back by itself, and begins with everything as it is then.
const backlog = 32

// maxHops is how many hops of messages one frame shows; of more only the last
// are seen moving. The numbers count all of them.
const maxHops = 600

// happening is one server-sent event.
type happening struct{ name, data string }

// hub sends every frame to every viewer, so that all see the same.
type hub struct {
	mu      sync.Mutex
	viewers map[*viewer]struct{}
	state   []happening // the latest of each name
	closed  bool
}

// viewer is one browser.
type viewer struct {
	frames chan []byte // closed when the viewer is dropped or the hub is closed
}

func newHub() *hub { return &hub{viewers: make(map[*viewer]struct{})} }

// join adds a viewer, whose first frame is everything as it is now. It is nil
// if there are too many, or nothing more to see.
func (h *hub) join() *viewer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.viewers) >= MaxViewers {
		return nil
	}
	v := &viewer{frames: make(chan []byte, backlog)}
	v.frames <- encode(h.state)
	h.viewers[v] = struct{}{}
	return v
}

func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(v)
}

func (h *hub) drop(v *viewer) {
	if _, ok := h.viewers[v]; ok {
		delete(h.viewers, v)
		close(v.frames)
	}
}

// publish sends those events that differ from the last of their names, and what
// is no state and so is for those who watch just now alone: the hops, and what
// is said to those who do not see.
func (h *hub) publish(events []happening, hops []Hop, said string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var news []happening
	for _, e := range events {
		if !slices.Contains(h.state, e) {
			news = append(news, e)
		}
	}
	h.state = events
	if len(hops) > 0 {
		data, err := json.Marshal(hops[max(0, len(hops)-maxHops):])
		if err != nil {
			panic(err) // a programming error: only encodable types are in it
		}
		news = append(news, happening{"hops", string(data)})
	}
	if said != "" {
		news = append(news, happening{"announcement", template.HTMLEscapeString(said)})
	}
	if len(news) == 0 {
		return
	}
	frame := encode(news)
	for v := range h.viewers {
		select {
		case v.frames <- frame:
		default:
			h.drop(v)
		}
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for v := range h.viewers {
		h.drop(v)
	}
}

func (h *hub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.viewers)
}

// encode writes events as the stream has them. Lines end where any of the
// three line ends of the format is, so that data cannot end an event.
func encode(events []happening) []byte {
	var out bytes.Buffer
	lines := strings.NewReplacer("\r\n", "\n", "\r", "\n")
	for _, e := range events {
		out.WriteString("event: " + e.name + "\n")
		for line := range strings.SplitSeq(lines.Replace(e.data), "\n") {
			out.WriteString("data: " + line + "\n")
		}
		out.WriteByte('\n')
	}
	return out.Bytes()
}
