package page

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed templates
var templateFiles embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"amount": amount,
	"asset":  asset,
	"money":  money,
	"plural": plural,
	"short":  short,
	"since":  since,
}).ParseFS(templateFiles, "templates/*.html"))

// short is enough of an order's id to tell it from its neighbours. Their
// beginnings are times, so it is the end.
func short(id string) string {
	if len(id) <= 12 {
		return id
	}
	return "…" + id[len(id)-8:]
}

// data is what the whole page is rendered from.
type data struct {
	View     View
	figures  figures
	Trials   []trial
	Searches bool
	Form     form
	Placed   placed
	Query    string
	Found    found
}

// form is what the fields for a new order contain.
type form struct{ Customer, Amount string }

// placed is the answer to somebody who placed orders.
type placed struct{ Text, ID, Error string }

// found is the answer to a search.
type found struct {
	Query string
	Hits  []Hit
	Total int
	Error string
}

func (d data) Text(figure string) string { return d.figures.Text[figure] }
func (d data) State(part string) string  { return d.figures.State[part] }

// Count is how many services there are, in words.
func (d data) Count() string { return d.View.reactors(words(len(d.View.Services))) }

// Reactors are who reacts, as the subject of a sentence.
func (d data) Reactors() string {
	if len(d.View.Services) == 1 {
		return "a service reacts"
	}
	return words(len(d.View.Services)) + " services react"
}

// Their goes with Reactors.
func (d data) Their() string {
	if len(d.View.Services) == 1 {
		return "its"
	}
	return "their"
}

func (v *View) reactors(n string) string {
	if len(v.Services) == 1 {
		return n + " service"
	}
	return n + " services"
}

// Caption says what the drawing shows to those who do not see it.
func (d data) Caption() string {
	if d.View.Plain {
		return "The order service commits each order together with a row of the outbox log; the relay reads the log and sends to a queue, from which fulfilment gets it. The numbers are in the table below."
	}
	return "The order service commits each order together with a row of the outbox log; the relay reads the log and publishes to a topic; a queue for each service gets a copy. The numbers are in the table below."
}

// Wide is the drawing for wide screens, Narrow the one for narrow ones.
func (v View) Wide() drawing   { return v.wide() }
func (v View) Narrow() drawing { return v.narrow() }

// drawn is a drawing with its figures.
type drawn struct {
	Drawing drawing
	Data    data
}

func (d data) Draw(what drawing) drawn { return drawn{what, d} }

// data collects what the page shows now.
func (p *Page) data() data {
	view := p.config.Source.View()
	trials, running := p.lab.all()
	return data{View: view, figures: view.figures(running), Trials: trials, Searches: p.config.Search != nil}
}

// render renders everything that changes while somebody watches.
func (d data) render() ([]happening, error) {
	events := []happening{{"figures", d.figures.encode()}}
	var failed error
	add := func(event, name string, of any) {
		var out bytes.Buffer
		if err := render(&out, name, of); err != nil && failed == nil {
			failed = err
		}
		events = append(events, happening{event, out.String()})
	}
	add("latest", "latest", d.View)
	if d.View.Mail != nil {
		add("mails", "mails", d.View.Mail)
	}
	if d.View.Analytics != nil {
		add("analytics", "analytics", d.View.Analytics)
	}
	for _, t := range d.Trials {
		add("experiment-"+t.Name, "outcome", t)
	}
	return events, failed
}

func render(w io.Writer, name string, of any) error {
	if err := templates.ExecuteTemplate(w, name, of); err != nil {
		return fmt.Errorf("page: render %s: %w", name, err)
	}
	return nil
}
