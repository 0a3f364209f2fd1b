package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/postrider/postrider/internal/testsize"
)

var services = []string{"fulfilment", "notification", "analytics", "search"}

// One order is seen on its whole way, in both browsers that watch.
func TestOneOrder(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	b, other := s.open(t, desktop), s.open(t, desktop)
	if verdict := b.figure("verdict"); verdict != "No order yet." {
		t.Errorf("at first: %s", verdict)
	}
	// Count the dots that move, while they do.
	eval[bool](b, `window.seen = new Set(); new MutationObserver(changes => {
		for (const c of changes) for (const n of c.addedNodes) if (n.classList?.contains("dot")) seen.add(n);
	}).observe(document.querySelector(".drawing.wide .dots"), {childList: true}) || true`)
	b.fill("#customer", "grace")
	b.fill("#amount", "12.50")
	b.press("button[name=orders][value='1']")
	for _, viewer := range []*tab{b, other} {
		viewer.await(figureIs("verdict", "Nothing is lost: 1 order in all four services, each once."))
		for _, name := range []string{"commits", "taken", "sent", "queued-search", "delivered-fulfilment", "delivered-notification", "delivered-analytics", "delivered-search"} {
			if got := viewer.figure(name); got != "1" {
				t.Errorf("%s: %q have passed", name, got)
			}
		}
		for _, name := range append([]string{"relay", "topic"}, times()...) {
			if got := viewer.figure("time-" + name); !strings.HasPrefix(got, "+") || !strings.HasSuffix(got, " ms") {
				t.Errorf("time at %s: %q", name, got)
			}
		}
		row := viewer.text(".latest tbody tr")
		if !strings.Contains(row, "grace") || !strings.Contains(row, "12.50") || strings.Count(row, " ms") != 6 {
			t.Errorf("the latest order: %q", row)
		}
		viewer.await(`document.querySelector(".letters .to")?.innerText.includes("grace")`)
		viewer.await(`document.querySelector(".customers tbody").innerText.includes("12.50")`)
	}
	b.await(`seen.size === 11`) // commit, take, send, four to queues, four to services
	if text := b.text("#placed"); !strings.Contains(text, "Placed, and committed with its event") {
		t.Errorf("the answer: %q", text)
	}
	b.fill("#q", "grace")
	b.await(`document.querySelector("#found").innerText.includes("1 order found")`)
	b.await(`document.querySelector("[aria-live]").textContent.includes("1 order has reached four services")`)
	b.shoot("one-order")
	other.leave()
	s.settle(b, 1)
}

func times() (names []string) {
	for _, s := range services {
		names = append(names, "queue-"+s, "service-"+s)
	}
	return names
}

// Hundreds of orders, watched by a phone in the dark.
func TestAHundredOrders(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	b := s.open(t, look{width: 375, height: 812, scale: 2, dark: true})
	hundreds := testsize.Pick(1, 10)
	orders := 100 * hundreds
	for i := range hundreds {
		b.press("button[name=orders][value='100']")
		b.await(figureIs("placed", number(100*(i+1))))
		b.await(`document.querySelector("#placed").innerText.includes("100 orders placed")`)
	}
	if n := b.overflow(); n > 0 {
		t.Errorf("%d pixels wider than the screen", n)
	}
	if shown := eval[[]string](b, `[...document.querySelectorAll(".drawing")].filter(d => d.getClientRects().length).map(d => d.classList[1])`); len(shown) != 1 || shown[0] != "narrow" {
		t.Errorf("drawings shown: %v", shown)
	}
	if ground := eval[string](b, `getComputedStyle(document.body).backgroundColor`); ground != "rgb(18, 21, 25)" {
		t.Errorf("the ground in the dark is %s", ground)
	}
	b.await(figureIs("verdict", fmt.Sprintf("Nothing is lost: %s orders in all four services, each once.", number(orders))))
	b.shoot("phone-dark")
	s.settle(b, orders)
}

