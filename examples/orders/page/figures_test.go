package page

import (
	"math/big"
	"strings"
	"testing"
	"time"
)

func TestMoney(t *testing.T) {
	for text, cents := range map[string]int64{
		"49.99": 4999, "5": 500, " 5,5 ": 550, "0.01": 1, "1000000": 100_000_000, ".5": 50, "7.": 700,
		"": -1, "0": -1, "-5": -1, "+5": -1, "1.234": -1, "x": -1, "1e3": -1, "1.2.3": -1, "99999999999999999999": -1, "5.-1": -1, "0x10": -1, "1_000": -1,
	} {
		got, err := parseMoney(text)
		if (err != nil) != (cents < 0) || err == nil && got != cents {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for cents, text := range map[int64]string{0: "0.00", 5: "0.05", 4999: "49.99", 123_456_789: "1,234,567.89"} {
		if got := amount(cents); got != text {
			t.Errorf("%d: %s", cents, got)
		}
	}
	if got := money(new(big.Int).Exp(big.NewInt(10), big.NewInt(22), nil)); got != "100,000,000,000,000,000,000.00" {
		t.Errorf("much: %s", got)
	}
}

func TestSince(t *testing.T) {
	for d, text := range map[time.Duration]string{
		Unknown: "", 0: "+0.0 ms", 1234 * time.Microsecond: "+1.2 ms", 150 * time.Millisecond: "+150 ms", 3 * time.Second: "+3,000 ms", 12 * time.Second: "+12.0 s",
	} {
		if got := since(d); got != text {
			t.Errorf("%v: %q", d, got)
		}
	}
}

func TestVerdict(t *testing.T) {
	of := func(orders, waiting int, totals ...int) *View {
		v := &View{Orders: orders, Waiting: waiting}
		for _, n := range totals {
			v.Services = append(v.Services, Service{Total: n})
		}
		return v
	}
	for want, v := range map[string]*View{
		"No order yet.": of(0, 0, 0, 0),
		"Nothing is lost: 2 orders in all two services, each once.":                of(2, 0, 2, 2),
		"1 of 2 orders have reached all two services; the rest is on its way.":     of(2, 0, 2, 1),
		"2 orders in all two services; copies are still on their way.":             of(2, 1, 2, 2),
		"1 more than ordered: something took effect twice.":                        of(2, 0, 3, 2),
		"0 of 1,000 orders have reached all two services; the rest is on its way.": of(1000, 1000, 0, 0),
	} {
		if got := v.Verdict(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if settled := v.settled(); settled != (strings.HasPrefix(want, "Nothing") || v.Orders == 0) {
			t.Errorf("%q: settled %v", want, settled)
		}
	}
}

// A viewer's browser takes what was written for what it is, whatever it is.
func TestEncode(t *testing.T) {
	got := string(encode([]happening{{"a", "x\ny\r\nevent: b\rdata: z"}, {"c", ""}}))
	const want = "event: a\ndata: x\ndata: y\ndata: event: b\ndata: data: z\n\nevent: c\ndata: \n\n"
	if got != want {
		t.Errorf("got %q", got)
	}
}

// The crier is not chatty.
func TestCrier(t *testing.T) {
	var c crier
	now := time.Now()
	say := func(complete int, trials ...trial) string {
		d := data{Trials: trials}
		d.View = View{Complete: complete, Services: make([]Service, 2)}
		return c.say(d, now)
	}
	kill := trial{Experiment: Experiment{Name: "kill", Title: "Kill"}}
	running, ended, failed := kill, kill, kill
	running.Running = true
	ended.Text = "It is back."
	failed.Bad, failed.Text = true, "It is gone."
	for i, step := range []struct {
		after    time.Duration
		complete int
		trial    trial
		want     string
	}{
		{0, 0, kill, ""},
		{0, 1, kill, "1 order has reached two services."},
		{time.Second, 50, kill, ""},
		{quiet, 101, kill, "100 orders have reached two services."},
		{quiet, 101, kill, ""},
		{0, 101, running, "Kill: it begins."},
		{quiet, 150, running, ""},
		{0, 151, ended, "Kill: It is back."},
		{0, 151, running, "Kill: it begins."},
		{0, 151, failed, "Kill: not as expected. It is gone."},
		{quiet, 151, failed, "50 orders have reached two services."},
	} {
		now = now.Add(step.after)
		if got := say(step.complete, step.trial); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}
