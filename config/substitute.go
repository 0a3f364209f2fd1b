package config

import (
	"fmt"
	"strings"
)

// substitute replaces ${NAME} by the variable's value and $$ by $. A $ before
// anything else stays. Values are not looked at again, so that one cannot pull
// in another. It reports every variable that is not set or badly written, and
// whether anything was replaced from a variable.
func substitute(s string, lookup func(string) (string, bool)) (out string, used bool, problems [][2]string) {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			b.WriteString(s)
			return b.String(), used, problems
		}
		b.WriteString(s[:i])
		s = s[i+1:]
		switch s[0] {
		case '$':
			b.WriteByte('$')
			s = s[1:]
		case '{':
			end := strings.IndexByte(s, '}')
			if end < 0 {
				problems = append(problems, [2]string{"${ without its }", "write ${NAME}, or $${ for the characters themselves"})
				return b.String(), used, problems
			}
			name := s[1:end]
			s = s[end+1:]
			used = true
			if !variableName(name) {
				problems = append(problems, [2]string{
					"what stands between ${ and } is not the name of a variable",
					"names have letters, digits and _, and there are no defaults or other operators"})
				continue
			}
			value, ok := lookup(name)
			if !ok {
				problems = append(problems, [2]string{
					fmt.Sprintf("the variable %s is not set", name),
					fmt.Sprintf("set it, or write $${%s} if the text itself is meant", name)})
			}
			b.WriteString(value)
		default:
			b.WriteByte('$')
		}
	}
}

func variableName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
