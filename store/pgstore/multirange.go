package pgstore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/numset"
)

// formatMultirange writes a set as PostgreSQL's text form of int8multirange.
func formatMultirange(set numset.Set) string {
	b := make([]byte, 0, 2+24*len(set.Ranges()))
	b = append(b, '{')
	for i, r := range set.Ranges() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		b = strconv.AppendInt(b, r.First, 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, r.Last+1, 10)
		b = append(b, ')')
	}
	return string(append(b, '}'))
}

// parseMultirange reads PostgreSQL's canonical text form of int8multirange.
func parseMultirange(text string) (numset.Set, error) {
	var set numset.Set
	body, ok := strings.CutPrefix(text, "{[")
	if !ok {
		if text == "{}" {
			return set, nil
		}
		return set, fmt.Errorf("unexpected set of numbers %q", text)
	}
	body = strings.TrimSuffix(body, ")}")
	for part := range strings.SplitSeq(body, "),[") {
		first, end, _ := strings.Cut(part, ",")
		a, err1 := strconv.ParseInt(first, 10, 64)
		b, err2 := strconv.ParseInt(end, 10, 64)
		if err1 != nil || err2 != nil {
			return set, fmt.Errorf("unexpected range %q in a set of numbers", part)
		}
		set.Add(a, b-1)
	}
	return set, nil
}
