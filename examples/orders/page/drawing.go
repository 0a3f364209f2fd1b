package page

import "fmt"

// A drawing is the picture of the shop: for wide screens from left to right,
// for narrow ones from top to bottom. Both have the same parts.
type drawing struct {
	Name          string // "wide" or "narrow"
	Width, Height int
	Boxes         []box
	Arrows        []arrow
	Frame         box // around what commits together
}

// Late is where the times are written: above the middle of a box, or above its
// right end, where arrows come from above.
func (d drawing) Late(b box) int {
	if d.Name == "narrow" {
		return b.X + b.W
	}
	return b.Middle()
}

// LateAnchor goes with Late.
func (d drawing) LateAnchor() string {
	if d.Name == "narrow" {
		return "end"
	}
	return "middle"
}

// box is one part of the shop. What of it changes is named as in figures.
type box struct {
	X, Y, W, H int
	Part       string // its state; empty: it has none
	Title      string
	Note       string // what never changes
	Figure     string // a figure below the title
	Extra      string // a figure below that
	Time       string // a figure: when the newest order's message was here
	Kind       string // its class
}

// arrow is one hop.
type arrow struct {
	Hop    string // as in Hop.Hop; what goes into a queue is queue-SERVICE
	Path   string
	Figure string // how many have passed
	// Where the figure is written, and how: start, middle or end.
	X, Y   int
	Anchor string
}

// Middle is where titles are written.
func (b box) Middle() int { return b.X + b.W/2 }

// Bottom is the y of the lower edge.
func (b box) Bottom() int { return b.Y + b.H }

// Line is the y of the n-th line of text in the box, counted from 0. What is
// always there is in the middle of the box.
func (b box) Line(n int) int {
	lines := 1
	for _, text := range []string{b.Figure, b.Note} {
		if text != "" {
			lines++
		}
	}
	return b.Y + (b.H-(lines-1)*lineHeight)/2 + 5 + n*lineHeight
}

const lineHeight = 18

// Measures of the wide drawing: widths of boxes and arrows, and rows.
const (
	wideArrow  = 58
	wideRow    = 80
	wideGap    = 34
	wideMargin = 30
	wideFan    = 78
)

func (v *View) wide() drawing {
	rows := max(len(v.Services), 1)
	height := wideMargin + rows*wideRow + (rows-1)*wideGap + 10
	if rows == 1 {
		height = 230
	}
	middle := wideMargin + (height-wideMargin-10)/2
	d := drawing{Name: "wide", Height: height}
	x := 1
	put := func(b box) box {
		b.X, b.Y = x, middle-b.H/2
		x += b.W
		d.Boxes = append(d.Boxes, b)
		return b
	}
	right := func(hop, figure string) {
		d.Arrows = append(d.Arrows, arrow{
			Hop: hop, Path: fmt.Sprintf("M%d %d H%d", x+3, middle, x+wideArrow-3),
			Figure: figure, X: x + wideArrow/2, Y: middle - 12, Anchor: "middle",
		})
		x += wideArrow
	}
	put(box{W: 124, H: 76, Title: "Order service", Note: "POST /orders", Kind: "plain"})
	right("commit", "commits")
	d.database(x, middle-frameHeight/2, 164, v)
	x += 164
	right("take", "taken")
	relay := relayBox
	relay.W, relay.H = 136, 76
	put(relay)
	right("send", "sent")
	if v.Plain {
		v.eachQueue(func(_ int, queue, service box) {
			queue.W, queue.H, service.W, service.H = 150, wideRow, 176, wideRow
			put(queue)
			right("deliver-"+v.Services[0].Name, "delivered-"+v.Services[0].Name)
			put(service)
		})
		d.Width = x + 1
		return d
	}
	topic := topicBox
	topic.W, topic.H = 118, 76
	put(topic)
	start := x
	v.eachQueue(func(i int, queue, service box) {
		name := v.Services[i].Name
		queue.X, queue.Y, queue.W, queue.H = start+wideFan, wideMargin+i*(wideRow+wideGap), 150, wideRow
		y := queue.Y + wideRow/2
		d.Arrows = append(d.Arrows, arrow{
			Hop: "queue-" + name, Path: fmt.Sprintf("M%d %d C%d %d %d %d %d %d", start+3, middle, start+44, middle, start+28, y, queue.X-3, y),
			Figure: "queued-" + name, X: queue.X - 9, Y: beside(y, middle), Anchor: "end",
		})
		service.X, service.Y, service.W, service.H = queue.X+queue.W+wideArrow, queue.Y, 168, wideRow
		d.Arrows = append(d.Arrows, arrow{
			Hop: "deliver-" + name, Path: fmt.Sprintf("M%d %d H%d", queue.X+queue.W+3, y, service.X-3),
			Figure: "delivered-" + name, X: queue.X + queue.W + wideArrow/2, Y: y - 12, Anchor: "middle",
		})
		d.Boxes = append(d.Boxes, queue, service)
		x = service.X + service.W
	})
	d.Width = x + 1
	return d
}

