package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/postrider/postrider/admin"
)

// actFlags are those of the actions on messages.
type actFlags struct {
	adminFlags
	filterFlags
	byFlags
	Messages []string `arg:"" optional:"" name:"message" help:"Ids, or places in the log such as 2/4711."`
	DryRun   bool     `help:"Only print which messages it would be done to."`
	Yes      bool     `short:"y" help:"Do not ask before it is done to several messages."`
}

type retryCommand struct{ actFlags }

func (*retryCommand) Help() string {
	return `Sends failed messages again, with their attempts counted anew. Other states are taken if they are named, or the messages are: retrying (now instead of later), expired and discarded. Under on_failure: release they go out after what followed them.

Examples:

  postrider retry 019ad3f2-7c1e-7e5c-9d7b-2f6a4c1e8b90 --note 'queue made'
  postrider retry --route orders --since 2h --dry-run
  postrider retry --route orders --since 2h --yes`
}

func (r *retryCommand) Run(p *process, ctx context.Context) error {
	return r.act(p, ctx, admin.Retry)
}

type releaseCommand struct{ actFlags }

func (*releaseCommand) Help() string {
	return `Under on_failure: hold a failed message keeps the later ones of its key waiting. Release lets them go; the message itself stays failed.

Example:

  postrider release --route orders --key 4711`
}

func (r *releaseCommand) Run(p *process, ctx context.Context) error {
	return r.act(p, ctx, admin.Release)
}

type discardCommand struct{ actFlags }

func (*discardCommand) Help() string {
	return `Gives messages up: those that are retrying, blocked, scheduled or failed, and expired ones if they are named. What waits behind them goes on. They stay listed as discarded, and retry takes them back.

Examples:

  postrider discard 2/4711 --note 'the customer is gone'
  postrider discard --route orders --key 4711 --dry-run`
}

func (d *discardCommand) Run(p *process, ctx context.Context) error {
	return d.act(p, ctx, admin.Discard)
}

type replayCommand struct{ actFlags }

func (*replayCommand) Help() string {
	return `Sends messages again that were sent before and are still in the log. They keep no order among themselves or with others. A consumer with an inbox takes no second effect from them: it has their ids.

Examples:

  postrider replay --route search --since 24h --dry-run
  postrider replay --route search --since 24h --yes --note 'index was lost'`
}

func (r *replayCommand) Run(p *process, ctx context.Context) error {
	return r.act(p, ctx, admin.Replay)
}

func (a *actFlags) act(p *process, ctx context.Context, action admin.Action) error {
	return inOffice(p, ctx, &a.adminFlags, !a.DryRun, func(ctx context.Context, o *office) error {
		layout, err := o.Layout(ctx)
		if err != nil {
			return err
		}
		f, err := a.filter(a.Messages, layout.Now)
		if err != nil {
			return err
		}
		request := admin.Request{Action: action, Filter: f, DryRun: a.DryRun, By: a.who(), Note: a.Note}
		if !a.DryRun && !a.Yes && len(a.Messages) == 0 {
			if request.Among, err = o.mayAct(ctx, request); err != nil {
				return err
			}
		}
		return o.act(ctx, request, layout)
	})
}

// mayAct asks whether to do it, if it is to be done to several messages, and
// returns those that the answer is about.
func (o *office) mayAct(ctx context.Context, request admin.Request) (*admin.Found, error) {
	request.DryRun = true
	result, err := o.Act(ctx, request)
	if err != nil || result.Matched <= 1 {
		return result.Found, err
	}
	return result.Found, o.confirm(fmt.Sprintf("%s %d messages", request.Action, result.Matched), "--dry-run lists them, --yes does it")
}

