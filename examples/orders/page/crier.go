package page

import "time"

// quiet is the least time between two sentences about orders.
const quiet = 4 * time.Second

// crier says what those should hear who do not see the picture: experiments
// that begin and end, and now and then how many orders have arrived.
type crier struct {
	complete int
	last     time.Time
	running  string
}

// say returns a sentence, or nothing.
func (c *crier) say(d data, now time.Time) string {
	running := ""
	for _, t := range d.Trials {
		if t.Running {
			running = t.Name
		}
	}
	if running != c.running {
		ended := c.running
		c.running, c.last = running, now
		for _, t := range d.Trials {
			switch {
			case t.Name == running:
				return t.Title + ": it begins."
			case running == "" && t.Name == ended && t.Bad:
				return t.Title + ": not as expected. " + t.Text
			case running == "" && t.Name == ended:
				return t.Title + ": " + t.Text
			}
		}
	}
	arrived := d.View.Complete - c.complete
	if arrived <= 0 || running != "" || now.Sub(c.last) < quiet {
		return ""
	}
	c.complete, c.last = d.View.Complete, now
	have := " has"
	if arrived > 1 {
		have = " have"
	}
	return plural(arrived, "order") + have + " reached " + d.Count() + "."
}
