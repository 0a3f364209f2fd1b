package page

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/examples/orders/web"
)

const (
	// maxForm is how many bytes a form may have.
	maxForm = 16 << 10
	// maxPlacing is how many requests may place orders at the same time.
	maxPlacing = 4
	// maxAtOnce is how many orders one request may place.
	maxAtOnce = 100
	// maxQuery is how many bytes a search may have.
	maxQuery = 200
	// writeTimeout is how long a viewer may take for one frame.
	writeTimeout = 10 * time.Second
	// heartbeat is the longest silence of a stream, so that proxies between
	// keep it open and a viewer that has gone is noticed.
	heartbeat = 15 * time.Second
)

// policy lets the browser load what this server has, and nothing that is
// written into the page itself.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// defaultForm is what the form for a new order contains at first.
var defaultForm = form{Customer: "ada", Amount: "49.99"}

// Handler answers everything that belongs to the page: / and what is named
// here. Whatever is posted must come from the page itself.
func (p *Page) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/{$}", web.Methods{http.MethodGet: p.index})
	mux.Handle("/events", web.Methods{http.MethodGet: p.events})
	mux.Handle("/place", web.Methods{http.MethodPost: p.place})
	mux.Handle("/experiments/{name}", web.Methods{http.MethodPost: p.experiment})
	if p.config.Search != nil {
		mux.Handle("/find", web.Methods{http.MethodGet: p.find})
	}
	mux.Handle("/licences", web.Methods{http.MethodGet: p.licences})
	mux.Handle("/assets/{version}/{name...}", web.Methods{http.MethodGet: serveAsset})
	mux.HandleFunc("/", web.NotFound)
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(&web.Problem{Status: http.StatusForbidden, Detail: "this comes from another site"})
	return guarded(guard.Handler(mux))
}

func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// show renders a template as the answer.
func (p *Page) show(w http.ResponseWriter, r *http.Request, status int, name string, of any) {
	var out bytes.Buffer
	if err := render(&out, name, of); err != nil {
		p.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // a client that has gone needs no answer
}

func (p *Page) fail(w http.ResponseWriter, r *http.Request, err error) {
	p.log.ErrorContext(r.Context(), "the page failed", "path", r.URL.Path, "error", err)
	(&web.Problem{Status: http.StatusInternalServerError, Detail: "the page could not be made; the log says why"}).ServeHTTP(w, r)
}

func (p *Page) index(w http.ResponseWriter, r *http.Request) {
	d := p.data()
	d.Form = defaultForm
	if query := r.URL.Query().Get("q"); query != "" && p.config.Search != nil {
		d.Query, d.Found = query, p.search(r.Context(), query)
	}
	p.show(w, r, http.StatusOK, "page.html", d)
}

func (p *Page) licences(w http.ResponseWriter, r *http.Request) {
	p.show(w, r, http.StatusOK, "licences", licences())
}

// partial reports whether a part of the page is wanted; otherwise the browser
// runs no scripts and needs a whole one.
func partial(r *http.Request) bool { return r.Header.Get("HX-Request") == "true" }

// place places one order, or many.
func (p *Page) place(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		(&web.Problem{Status: http.StatusBadRequest, Detail: "the form cannot be read, or is too large"}).ServeHTTP(w, r)
		return
	}
	entered := form{Customer: r.PostForm.Get("customer"), Amount: r.PostForm.Get("amount")}
	answer, status := p.tryPlacing(r.Context(), r.PostForm.Get("orders"), entered)
	if partial(r) {
		p.show(w, r, status, "placed", answer)
		return
	}
	d := p.data()
	d.Form, d.Placed = entered, answer
	p.show(w, r, status, "page.html", d)
}

