package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/config"
)

// Whatever a library puts into an error, a person and the log see no password.
func TestErrorsLoseTheirCredentials(t *testing.T) {
	const canary = "c4n4ry"
	leak := fmt.Errorf("dial:\n\t%w", errors.New("postgres://shop:"+canary+"@h/x refused"))
	var out bytes.Buffer
	p := &process{Stdout: &out, Stderr: &out}
	if code := report(p, leak); code != exitFinding {
		t.Errorf("exit %d", code)
	}
	if code := report(p, usage(leak, "try again")); code != exitUsage {
		t.Errorf("exit %d", code)
	}
	for _, format := range []string{"text", "json"} {
		l := newLogger(&out, config.Log{Format: format, Level: "debug"})
		l.Debug("x", "error", leak, "text", leak.Error(), "lease", 3*time.Second)
	}
	text := out.String()
	if strings.Contains(text, canary) {
		t.Errorf("shown: %s", text)
	}
	for _, want := range []string{"postrider: dial: postgres://[redacted]@h/x refused\n  try again\n", `"lease":"3s"`, "level=DEBUG"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
}

func TestMigrateUpCommand(t *testing.T) {
	db, err := config.ParseDatabase("postgres://shop:pw@h/orders")
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]config.Config{
		"postrider migrate up": {File: config.DefaultFile, Schema: config.DefaultSchema},
		"postrider migrate up --config /etc/p.yaml --schema out":                        {File: "/etc/p.yaml", Schema: "out"},
		"postrider migrate up --db 'postgres://shop@h:5432/orders' --schema 'it'\\''s'": {Database: db, Schema: "it's"},
	} {
		if got := migrateUpCommand(&c); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
