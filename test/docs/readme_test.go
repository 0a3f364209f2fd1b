// Package docs tries what the documents show.
package docs

import (
	"context"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/store/pgstore"
)

// blocks are the README's code blocks of one language.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	return blocksOf(t, "../../README.md", language)
}

func blocksOf(t *testing.T, file, language string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllSubmatch(text, -1) {
		all = append(all, string(m[1]))
	}
	if len(all) == 0 {
		t.Fatalf("%s shows no %s", file, language)
	}
	return all
}

func TestGoInTheReadmeCompiles(t *testing.T) {
	for _, source := range blocks(t, "go") {
		dir, err := os.MkdirTemp(".", "_readme_") // ./... passes it over
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if err := os.WriteFile(filepath.Join(dir, "readme.go"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := osexec.CommandContext(t.Context(), "go", "vet", "./"+dir).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s\n%s", err, out, source)
		}
	}
}

func TestSQLInTheReadmeRuns(t *testing.T) {
	pool := connect(t, pgtest.Database(t))
	if _, err := pgstore.Migrate(t.Context(), pool, pgstore.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, sql := range blocks(t, "sql") {
		exec(t, pool, sql)
	}
}

func connect(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(context.WithoutCancel(t.Context()), sql); err != nil {
		t.Errorf("%v in\n%s", err, sql)
	}
}

// Every flag that the README's commands use exists.
func TestCommandsInTheReadmeExist(t *testing.T) {
	bin := t.TempDir()
	if out, err := osexec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../cmd/postrider", "../../examples/orders").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	seen := 0
	for _, script := range blocks(t, "sh") {
		for line := range strings.Lines(script) {
			line, _, _ = strings.Cut(line, "#")
			words := strings.Fields(strings.TrimSuffix(strings.TrimSpace(line), "&"))
			if len(words) < 2 || words[0] != "postrider" && words[0] != "orders" {
				continue
			}
			seen++
			command := []string{words[1]}
			if len(words) > 2 && !strings.HasPrefix(words[2], "-") {
				command = append(command, words[2])
			}
			out, err := osexec.CommandContext(t.Context(), filepath.Join(bin, words[0]), append(command, "--help")...).CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v\n%s", strings.TrimSpace(line), err, out)
				continue
			}
			for _, word := range words {
				if strings.HasPrefix(word, "--") && !strings.Contains(string(out), word+"=") {
					t.Errorf("%s: there is no flag %s in\n%s", strings.TrimSpace(line), word, out)
				}
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d commands were looked at", seen)
	}
}