func (p *Page) tryPlacing(ctx context.Context, orders string, entered form) (placed, int) {
	n, err := strconv.Atoi(orders)
	if err != nil || n < 1 || n > maxAtOnce {
		return placed{Error: fmt.Sprintf("the number of orders must be from 1 to %d.", maxAtOnce)}, http.StatusBadRequest
	}
	cents, err := parseMoney(entered.Amount)
	if err != nil {
		return placed{Error: err.Error() + "."}, http.StatusBadRequest
	}
	select {
	case p.placer <- struct{}{}:
		defer func() { <-p.placer }()
	default:
		return placed{Error: "others are placing orders just now; try again."}, http.StatusServiceUnavailable
	}
	begin := time.Now()
	id, err := p.config.Place(ctx, n, entered.Customer, cents)
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return placed{Error: refusal.Detail + "."}, http.StatusBadRequest
	}
	if err != nil {
		p.log.ErrorContext(ctx, "orders could not be placed", "orders", n, "error", err)
		return placed{Error: "the order service did not take it; the log says why."}, http.StatusBadGateway
	}
	if n == 1 {
		return placed{Text: "Placed, and committed with its event:", ID: id}, http.StatusOK
	}
	return placed{Text: fmt.Sprintf("%d orders placed over HTTP in %d ms.", n, time.Since(begin).Milliseconds())}, http.StatusOK
}

// parseMoney reads an amount such as 49.99 or 5 as cents.
func parseMoney(text string) (int64, error) {
	text = strings.ReplaceAll(strings.TrimSpace(text), ",", ".")
	whole, fraction, _ := strings.Cut(text, ".")
	cents, err := strconv.ParseInt(whole+(fraction + "00")[:2], 10, 64)
	if err != nil || len(fraction) > 2 || cents <= 0 || strings.ContainsAny(text, "+-") {
		return 0, errors.New("the amount must be a number such as 49.99")
	}
	return cents, nil
}

// experiment starts one.
func (p *Page) experiment(w http.ResponseWriter, r *http.Request) {
	index, known, busy, closed := p.lab.claim(r.PathValue("name"))
	if !known {
		web.NotFound(w, r)
		return
	}
	if busy != "" || closed {
		detail := "the demo is stopping."
		if busy != "" {
			detail = "“" + busy + "” is running. One at a time, please; it ends by itself."
		}
		p.show(w, r, http.StatusConflict, "outcome", trial{Text: detail, Bad: true})
		return
	}
	p.lab.starts <- index
	if partial(r) {
		w.WriteHeader(http.StatusNoContent) // the stream tells everybody
		return
	}
	http.Redirect(w, r, "/#lab-title", http.StatusSeeOther)
}

// find searches.
func (p *Page) find(w http.ResponseWriter, r *http.Request) {
	p.show(w, r, http.StatusOK, "found", p.search(r.Context(), r.URL.Query().Get("q")))
}

func (p *Page) search(ctx context.Context, query string) found {
	query = strings.TrimSpace(query)
	if query == "" {
		return found{}
	}
	if len(query) > maxQuery {
		return found{Query: query, Error: fmt.Sprintf("A search has at most %d characters.", maxQuery)}
	}
	hits, total, err := p.config.Search(ctx, query)
	if err != nil {
		p.log.ErrorContext(ctx, "a search failed", "error", err)
		return found{Query: query, Error: "The search did not work; the log says why."}
	}
	return found{Query: query, Hits: hits, Total: total}
}

// events is the stream of what changes.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	v := p.hub.join()
	if v == nil {
		w.Header().Set("Retry-After", "10")
		(&web.Problem{Status: http.StatusServiceUnavailable, Detail: "too many are watching, or the demo is stopping"}).ServeHTTP(w, r)
		return
	}
	defer p.hub.leave(v)
	stream := http.NewResponseController(w)
	// The server's limits are for requests that end.
	if err := stream.SetReadDeadline(time.Time{}); err != nil {
		p.fail(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	write := func(frame []byte) bool {
		if stream.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
			return false
		}
		_, err := w.Write(frame)
		return err == nil && stream.Flush() == nil
	}
	if !write([]byte("retry: 1000\n\n")) {
		return
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		frame := []byte(":\n\n")
		select {
		case <-r.Context().Done():
			return
		case <-beat.C:
		case next, ok := <-v.frames:
			if !ok {
				return
			}
			frame = next
		}
		if !write(frame) {
			return
		}
	}
}