// confirm asks a person. Where nobody can answer it is an error.
func (o *office) confirm(what, next string) error {
	if !o.p.Terminal {
		return usage(fmt.Errorf("this would %s, and nobody is there to ask", what), next)
	}
	fmt.Fprintf(o.p.Stderr, "%s? [y/N] ", what)
	answer, err := bufio.NewReader(o.p.Stdin).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer == "y" || answer == "yes" {
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	return usage(errors.New("nothing was done"), next)
}

func (o *office) act(ctx context.Context, request admin.Request, layout admin.Layout) error {
	var out actPrinter = &actTable{w: o.p.Stdout, layout: layout, dry: request.DryRun}
	if o.json {
		out = &actJSON{w: o.p.Stdout}
	}
	request.Each = out.each
	result, err := o.Act(ctx, request)
	if printing := out.end(result, err != nil); err == nil {
		err = printing
	}
	switch {
	case err != nil && result.Changed > 0:
		return fmt.Errorf("after %d messages were changed: %w", result.Changed, err)
	case err != nil:
		return err
	case result.Matched == 0, !result.DryRun && result.Changed == 0:
		return &alreadySaid{errors.New("nothing was done")}
	case len(result.NotFound) > 0:
		return &alreadySaid{errors.New("not all messages were found")}
	}
	return nil
}

// actPrinter prints what an action touches, as it does.
type actPrinter interface {
	each(admin.Touched)
	// end ends the print. failed: an error says the rest.
	end(r admin.Result, failed bool) error
}

type actTable struct {
	w      io.Writer
	layout admin.Layout
	dry    bool
	t      *table
	rows   int
}

func (a *actTable) each(m admin.Touched) {
	if !a.dry && m.Changed {
		return // the number says it
	}
	if a.t == nil {
		a.t = newTable(a.w)
		a.t.row("PLACE", "ROUTE", "STATE", "AGE", "TOPIC", "KEY", "TYPE", "ATTEMPTS", "ID", "ERROR", "REMARK")
	}
	cells := messageCells(&m.Item, a.layout, false)
	if m.Left != "" {
		cells = append(cells, "left alone: "+safe(m.Left))
	}
	a.t.row(cells...)
	if a.rows++; a.rows%1000 == 0 {
		_ = a.t.flush() // end tells of it, too
	}
}

func (a *actTable) end(r admin.Result, failed bool) error {
	if a.t != nil {
		if err := a.t.flush(); err != nil {
			return err
		}
	}
	if failed {
		return nil
	}
	if err := printNotFound(a.w, r.NotFound); err != nil {
		return err
	}
	switch {
	case r.Matched == 0:
		return printLines(a.w, fmt.Sprintf("%s: no message fits", r.Action))
	case r.DryRun:
		return printLines(a.w, fmt.Sprintf("%s would be done to %s", r.Action, plural(int(r.Matched), "message")))
	}
	line := fmt.Sprintf("%s: done to %s", r.Action, plural(int(r.Changed), "message"))
	if left := r.Matched - r.Changed; left > 0 {
		line += fmt.Sprintf(", %d left alone", left)
	}
	if r.AuditID != 0 {
		line += fmt.Sprintf(" (record %d)", r.AuditID)
	}
	return printLines(a.w, line)
}

// actJSON prints one object; its array is written as the messages come.
type actJSON struct {
	w   io.Writer
	n   int
	err error
}

func (a *actJSON) each(m admin.Touched) {
	start := ",\n    "
	if a.n++; a.n == 1 {
		start = "{\n  \"messages\": [\n    "
	}
	text, err := json.Marshal(m)
	if err == nil && a.err == nil {
		_, a.err = io.WriteString(a.w, start+safeJSON(text))
	}
	a.err = errors.Join(a.err, err)
}

func (a *actJSON) end(r admin.Result, failed bool) error {
	if failed && a.n == 0 && r.Changed == 0 {
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil || a.err != nil {
		return errors.Join(a.err, err)
	}
	start := "\n  ],\n  "
	if a.n == 0 {
		start = "{\n  \"messages\": [],\n  "
	}
	_, err = io.WriteString(a.w, start+string(text[1:])+"\n")
	return err
}
