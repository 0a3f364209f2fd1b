package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/postrider/postrider/admin"
)

type listCommand struct {
	adminFlags
	filterFlags
	Messages []string `arg:"" optional:"" name:"message" help:"Ids, or places in the log such as 2/4711."`
	Limit    int      `default:"50" placeholder:"N" help:"How many to print at most (50)."`
	Wide     bool     `help:"Do not cut long topics, keys, types and errors."`
	After    string   `placeholder:"PLACE" help:"Go on after this place, as the list before said: ROUTE/SHARD/NUMBER."`
}

func (*listCommand) Help() string {
	return `Lists messages as they stand on each route, in order of route, shard and number. PLACE (shard/number) and ID both name a message for the other commands.

Examples:

  postrider list --state failed
  postrider list --route orders --key 4711 --since 2h
  postrider list --topic 'billing.**' --state sent --json`
}

func (l *listCommand) Run(p *process, ctx context.Context) error {
	if l.Limit < 1 || l.Limit > admin.MaxLimit {
		return usage(fmt.Errorf("--limit %d: a list has 1 to %d messages", l.Limit, admin.MaxLimit), "the list goes on with --after")
	}
	after, err := parseAfter(l.After)
	if err != nil {
		return err
	}
	return inOffice(p, ctx, &l.adminFlags, false, func(ctx context.Context, o *office) error {
		layout, err := o.Layout(ctx)
		if err != nil {
			return err
		}
		f, err := l.filter(l.Messages, layout.Now)
		if err != nil {
			return err
		}
		page, err := o.List(ctx, admin.Query{Filter: f, After: after, Limit: l.Limit})
		if err != nil {
			return err
		}
		if o.json {
			err = printJSON(p.Stdout, struct {
				admin.Page
				After string `json:"after,omitempty"`
			}{page, formatAfter(page.Next)})
		} else {
			err = o.printPage(page, layout, l.Wide)
		}
		if err == nil && len(page.NotFound) > 0 {
			err = &alreadySaid{errors.New("not all messages were found")}
		}
		return err
	})
}

func (o *office) printPage(page admin.Page, layout admin.Layout, wide bool) error {
	if err := printNotFound(o.p.Stdout, page.NotFound); err != nil {
		return err
	}
	if len(page.Messages) == 0 && page.Next == nil {
		return printLines(o.p.Stdout, "no messages")
	}
	t := newTable(o.p.Stdout)
	t.row("PLACE", "ROUTE", "STATE", "AGE", "TOPIC", "KEY", "TYPE", "ATTEMPTS", "ID", "ERROR")
	for i := range page.Messages {
		t.row(messageCells(&page.Messages[i], layout, wide)...)
	}
	if err := t.flush(); err != nil || page.Next == nil {
		return err
	}
	more := "there may be more"
	if len(page.Messages) == 0 {
		more = fmt.Sprintf("%d messages were looked at, and none fits; there are more", page.Looked)
	}
	return printLines(o.p.Stdout, more+": --after "+shell(formatAfter(page.Next)))
}

// printNotFound tells which messages that were named are not there.
func printNotFound(w io.Writer, missing []admin.NotFound) error {
	for _, m := range missing {
		if err := printLines(w, "not found: "+m.Message+": "+m.Why); err != nil {
			return err
		}
	}
	return nil
}

// messageCells are a message's cells in a list; long ones are cut unless it is
// wide.
func messageCells(m *admin.Item, layout admin.Layout, wide bool) []string {
	cut := brief
	if wide {
		cut = func(text string, _ int) string { return safe(text) }
	}
	state := string(m.State)
	if m.Holds {
		state += " (holds its key)"
	}
	return []string{
		m.Place.String(), safe(m.Route), safe(state), ago(m.CreatedAt, layout.Now, admin.Short), cut(m.Topic, 40), cut(m.Key, 40), cut(m.Type, 30),
		strconv.Itoa(m.Attempts), m.ID.String(), cut(m.Error, 80),
	}
}

// formatAfter writes where a list goes on.
func formatAfter(r *admin.Ref) string {
	if r == nil {
		return ""
	}
	return r.Route + "/" + r.Place.String()
}

func parseAfter(text string) (*admin.Ref, error) {
	if text == "" {
		return nil, nil
	}
	parts := strings.Split(text, "/")
	if n := len(parts); n >= 3 {
		shard, err1 := strconv.ParseUint(parts[n-2], 10, 16)
		seq, err2 := strconv.ParseUint(parts[n-1], 10, 63)
		if err1 == nil && err2 == nil {
			return &admin.Ref{Route: strings.Join(parts[:n-2], "/"), Place: admin.Place{Shard: int(shard), Seq: int64(seq)}}, nil
		}
	}
	return nil, usage(fmt.Errorf("--after %q is not where a list ended, such as orders/2/4711", text), "")
}
