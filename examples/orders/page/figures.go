package page

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// figures are the texts and states that change in place: elements with the
// attribute data-figure get the text of that name, those with data-part the
// state, as data-state.
type figures struct {
	Text  map[string]string `json:"text"`
	State map[string]string `json:"state"`
}

func (v *View) figures(running *trial) figures {
	f := figures{
		Text: map[string]string{
			"placed":  number(v.Orders),
			"commits": number(v.Commits),
			"waiting": number(v.Waiting) + " waiting",
			"taken":   number(v.Taken),
			"sent":    number(v.Sent),
			"relay":   v.Relay.text(),
			"verdict": v.Verdict(),
			"broker":  "SNS",
		},
		State: map[string]string{
			"relay":      v.Relay.state(),
			"broker":     "up",
			"log":        "",
			"verdict":    "moving",
			"experiment": "",
		},
	}
	if v.Away {
		f.State["broker"], f.Text["broker"] = "away", "does not answer"
	}
	if v.Waiting > 0 {
		f.State["log"] = "waiting"
	}
	if v.settled() {
		f.State["verdict"] = "settled"
	}
	if running != nil {
		f.State["experiment"] = "running"
	}
	f.newest(v)
	for i := range v.Services {
		f.service(&v.Services[i])
	}
	return f
}

// newest are the times of the newest order.
func (f *figures) newest(v *View) {
	at := func(name string, d time.Duration) { f.Text["time-"+name] = since(d) }
	f.Text["time-commit"] = ""
	var newest Order
	newest.Taken, newest.Sent = Unknown, Unknown
	if len(v.Latest) > 0 {
		newest = v.Latest[0]
		f.Text["time-commit"] = "0 ms"
	}
	at("relay", newest.Taken)
	at("topic", newest.Sent)
	for i := range v.Services {
		passing := Passing{Out: Unknown, Done: Unknown}
		if i < len(newest.Services) {
			passing = newest.Services[i]
		}
		at("queue-"+v.Services[i].Name, passing.Out)
		at("service-"+v.Services[i].Name, passing.Done)
	}
}

func (f *figures) service(s *Service) {
	f.Text["total-"+s.Name] = number(s.Total)
	f.Text["stored-"+s.Name] = number(s.Total) + " " + s.Unit
	if s.Total == 1 {
		f.Text["stored-"+s.Name] = "1 " + s.One
	}
	f.Text["queued-"+s.Name] = number(s.Queued)
	f.Text["delivered-"+s.Name] = number(s.Delivered)
	f.Text["repeats-"+s.Name] = number(s.Repeats)
	f.Text["refused-"+s.Name] = number(s.Refused)
	f.Text["queue-"+s.Name] = number(s.Waiting) + " waiting"
	f.Text["inqueue-"+s.Name] = number(s.Waiting)
	f.Text["dead-"+s.Name] = number(s.Dead)
	f.Text["letters-"+s.Name] = ""
	f.State["queue-"+s.Name], f.State["service-"+s.Name] = "", ""
	if s.Waiting > 0 {
		f.State["queue-"+s.Name] = "waiting"
	}
	if s.Dead > 0 {
		f.State["queue-"+s.Name] = "dead"
		f.Text["letters-"+s.Name] = plural(s.Dead, "dead letter")
	}
	if s.Failing {
		f.State["service-"+s.Name] = "failing"
	}
}

func (f figures) encode() string {
	data, err := json.Marshal(f)
	if err != nil {
		panic(err) // a programming error: only encodable types are in it
	}
	return string(data)
}

func (r Relay) state() string {
	switch {
	case r.PID == 0:
		return "down"
	case !r.Ready:
		return "starting"
	case r.Away:
		return "held"
	}
	return "running"
}

func (r Relay) text() string {
	switch r.state() {
	case "down":
		return "no process"
	case "held":
		return "waits for the broker"
	}
	return "process " + strconv.Itoa(r.PID)
}

// settled reports whether everything that was ordered has reached everybody.
func (v *View) settled() bool {
	for _, s := range v.Services {
		if s.Total != v.Orders || s.Waiting > 0 {
			return false
		}
	}
	return v.Waiting == 0
}

// Verdict is what the totals say, in a sentence.
func (v *View) Verdict() string {
	if v.Orders == 0 {
		return "No order yet."
	}
	least, most := v.Orders, 0
	for _, s := range v.Services {
		least, most = min(least, s.Total), max(most, s.Total)
	}
	everybody := "all " + words(len(v.Services)) + " services"
	if v.Plain {
		everybody = "fulfilment"
	}
	switch {
	case most > v.Orders:
		return fmt.Sprintf("%s more than ordered: something took effect twice.", number(most-v.Orders))
	case v.settled():
		return fmt.Sprintf("Nothing is lost: %s in %s, each once.", plural(v.Orders, "order"), everybody)
	case least == v.Orders:
		return fmt.Sprintf("%s in %s; copies are still on their way.", plural(v.Orders, "order"), everybody)
	}
	return fmt.Sprintf("%s of %s have reached %s; the rest is on its way.", number(least), plural(v.Orders, "order"), everybody)
}

func words(n int) string {
	if names := []string{"no", "one", "two", "three", "four"}; n < len(names) {
		return names[n]
	}
	return strconv.Itoa(n)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}

// number writes 1234567 as 1,234,567.
func number(n int) string { return grouped(strconv.Itoa(n)) }

// money writes 123456 cents as 1,234.56.
func money(cents *big.Int) string {
	whole, rest := new(big.Int).QuoRem(cents, big.NewInt(100), new(big.Int))
	return grouped(whole.String()) + fmt.Sprintf(".%02d", rest.Abs(rest).Int64())
}

// amount is money that fits.
func amount(cents int64) string { return money(big.NewInt(cents)) }

func grouped(digits string) string {
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return out.String()
}

// since writes a time after the commit.
func since(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case d < 0:
		return ""
	case ms < 99.95:
		return fmt.Sprintf("+%.1f ms", ms)
	case ms < 10_000:
		return "+" + number(int(ms+0.5)) + " ms"
	}
	return fmt.Sprintf("+%.1f s", ms/1000)
}
