package analytics

import (
	"context"
	"net/http"

	"github.com/postrider/postrider/examples/orders/web"
)

// Limits of one answer.
const (
	defaultLimit = 100
	// MaxLimit is how many minutes or customers one answer has at most.
	MaxLimit = 1000
)

// Handler answers GET /minutes and GET /customers, both with ?limit=N, and GET
// /total, and every mistake with problem JSON.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/minutes", web.Methods{http.MethodGet: list(s, "minutes", s.Minutes)})
	mux.Handle("/customers", web.Methods{http.MethodGet: list(s, "customers", s.Customers)})
	mux.Handle("/total", web.Methods{http.MethodGet: s.total})
	mux.HandleFunc("/", web.NotFound)
	return mux
}

func list[T any](s *Service, name string, read func(context.Context, int) ([]T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		limit, problem := web.Limit(r, defaultLimit, MaxLimit)
		if problem != nil {
			problem.ServeHTTP(w, r)
			return
		}
		all, err := read(r.Context(), limit)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		web.WriteJSON(w, http.StatusOK, map[string][]T{name: all})
	}
}

func (s *Service) total(w http.ResponseWriter, r *http.Request) {
	sums, err := s.Total(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	web.WriteJSON(w, http.StatusOK, sums)
}

// fail logs the error and tells the client no more than that it failed.
func (s *Service) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client has gone
	}
	s.log.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "error", err)
	(&web.Problem{Status: http.StatusInternalServerError, Detail: "the service could not read its database; try again"}).ServeHTTP(w, r)
}
