package browser

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// experiment presses the button and returns how it ended. Each of the
// expressions meanwhile was true at some moment in between, however short.
func (b *tab) experiment(name string, meanwhile ...string) (outcome string) {
	b.t.Helper()
	slot := fmt.Sprintf(`document.querySelector("#outcome-%s")`, name)
	before := b.text("#outcome-" + name)
	var checks strings.Builder
	for _, expression := range meanwhile {
		fmt.Fprintf(&checks, "() => %s,\n", expression)
	}
	eval[bool](b, fmt.Sprintf(`(() => {
		window.met = new Set();
		const checks = [%s];
		window.observer?.disconnect();
		window.observer = new MutationObserver(() => checks.forEach((check, i) => check() && met.add(i)));
		observer.observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true});
		return true;
	})()`, checks.String()))
	b.press(fmt.Sprintf(`form[action="/experiments/%s"] button`, name))
	b.await(slot + `.innerText !== ` + quote(before))
	b.await(slot + `.querySelector(".good, .bad") !== null`)
	if eval[bool](b, slot+`.querySelector(".bad") !== null`) {
		b.t.Errorf("%s: %s", name, b.text("#outcome-"+name))
	}
	met := eval[[]int](b, `[...met]`)
	for i, expression := range meanwhile {
		if !slices.Contains(met, i) {
			b.t.Errorf("%s: never true: %s", name, expression)
		}
	}
	return b.text("#outcome-" + name)
}

// inState is true while a part of the drawing has that state.
func inState(part, state string) string {
	return fmt.Sprintf(`document.querySelector('[data-part="%s"]').dataset.state === %s`, part, quote(state))
}

// match finds the numbers that an outcome tells.
func match(t testing.TB, pattern, outcome string) []string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(outcome)
	if found == nil {
		t.Fatalf("the outcome %q is not as %q", outcome, pattern)
	}
	return found
}

// orders is how many the database has.
func (s *shop) orders() int { return s.query("orders", `SELECT count(*) FROM orders`) }

func TestKillTheRelay(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	b, other := s.open(t, desktop), s.open(t, desktop)
	before := b.figure("relay")
	outcome := b.experiment("kill-relay", inState("relay", "down"), inState("log", "waiting"), `!document.querySelector("[data-figure=waiting]").textContent.startsWith("0 ")`)
	pids := match(t, `Process (\d+) was killed; process (\d+) went on after (\d+\.\d) s\. All (\d+) orders placed meanwhile are in all four services\.`, outcome)
	if before != "process "+pids[1] || b.figure("relay") != "process "+pids[2] || pids[1] == pids[2] {
		t.Errorf("before %s, after %s: %s", before, b.figure("relay"), outcome)
	}
	if got := other.text("#outcome-kill-relay"); got != outcome {
		t.Errorf("the other browser shows %q", got)
	}
	b.await(`document.querySelector("[aria-live]").textContent.includes("went on after")`)
	b.shoot("kill-relay")
	other.leave()
	s.settle(b, s.orders())
}

func TestTakeTheBrokerAway(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	b := s.open(t, desktop)
	outcome := b.experiment("broker-away", inState("broker", "away"), inState("relay", "held"), inState("log", "waiting"))
	found := match(t, `away for 5\.0 s\. (\d+) orders were taken meanwhile, and (\d+) waited; .* found it away (\d+) times, and spent 0 attempts\.`, outcome)
	if found[1] == "0" || found[2] == "0" || found[3] == "0" {
		t.Errorf("nothing happened: %s", outcome)
	}
	if b.state("broker") != "up" || b.state("relay") != "running" {
		t.Errorf("broker %s, relay %s", b.state("broker"), b.state("relay"))
	}
	b.shoot("broker-away")
	s.settle(b, s.orders())
}

func TestFailNotification(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	b := s.open(t, desktop)
	outcome := b.experiment("fail-notification", inState("service-notification", "failing"),
		`document.querySelector("#outcome-fail-notification").innerText.includes("All but notification are done")`)
	match(t, `away for 5\.0 s\. \d+ orders were taken meanwhile; \d+\.\d s after its return each had its one mail\. Notification gave back 0 messages\.`, outcome)
	if b.state("service-notification") != "" || b.figure("dead-notification") != "0" {
		t.Errorf("notification %q, %s dead letters", b.state("service-notification"), b.figure("dead-notification"))
	}
	b.shoot("fail-notification")
	s.settle(b, s.orders())
}

func TestDeliverTwice(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	b := s.open(t, desktop)
	outcome := b.experiment("deliver-twice")
	match(t, `The order of twice-\d+ came twice to all four services\. 4 copies came, and had no effect\.`, outcome)
	for _, name := range services {
		if got := b.figure("delivered-" + name); got != "2" {
			t.Errorf("%s got %s deliveries", name, got)
		}
		if got := b.figure("repeats-" + name); got != "1" {
			t.Errorf("%s got %s copies", name, got)
		}
	}
	if row := b.text(".latest tbody tr"); strings.Count(row, "+1 copy") != 4 {
		t.Errorf("the order's row: %q", row)
	}
	s.settle(b, 1)
}

func TestPoison(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	b := s.open(t, desktop)
	outcome := b.experiment("poison")
	match(t, `After five tries each, \d+\.\d s, the message is in the dead-letter queues of all four services\. \d+ orders went past it meanwhile\.`, outcome)
	for _, name := range services {
		b.await(figureIs("dead-"+name, "1"))
		b.await(figureIs("letters-"+name, "1 dead letter"))
		if got := b.figure("refused-" + name); got != "5" {
			t.Errorf("%s refused it %s times", name, got)
		}
		b.await(figureIs("queued-"+name, number(s.orders()+1)))
	}
	b.shoot("poison")
	s.settle(b, s.orders())
}

// One thing is broken at a time, whoever asks.
func TestOneExperimentAtATime(t *testing.T) {
	t.Parallel()
	s := startShop(t, "--plain")
	b, other := s.open(t, desktop), s.open(t, desktop)
	other.expect("409")
	b.press(`form[action="/experiments/poison"] button`)
	other.await(`document.querySelectorAll(".lab button[aria-disabled=true]").length === 4`)
	other.press(`form[action="/experiments/kill-relay"] button`)
	other.await(`document.querySelector("#outcome-kill-relay").innerText.includes("“Poison a message” is running. One at a time, please")`)
	b.await(`document.querySelector("#outcome-poison .good") !== null`)
	other.await(`document.querySelectorAll(".lab button[aria-disabled=true]").length === 0`)
	if got := b.text("#outcome-poison"); !strings.Contains(got, "the dead-letter queue of fulfilment") {
		t.Errorf("the outcome: %s", got)
	}
	b.await(inState("verdict", "settled"))
	b.shoot("plain")
}