// beside is where a number does not meet an arrow that comes from the middle.
func beside(y, middle int) int {
	if y > middle {
		return y + 18
	}
	return y - 10
}

// frameHeight is the height of the database in both drawings.
const frameHeight = 172

// Measures of the narrow drawing.
const (
	narrowWidth = 343
	narrowArrow = 34
	narrowBox   = 66
	narrowLeft  = 62
	narrowRow   = 78
	narrowGap   = 34
)

func (v *View) narrow() drawing {
	d := drawing{Name: "narrow", Width: narrowWidth}
	y := 22
	width, middle := narrowWidth-2*narrowLeft, narrowWidth/2
	put := func(b box) {
		b.X, b.Y, b.W, b.H = narrowLeft, y, width, narrowBox
		y += narrowBox
		d.Boxes = append(d.Boxes, b)
	}
	down := func(hop, figure string) {
		d.Arrows = append(d.Arrows, arrow{
			Hop: hop, Path: fmt.Sprintf("M%d %d V%d", middle, y+3, y+narrowArrow-3),
			Figure: figure, X: middle + 12, Y: y + narrowArrow/2 + 4, Anchor: "start",
		})
		y += narrowArrow
	}
	put(box{Title: "Order service", Note: "POST /orders", Kind: "plain"})
	down("commit", "commits")
	d.database(narrowLeft-12, y, width+24, v)
	y += frameHeight
	down("take", "taken")
	put(relayBox)
	down("send", "sent")
	bus := 14
	from := y + narrowBox/2
	if !v.Plain {
		put(topicBox)
		y += narrowGap
	}
	v.eachQueue(func(i int, queue, service box) {
		name := v.Services[i].Name
		queue.X, queue.Y, queue.W, queue.H = 38, y, 134, narrowRow
		middle := y + narrowRow/2
		if !v.Plain {
			d.Arrows = append(d.Arrows, arrow{
				Hop: "queue-" + name, Path: fmt.Sprintf("M%d %d H%d Q%d %d %d %d V%d Q%d %d %d %d H%d",
					narrowLeft-3, from, bus+10, bus, from, bus, from+10, middle-10, bus, middle, bus+10, middle, queue.X-3),
				Figure: "queued-" + name, X: queue.X - 2, Y: y - 7, Anchor: "start",
			})
		}
		service.X, service.Y, service.W, service.H = narrowWidth-134-1, y, 134, narrowRow
		d.Arrows = append(d.Arrows, arrow{
			Hop: "deliver-" + name, Path: fmt.Sprintf("M%d %d H%d", queue.X+queue.W+3, middle, service.X-3),
			Figure: "delivered-" + name, X: (queue.X + queue.W + service.X) / 2, Y: middle - 10, Anchor: "middle",
		})
		d.Boxes = append(d.Boxes, queue, service)
		y += narrowRow + narrowGap
	})
	d.Height = y - narrowGap + 4
	return d
}

var (
	relayBox = box{Part: "relay", Title: "Relay", Figure: "relay", Time: "time-relay", Kind: "ours"}
	topicBox = box{Part: "broker", Title: "Topic orders", Figure: "broker", Time: "time-topic", Kind: "broker"}
)

// database draws the frame of the transaction with two boxes in it.
func (d *drawing) database(x, y, w int, v *View) {
	d.Frame = box{X: x, Y: y, W: w, H: frameHeight, Title: v.Database, Note: "one transaction", Time: "time-commit"}
	d.Boxes = append(d.Boxes,
		box{X: x + 10, Y: y + 36, W: w - 20, H: 50, Title: "Orders", Figure: "placed", Kind: "plain"},
		box{X: x + 10, Y: y + 96, W: w - 20, H: 50, Title: "Outbox log", Figure: "waiting", Part: "log", Kind: "ours"},
	)
}

func (v *View) eachQueue(do func(i int, queue, service box)) {
	for i, s := range v.Services {
		do(i,
			box{Part: "queue-" + s.Name, Title: s.Queue, Figure: "queue-" + s.Name, Extra: "letters-" + s.Name, Time: "time-queue-" + s.Name, Kind: "broker"},
			box{Part: "service-" + s.Name, Title: s.Title, Figure: "stored-" + s.Name, Note: s.Store, Time: "time-service-" + s.Name, Kind: "plain"})
	}
}
