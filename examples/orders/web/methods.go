package web

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Methods answers each HTTP method with its handler, HEAD with GET's, and any
// other with a 405 that lists the allowed ones.
type Methods map[string]http.HandlerFunc

func (m Methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead && m[method] == nil {
		method = http.MethodGet
	}
	if handler, ok := m[method]; ok {
		handler(w, r)
		return
	}
	allowed := slices.Sorted(maps.Keys(m))
	if m[http.MethodGet] != nil && m[http.MethodHead] == nil {
		allowed = append(allowed, http.MethodHead)
	}
	allow := strings.Join(allowed, ", ")
	w.Header().Set("Allow", allow)
	(&Problem{Status: http.StatusMethodNotAllowed, Detail: "allowed here: " + allow}).ServeHTTP(w, r)
}

// NotFound answers 404 as a problem.
func NotFound(w http.ResponseWriter, r *http.Request) {
	(&Problem{Status: http.StatusNotFound, Detail: "there is nothing at this path"}).ServeHTTP(w, r)
}
