package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlitestore"
)

// failing is a shop's database whose messages fail when the test says so.
type failing struct {
	t     *testing.T
	db    string
	store *sqlitestore.Store
	lease relay.Lease
	got   []relay.Delivery
}

func newFailing(t *testing.T, messages int) *failing {
	path := filepath.Join(t.TempDir(), "shop.db")
	store, err := sqlitestore.Open(t.Context(), path, sqlitestore.Options{Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	f := &failing{t: t, db: "sqlite:" + path, store: store}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	tx, err := store.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range messages {
		if err := outbox.NewWriter(sqlitestore.SQL{}).Enqueue(t.Context(), tx, outbox.Message{Topic: "orders"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	f.lease, err = store.Acquire(t.Context(), relay.Claim{Route: "r", Owner: "o", TTL: time.Hour, Topics: []string{"**"}})
	if err != nil {
		t.Fatal(err)
	}
	for len(f.got) < messages {
		got, err := f.lease.Receive(t.Context(), messages)
		if err != nil {
			t.Fatal(err)
		}
		f.got = append(f.got, got...)
	}
	return f
}

// fail lets the next n messages fail.
func (f *failing) fail(n int, reason string) {
	f.t.Helper()
	var outcomes []relay.Outcome
	for _, d := range f.got[:n] {
		outcomes = append(outcomes, relay.Outcome{Delivery: d, State: outbox.StateFailed, Attempts: 1, Error: reason})
	}
	f.got = f.got[n:]
	if err := f.lease.Settle(context.Background(), outcomes); err != nil {
		f.t.Fatal(err)
	}
}

// run runs a command; whoever is asked does so and says yes.
func (f *failing) run(code int, asked func(), args ...string) string {
	f.t.Helper()
	var out bytes.Buffer
	p := &process{Stdin: answering{asked, strings.NewReader("yes\n")}, Stdout: &out, Stderr: &out, Terminal: true}
	if got := run(p, append(args, "--db", f.db)); got != code {
		f.t.Errorf("%v: exit %d, want %d: %s", args, got, code, &out)
	}
	return out.String()
}

type answering struct {
	asked func()
	*strings.Reader
}

func (a answering) Read(p []byte) (int, error) {
	if a.asked != nil {
		a.asked()
	}
	return a.Reader.Read(p)
}

// A yes is to the messages that were counted, not to those that failed while
// the operator thought about it.
func TestAYesIsToWhatWasCounted(t *testing.T) {
	f := newFailing(t, 6)
	f.fail(2, "no")
	out := f.run(exitWell, func() { f.fail(3, "no") }, "retry", "--route", "r")
	if !strings.Contains(out, "retry 2 messages? [y/N]") || !strings.Contains(out, "retry: done to 2 messages") {
		t.Errorf("%s", out)
	}
	if out := f.run(exitWell, nil, "list", "--state", "failed"); strings.Count(out, "failed") != 3 {
		t.Errorf("%s", out)
	}
}

// What is named and is not there is said, beside what was done to the rest.
func TestNamedMessagesThatAreNotThere(t *testing.T) {
	const unknown = "019ad3f2-7c1e-7e5c-9d7b-2f6a4c1e8b90"
	f := newFailing(t, 2)
	f.fail(1, "no")
	for _, tc := range []struct {
		code int
		args string
		want []string
	}{
		{exitFinding, "list 0/1 0/99 " + unknown, []string{"not found: 0/99: nothing is there", "not found: " + unknown, "failed"}},
		{exitFinding, "list 0/1 7/1 --json", []string{`"message": "7/1"`, `"state": "failed"`}},
		{exitFinding, "list 0/99", []string{"postrider: there is no such message: 0/99"}},
		{exitFinding, "retry 0/1 0/99 --dry-run", []string{"not found: 0/99: nothing is there", "would be done to 1 message"}},
		{exitFinding, "retry 0/98 0/99 " + unknown, []string{"no such message", "0/98", "0/99", unknown}},
		{exitFinding, "retry 0/1 0/99 " + unknown, []string{"not found: 0/99", "not found: " + unknown, "done to 1 message"}},
		{exitFinding, "discard 0/1 0/99 --json", []string{`"not_found":[{"message":"0/99"`, `"changed":1`}},
		{exitWell, "list 0/1 0/2 --state discarded", []string{"0/1"}},
	} {
		out := f.run(tc.code, nil, strings.Fields(tc.args)...)
		for _, want := range tc.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is missing in\n%s", tc.args, want, out)
			}
		}
	}
}

func TestAWideListIsWhole(t *testing.T) {
	f := newFailing(t, 1)
	reason := strings.Repeat("no, ", 100) + "never"
	f.fail(1, reason)
	if out := f.run(exitWell, nil, "list"); strings.Contains(out, "never") || !strings.Contains(out, "no, no,") {
		t.Errorf("%s", out)
	}
	for _, flag := range []string{"--wide", "--json"} {
		if out := f.run(exitWell, nil, "list", flag); !strings.Contains(out, reason) {
			t.Errorf("%s: %s", flag, out)
		}
	}
}
