package web

import (
	"fmt"
	"net/http"
	"strconv"
)

// Limit reads the parameter limit of a request for a list: how many entries the
// answer may have, from 1 to most.
func Limit(r *http.Request, standard, most int) (int, *Problem) {
	values, given := r.URL.Query()["limit"]
	if !given {
		return standard, nil
	}
	n, err := strconv.Atoi(values[0])
	if err != nil || len(values) > 1 || n < 1 || n > most {
		return 0, Invalid(Field{Name: "limit", Detail: fmt.Sprintf("must be one whole number from 1 to %d", most)})
	}
	return n, nil
}
