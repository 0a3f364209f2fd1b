package search

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/examples/orders/web"
)

// Limits of a search over HTTP.
const (
	defaultLimit = 20
	// MaxLimit is how many orders one answer has at most.
	MaxLimit = 100
	// MaxQuery is how many characters a search may have.
	MaxQuery = 250
)

// Handler answers GET /search?q=TEXT&limit=N, and every mistake with problem
// JSON.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/search", web.Methods{http.MethodGet: s.search})
	mux.HandleFunc("/", web.NotFound)
	return mux
}

func (s *Service) search(w http.ResponseWriter, r *http.Request) {
	text, problem := readQuery(r)
	if problem != nil {
		problem.ServeHTTP(w, r)
		return
	}
	limit, problem := web.Limit(r, defaultLimit, MaxLimit)
	if problem != nil {
		problem.ServeHTTP(w, r)
		return
	}
	result, err := s.Search(r.Context(), text, limit)
	if err != nil {
		if r.Context().Err() == nil { // otherwise the client has gone
			s.log.ErrorContext(r.Context(), "search failed", "error", err)
			(&web.Problem{Status: http.StatusInternalServerError, Detail: "the search failed; try again"}).ServeHTTP(w, r)
		}
		return
	}
	web.WriteJSON(w, http.StatusOK, result)
}

func readQuery(r *http.Request) (string, *web.Problem) {
	invalid := func(detail string) (string, *web.Problem) {
		return "", web.Invalid(web.Field{Name: "q", Detail: detail})
	}
	values := r.URL.Query()["q"]
	switch {
	case len(values) == 0:
		return invalid("is missing")
	case len(values) > 1:
		return invalid("must be given once")
	case !utf8.ValidString(values[0]):
		return invalid("is not UTF-8")
	case strings.TrimSpace(values[0]) == "":
		return invalid("must not be empty")
	case utf8.RuneCountInString(values[0]) > MaxQuery:
		return invalid(fmt.Sprintf("must have at most %d characters", MaxQuery))
	}
	return values[0], nil
}