// Names of customers are text, wherever they are shown.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	b := s.open(t, desktop)
	names := []string{
		`<script>window.broken=1</script>`,
		`<img src=x onerror="window.broken=1">`,
		`"><svg/onload=window.broken=1>`,
		`{{7*7}} ${7*7} </tbody></table><h1>`,
		`data: x` + "\u2028" + `event: figures`,
		strings.Repeat("W", 200),
	}
	for i, name := range names {
		b.fill("#customer", name)
		b.press("button[name=orders][value='1']")
		b.await(figureIs("placed", number(i+1)))
	}
	for _, name := range names {
		b.await(fmt.Sprintf(`[...document.querySelectorAll(".latest .customer")].some(e => e.textContent === %s)`, quote(name)))
	}
	b.await(figureIs("total-search", number(len(names))))
	b.fill("#q", names[0])
	b.await(`document.querySelector("#found").innerText.includes("found")`)
	b.fill("#q", `"><script>window.broken=1</script>`)
	b.await(`document.querySelector("#found").innerText !== ""`)
	b.await(`document.querySelectorAll(".letters li").length === 3`)
	if eval[bool](b, `!!window.broken || document.querySelectorAll("main img, main tbody script, h1").length !== 1`) {
		t.Error("a name became a part of the page")
	}
	b.see(look{width: 375, height: 812})
	if n := b.overflow(); n > 0 {
		t.Errorf("%d pixels wider than the screen", n)
	}
	b.see(desktop)
	b.shoot("hostile-names")
	s.settle(b, len(names))
}

// What is wrong with a form is said beside it, and nothing is placed.
func TestWrongForms(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	b := s.open(t, desktop)
	b.expect("400")
	for _, c := range []struct{ customer, amount, want string }{
		{"ada", "free", "the amount must be a number"},
		{"ada", "0", "the amount must be a number"},
		{"ada", "1.234", "the amount must be a number"},
		{" ", "5", "customerId must not be empty"},
	} {
		b.fill("#customer", c.customer)
		b.fill("#amount", c.amount)
		b.press("button[name=orders][value='1']")
		b.await(fmt.Sprintf(`document.querySelector("#placed").innerText.includes(%s)`, quote(c.want)))
		eval[bool](b, `document.querySelector("#placed").replaceChildren() || true`)
	}
	b.fill("#customer", "ada")
	b.fill("#amount", "1000000,5")
	b.press("button[name=orders][value='1']")
	b.await(`document.querySelector(".latest tbody").innerText.includes("1,000,000.50")`)
	s.settle(b, 1)
}

// The page works at twice the size, and without scripts.
func TestZoomAndNoScripts(t *testing.T) {
	t.Parallel()
	s := startShop(t, "--orders", "3")
	b := s.open(t, look{width: 640, height: 450, scale: 2}) // a screen of 1280, zoomed to 200 %
	b.await(figureIs("total-search", "3"))
	if n := b.overflow(); n > 0 {
		t.Errorf("%d pixels wider than the screen", n)
	}
	b.press("button[name=orders][value='1']")
	b.await(figureIs("placed", "4"))
	b.shoot("zoom-200")
	plain := s.open(t, desktop)
	plain.withoutScripts()
	plain.do(chromedp.Navigate(s.url))
	plain.do(chromedp.Focus(chromedp.CSS("button[name=orders][value='1']")), chromedp.KeyEvent("\r"))
	plain.do(chromedp.WaitVisible(chromedp.CSS("#placed code")))
	plain.shoot("no-scripts")
	plain.leave()
	s.settle(b, 5)
}

// Who wants nothing to move sees arrows light up instead.
func TestCalm(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	b := s.open(t, look{width: 1280, height: 900, calm: true})
	eval[bool](b, `window.lit = new Set(); new MutationObserver(changes => {
		for (const c of changes) if (c.target.classList.contains("lit")) lit.add(c.target.dataset.hop);
	}).observe(document.querySelector(".drawing.wide"), {subtree: true, attributeFilter: ["class"]}) || true`)
	b.press("button[name=orders][value='1']")
	b.await(`lit.size === 11`)
	if n := eval[int](b, `document.querySelectorAll(".dot").length`); n != 0 {
		t.Errorf("%d dots move", n)
	}
	s.settle(b, 1)
}
