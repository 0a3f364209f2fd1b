package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/bench/contender"
)

// TestMain lets the test binary be a contender's process, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == runOneCommand {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// document runs sections in tiny sizes and returns the tables' rows by title. All
// messages must come, and those of a key in order.
func document(t *testing.T, args ...string) map[string][][]string {
	t.Helper()
	args = append(args, "--verify", "--rounds", "1", "--limit", "30s", "--set", "fsync=off", "--set", "full_page_writes=off")
	var out bytes.Buffer
	if err := run(t.Context(), args, strings.NewReader(""), &out); err != nil {
		t.Fatalf("%v\nwhat it printed until then:\n%s", err, &out)
	}
	tables, title := map[string][][]string{}, ""
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, "## "); ok {
			title = text
		}
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| ---") {
			tables[title] = append(tables[title], strings.Split(strings.Trim(line, "| "), " | "))
		}
	}
	return tables
}

func TestEveryContenderDrainsAll(t *testing.T) {
	tables := document(t, "drain", "--n", "300")
	rows := tables["Drain of 300 messages, the publisher takes no time"]
	if len(rows) != len(contender.Entries)+1 {
		t.Fatalf("%d rows, want a header and %d contenders: %v", len(rows), len(contender.Entries), tables)
	}
	for i, e := range contender.Entries {
		if row := rows[i+1]; row[0] != e.Name || row[7] != "300" {
			t.Errorf("row %d is %v, want %s with 300 messages", i+1, row, e.Name)
		}
	}
}

func TestEverySection(t *testing.T) {
	tables := document(t, "slow", "depth", "sent", "held", "relays", "producers", "latency", "idle",
		"--contenders", "select,postrider", "--n", "300", "--depths", "400", "--sent", "500", "--connections", "2",
		"--rate", "100", "--span", "300ms", "--idle", "500ms")
	for title, want := range map[string][]string{
		"Drain of 300 messages, the publisher takes 2ms a batch": {"paged SELECT", "postrider"},
		"Depth of the backlog":                                       {"paged SELECT", "postrider"},
		"Drain of 300 messages beside 500 published rows":            {"paged SELECT", "postrider"},
		"Drain of 300 messages beside a transaction that stays open": {"postrider"},
		"Two relays":                          {"postrider"},
		"Producers":                           {"order alone", "order + bare table", "order + postrider's Writer", "order + postrider.enqueue()"},
		"Commit to publish at 100 messages/s": {"postrider"},
		"Idle: 2 messages/s":                  {"postrider"},
	} {
		rows := tables[title]
		if len(rows) != len(want)+1 {
			t.Errorf("%q has rows %v, want a header and one each for %v", title, rows, want)
			continue
		}
		for i, name := range want {
			row := rows[i+1]
			if row[0] != name || len(row) != len(rows[0]) {
				t.Errorf("row %d of %q is %v, want one for %s", i+1, title, row, name)
			}
			for _, cell := range row {
				if strings.HasPrefix(cell, "0 (") {
					t.Errorf("row %d of %q has a rate of nothing: %v", i+1, title, row)
				}
			}
		}
	}
}

func TestCheck(t *testing.T) {
	of := func(count, distinct, sum int) ran {
		return ran{count: count, outs: []outcome{{Tally: contender.Tally{Count: count, Distinct: distinct, Sum: sum}}}}
	}
	cut := of(2, 2, 3)
	cut.cut = true
	for _, c := range []struct {
		what string
		ran  ran
		task task
		all  bool
		ok   bool
	}{
		{"messages 0, 1, 2", of(3, 3, 3), task{n: 3}, true, true},
		{"messages 5, 6, 7", of(3, 3, 18), task{first: 5, n: 3}, true, true},
		{"a message too many", of(4, 4, 6), task{n: 3}, false, false},
		{"others than there were", of(3, 3, 4), task{n: 3}, false, false},
		{"cut off", cut, task{n: 3}, false, true},
		{"cut off where all are wanted", cut, task{n: 3}, true, false},
		{"nothing", of(0, 0, 0), task{n: 3}, false, false},
		{"nothing where it may stall", of(0, 0, 0), task{n: 3, stalls: true}, true, true},
	} {
		if err := c.ran.check(c.task, c.all); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func TestFigures(t *testing.T) {
	if got := (spread{3, 1, 2}).median(); got != 2 {
		t.Errorf("the median of 3, 1, 2 is %v", got)
	}
	if got := (spread{4, 1, 2, 3}).median(); got != 2.5 {
		t.Errorf("the median of 4, 1, 2, 3 is %v", got)
	}
	if got := (spread{123_456, 1_234, 99}).rate(); got != "1.2k (99–123k)" {
		t.Errorf("the rate reads %q", got)
	}
	out := outcome{Tally: contender.Tally{Count: 300, Head: 100, Elapsed: 300 * time.Millisecond, ToFirst: 200 * time.Millisecond}}
	r := ran{outs: []outcome{out}, count: 300}
	if whole, steady := r.rate(), r.steady(); whole != 1000 || steady != 2000 {
		t.Errorf("the rates are %v and %v, want 1000 and, from the first batch on, 2000", whole, steady)
	}
	r.samples = []sample{
		{0, []int{0, 0}}, {time.Second, []int{100, 0}}, {2 * time.Second, []int{200, 10}}, {4 * time.Second, []int{250, 160}},
	}
	if rate, part := r.together(); rate != 100 || part != 0.25 {
		t.Errorf("together they make %v, of which the first %v; want 100 and 0.25", rate, part)
	}
}

func TestWrongArguments(t *testing.T) {
	for _, args := range [][]string{{"nonsense"}, {"drain", "--n", "0"}, {"--depths", "1,x"}, {"drain", "--rounds", "2", "slow"}, {"--set", "fsync"}, {"drain", "--contenders", "nobody"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
