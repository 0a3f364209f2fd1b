package pooler

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/test/internal/programs"
)

// part is the text below a heading of docs/postgresql.md.
func part(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/postgresql.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/postgresql.md has no part %q", heading)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

// What the document says does not matter is tried, and the command that it shows
// works.
func TestTheDocumentIsTrue(t *testing.T) {
	t.Parallel()
	paragraph, _, _ := strings.Cut(strings.TrimSpace(part(t, "Settings that do not matter")), "Clocks may")
	names := regexp.MustCompile("`([A-Za-z_]+)`").FindAllStringSubmatch(paragraph, -1)
	if len(names) < 10 {
		t.Errorf("it names only %v", names)
	}
	for _, name := range names {
		tried := false
		for _, session := range oddSessions {
			for _, set := range session.set {
				tried = tried || strings.HasPrefix(set, name[1]+" =")
			}
		}
		if !tried {
			t.Errorf("nobody tries %s", name[1])
		}
	}
	command := regexp.MustCompile("```sh\n(.*)\n```").FindStringSubmatch(part(t, "Through a pooler"))
	if command == nil {
		t.Fatal("it shows no command")
	}
	url, _ := database(t)
	b := newBouncer(t, url)
	line := strings.NewReplacer("postgres://relay@pooler.example:6432/shop", b.url(), "postgres://owner@db.example/shop", url).Replace(command[1])
	args := strings.Fields(line)
	if code, out, stderr := programs.Run(t, programs.Environment(t), args[0], args[1:]...); code != 0 || !strings.Contains(out, "applied 0001") || strings.Contains(line, "example") {
		t.Errorf("%q: exit code %d: %s%s", args, code, out, stderr)
	}
}
