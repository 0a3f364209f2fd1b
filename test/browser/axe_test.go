package browser

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// axe-core 4.14.1, from npm, unchanged; its licence (MPL-2.0) is beside it.
//
//go:embed testdata/axe.min.js
var axe string

// violation is one of axe's findings.
type violation struct {
	ID    string   `json:"id"`
	Help  string   `json:"help"`
	Nodes []string `json:"nodes"`
}

// audit fails for each violation of WCAG 2.2, levels A and AA.
func (b *tab) audit(when string) {
	b.t.Helper()
	if eval[bool](b, `typeof axe === "undefined"`) {
		b.do(chromedp.Evaluate[chromedp.Void](axe))
	}
	b.await(`!document.getAnimations().some(a => a instanceof CSSTransition)`) // colours are what they will be
	found := eval[[]violation](b, `axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}).then(
		result => result.violations.map(v => ({id: v.id, help: v.help, nodes: v.nodes.map(n => n.html + "\n" + n.failureSummary)})))`)
	for _, v := range found {
		b.t.Errorf("%s: %s: %s\n  %s", when, v.ID, v.Help, strings.Join(v.Nodes, "\n  "))
	}
	if passes := eval[int](b, `axe.run(document).then(result => result.passes.length)`); passes < 10 {
		b.t.Errorf("%s: axe looked at %d rules only", when, passes)
	}
}

// The page has no violation that axe finds: empty, with orders, while things are
// broken and afterwards, on wide and narrow screens, in light and dark.
func TestAccessibility(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	b := s.open(t, desktop)
	b.audit("empty")
	b.press("button[name=orders][value='1']")
	b.await(figureIs("total-search", "1"))
	b.fill("#q", "ada")
	b.await(`document.querySelector("#found").innerText.includes("1 order found")`)
	eval[bool](b, `document.querySelector("details").open = true`)
	for _, dark := range []bool{false, true} {
		for _, width := range []int64{1280, 375} {
			b.see(look{width: width, height: 900, dark: dark})
			b.audit(fmt.Sprintf("with an order, %d pixels wide, dark: %v", width, dark))
		}
	}
	b.shoot("phone-dark-table")
	for _, dark := range []bool{false, true} {
		b.see(look{width: 1280, height: 900, dark: dark})
		b.experiment("poison", `document.querySelectorAll(".lab button[aria-disabled=true]").length === 5`)
		b.audit(fmt.Sprintf("after an experiment, dark: %v", dark))
	}
	b.shoot("desktop-dark")
	b.do(chromedp.Navigate(s.url + "/licences"))
	b.audit("licences")
}

// Everything can be reached and used with the keyboard, in an order that makes
// sense, and what has the focus is seen.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	b := s.open(t, desktop)
	var reached []string
	for range 30 {
		b.do(chromedp.KeyEvent("\t"))
		at := eval[string](b, `(e => e === document.body ? "" : (e.innerText || e.id || e.getAttribute("aria-label") || e.tagName).trim().split(/[\n\t]/)[0])(document.activeElement)`)
		if at == "" {
			break
		}
		if !eval[bool](b, `(e => getComputedStyle(e).outlineStyle !== "none" && parseFloat(getComputedStyle(e).outlineWidth) >= 2)(document.activeElement)`) {
			t.Errorf("%q does not show that it has the focus", at)
		}
		reached = append(reached, at)
	}
	want := []string{
		"Skip to placing an order", "customer", "amount", "Place an order", "Place 100 orders", "The picture as a table",
		"Kill its process", "Cut it off", "Stop its mail server", "Lose an answer", "Send one", "Order", "q", "Search", "Licences",
	}
	if strings.Join(reached, "|") != strings.Join(want, "|") {
		t.Errorf("the focus went\n%q\nwant\n%q", reached, want)
	}
	// Return in a field places the order, and the focus stays where it was.
	b.do(chromedp.Focus(chromedp.CSS("#amount")), chromedp.KeyEvent("\r"))
	b.await(figureIs("total-notification", "1"))
	if at := eval[string](b, `document.activeElement.id`); at != "amount" {
		t.Errorf("the focus went to %q", at)
	}
	s.settle(b, 1)
}
