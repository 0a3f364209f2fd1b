package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/postrider/postrider/config"
)

// However a start ends, the address of health and metrics is free afterwards; and
// a start that was told to stop is no failure.
func TestAStartThatEndsFreesItsAddress(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-central-1")
	dir := t.TempDir()
	tables := "sqlite:" + filepath.Join(dir, "shop.db")
	var out bytes.Buffer
	p := &process{Stdout: &out, Stderr: &out}
	if code := run(p, []string{"migrate", "up", "--db", tables}); code != exitWell {
		t.Fatalf("migrate: exit %d: %s", code, &out)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, tc := range map[string]struct {
		ctx   context.Context
		db    string
		lease time.Duration
		code  int
	}{
		"no tables":              {t.Context(), "sqlite:" + filepath.Join(dir, "empty.db"), 0, exitUsage},
		"no database":            {t.Context(), "sqlite:" + dir, 0, exitConnect},
		"settings it cannot use": {t.Context(), tables, time.Nanosecond, exitUsage},
		"told to stop":           {stopped, tables, 0, exitWell},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			address := l.Addr().String()
			l.Close()
			c, err := config.Load(config.Input{Flags: map[string]string{"database": tc.db, "to": "sqs://orders", "http": address}, Database: true, Routes: true})
			if err != nil {
				t.Fatal(err)
			}
			if tc.lease > 0 {
				c.Lease = tc.lease
			}
			out.Reset()
			if code := report(p, relayMessages(tc.ctx, c, slog.New(slog.DiscardHandler))); code != tc.code {
				t.Errorf("exit %d, want %d: %s", code, tc.code, &out)
			}
			if l, err = net.Listen("tcp", address); err != nil {
				t.Fatalf("it is still taken: %v", err)
			}
			l.Close()
		})
	}
}
