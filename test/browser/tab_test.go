package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// tab is one tab of a browser without a past, that shows the page.
type tab struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	errors   []string
	expected []string // parts of errors that a test causes on purpose
}

// look is how a tab looks at the page.
type look struct {
	width, height int64
	scale         float64 // 0: 1
	dark          bool
	calm          bool // prefers less motion
}

var desktop = look{width: 1280, height: 900}

// open opens a tab on the page of the shop, and waits until it is live.
func (s *shop) open(t testing.TB, l look) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(theBrowser(t), chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	b.see(l)
	b.listen()
	b.do(chromedp.Navigate(s.url))
	b.await(`document.querySelector("[data-part=connection]").dataset.state === "live"`)
	t.Cleanup(func() {
		if t.Failed() {
			b.shoot("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, e := range b.errors {
			t.Errorf("the browser complains: %s", e)
		}
	})
	return b
}

// see changes how the tab looks at the page.
func (b *tab) see(l look) {
	b.t.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}, {Name: "prefers-reduced-motion", Value: "no-preference"}}
	if l.dark {
		features[0].Value = "dark"
	}
	if l.calm {
		features[1].Value = "reduce"
	}
	if l.scale == 0 {
		l.scale = 1
	}
	b.do(chromedp.EmulateViewport(l.width, l.height, chromedp.EmulateScale(l.scale)))
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		b.t.Fatal(err)
	}
}

// listen gathers what the browser has against the page: exceptions, what its
// policy forbids, what could not be loaded.
func (b *tab) listen() {
	messages := chromedp.Console(b.ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type != chromedp.ConsoleException && m.Type != "error" && m.Type != "assert" {
				continue
			}
			b.mu.Lock()
			known := false
			for _, part := range b.expected {
				known = known || strings.Contains(m.Text, part)
			}
			if !known {
				b.errors = append(b.errors, m.Text)
			}
			b.mu.Unlock()
		}
	}()
}

// expect says what the browser may complain about.
func (b *tab) expect(part string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, part)
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// await waits until the expression is true.
func (b *tab) await(expression string) {
	b.t.Helper()
	_, err := chromedp.Run(b.ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(patience), chromedp.WithPollingInterval(50*time.Millisecond)))
	if err != nil {
		b.t.Fatalf("never true: %s: %v\nthe page says: %s", expression, err, b.figure("verdict"))
	}
}

// quote writes a text as a literal of JavaScript.
func quote(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// figure is one of the page's figures. All places where it is must agree.
func (b *tab) figure(name string) string {
	b.t.Helper()
	all := eval[[]string](b, fmt.Sprintf(`[...document.querySelectorAll('[data-figure="%s"]')].map(e => e.textContent)`, name))
	if len(all) == 0 {
		b.t.Fatalf("there is no figure %q", name)
	}
	for _, text := range all {
		if text != all[0] {
			b.t.Errorf("figure %s: %q in different places", name, all)
		}
	}
	return all[0]
}

func figureIs(name, text string) string {
	return fmt.Sprintf(`document.querySelector('[data-figure="%s"]').textContent === %s`, name, quote(text))
}

func (b *tab) state(part string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf(`document.querySelector('[data-part="%s"]').dataset.state`, part))
}

// text is what an element shows.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf(`document.querySelector(%s).innerText`, quote(selector)))
}

// press presses a button with the keyboard.
func (b *tab) press(selector string) {
	b.t.Helper()
	b.do(chromedp.Focus(chromedp.CSS(selector)), chromedp.KeyEvent("\r"))
}

// fill replaces what a field contains, as pasting does.
func (b *tab) fill(selector, value string) {
	b.t.Helper()
	eval[bool](b, fmt.Sprintf(`(field => {
		field.value = %s;
		return field.dispatchEvent(new InputEvent("input", {bubbles: true}));
	})(document.querySelector(%s))`, quote(value), quote(selector)))
}

// shoot keeps a picture of the whole page.
func (b *tab) shoot(name string) {
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		dir := filepath.Join("..", "..", ".artifacts", "browser")
		if err = os.MkdirAll(dir, 0o755); err == nil {
			err = os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644)
		}
	}
	if err != nil {
		b.t.Errorf("no picture: %v", err)
	}
}

// overflow is by how many pixels the page is wider than the screen.
func (b *tab) overflow() int {
	b.t.Helper()
	return eval[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`)
}

func (b *tab) withoutScripts() {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	if err != nil {
		b.t.Fatal(err)
	}
}

// leave closes the page, so that the tab does not notice the demo's end.
func (b *tab) leave() {
	b.t.Helper()
	b.do(chromedp.Navigate("about:blank"))
}
