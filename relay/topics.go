package relay

import (
	"fmt"
	"regexp"
	"strings"
)

// Matcher compiles topic patterns: "*" matches within one dot-separated part,
// "**" any rest, everything else itself, case included. The function reports
// whether any pattern matches the whole topic.
func Matcher(patterns []string) (func(topic string) bool, error) {
	if len(patterns) == 0 {
		return nil, fmt.Errorf("no topic pattern: \"**\" takes every topic")
	}
	exact := make(map[string]bool)
	var alternatives []string
	for _, p := range patterns {
		switch {
		case p == "":
			return nil, fmt.Errorf("an empty topic pattern: \"**\" takes every topic")
		case p == "**":
			return func(string) bool { return true }, nil
		case !strings.Contains(p, "*"):
			exact[p] = true
		default:
			alternatives = append(alternatives, translate(p))
		}
	}
	if len(alternatives) == 0 {
		return func(topic string) bool { return exact[topic] }, nil
	}
	re, err := regexp.Compile(`^(?s:` + strings.Join(alternatives, "|") + `)$`)
	if err != nil {
		return nil, fmt.Errorf("topic patterns %q: %w", patterns, err)
	}
	return func(topic string) bool { return exact[topic] || re.MatchString(topic) }, nil
}

func translate(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch {
		case strings.HasPrefix(pattern[i:], "**"):
			b.WriteString(`.*`)
			i++
		case pattern[i] == '*':
			b.WriteString(`[^.]*`)
		default:
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		}
	}
	return b.String()
}
