package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/postrider/postrider/admin"
)

type showCommand struct {
	adminFlags
	Message string `arg:"" help:"Its id, or its place in the log such as 2/4711."`
	Payload bool   `help:"Print the payload alone, byte for byte."`
}

func (*showCommand) Help() string {
	return `Shows everything about a message, and how it stands on every route that takes it. Looking for an id may take a while in a large log, which has no index on ids; a place is found at once.

Examples:

  postrider show 019ad3f2-7c1e-7e5c-9d7b-2f6a4c1e8b90
  postrider show 2/4711 --payload | jq .`
}

func (s *showCommand) Run(p *process, ctx context.Context) error {
	id, place, err := parseMessage(s.Message)
	if err != nil {
		return usage(err, "")
	}
	if s.Payload && s.JSON {
		return usage(errors.New("--payload and --json: one or the other"), "")
	}
	return inOffice(p, ctx, &s.adminFlags, false, func(ctx context.Context, o *office) error {
		var all []admin.Detail
		if place.Seq > 0 {
			d, err := o.ShowPlace(ctx, place)
			if err != nil {
				return err
			}
			all = []admin.Detail{d}
		} else if all, err = o.Show(ctx, id); err != nil {
			return err
		}
		layout, err := o.Layout(ctx)
		if err != nil {
			return err
		}
		for i := range all {
			switch {
			case s.Payload:
				_, err = p.Stdout.Write(all[i].Message.Payload)
			case s.JSON:
				err = printJSON(p.Stdout, detailJSON(&all[i]))
			default:
				err = o.printDetail(&all[i], layout)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// messageJSON is a message with stable names. payload is base64; payload_text is
// there if it is text.
type messageJSON struct {
	ID          uuid.UUID             `json:"id"`
	Place       admin.Place           `json:"place"`
	Topic       string                `json:"topic"`
	Key         string                `json:"key"`
	Type        string                `json:"type"`
	ContentType string                `json:"content_type"`
	Headers     map[string]string     `json:"headers"`
	CreatedAt   time.Time             `json:"created_at"`
	NotBefore   time.Time             `json:"not_before,omitzero"`
	Expires     time.Time             `json:"expires,omitzero"`
	InLog       bool                  `json:"in_log"`
	Payload     []byte                `json:"payload"`
	PayloadText *string               `json:"payload_text,omitempty"`
	Routes      []admin.RouteStanding `json:"routes"`
}

func detailJSON(d *admin.Detail) messageJSON {
	m := &d.Message
	out := messageJSON{
		ID: m.ID, Place: d.Place, Topic: m.Topic, Key: m.Key, Type: m.Type, ContentType: m.ContentType, Headers: m.Headers,
		CreatedAt: m.CreatedAt, NotBefore: m.NotBefore, Expires: m.Expires, InLog: d.InLog, Payload: m.Payload, Routes: d.Routes,
	}
	if out.Headers == nil {
		out.Headers = map[string]string{}
	}
	if out.Payload == nil {
		out.Payload = []byte{}
	}
	if utf8.Valid(m.Payload) {
		out.PayloadText = new(string(m.Payload))
	}
	return out
}

// shownPayload is how many bytes of a payload are printed for people.
const shownPayload = 4096

func (o *office) printDetail(d *admin.Detail, layout admin.Layout) error {
	m := &d.Message
	t := newTable(o.p.Stdout)
	t.row("id", m.ID.String())
	t.row("place", d.Place.String())
	t.row("topic", safe(m.Topic))
	t.row("key", safe(m.Key))
	t.row("type", safe(m.Type))
	t.row("content type", safe(m.ContentType))
	t.row("enqueued", stamp(m.CreatedAt)+" ("+ago(m.CreatedAt, layout.Now, admin.Short)+" ago)")
	t.row("not before", stamp(m.NotBefore))
	t.row("expires", stamp(m.Expires))
	if !d.InLog {
		t.row("log", "no longer there: it cannot be replayed")
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		t.row("header", safe(name)+": "+safe(m.Headers[name]))
	}
	if err := t.flush(); err != nil {
		return err
	}
	if err := o.printStandings(d, layout); err != nil {
		return err
	}
	return o.printPayload(m.Payload)
}

func (o *office) printStandings(d *admin.Detail, layout admin.Layout) error {
	if len(d.Routes) == 0 {
		return printLines(o.p.Stdout, "", "no route takes it")
	}
	if err := printLines(o.p.Stdout, ""); err != nil {
		return err
	}
	t := newTable(o.p.Stdout)
	t.row("ROUTE", "STATE", "ATTEMPTS", "DUE", "CHANGED", "ERROR")
	for _, r := range d.Routes {
		state := string(r.State)
		switch {
		case r.Holds:
			state += " (holds its key)"
		case r.State == admin.Unknown:
			state += " (from before the route's topics were changed)"
		}
		due := "-"
		if wait := r.DueAt.Sub(layout.Now); !r.DueAt.IsZero() && wait > 0 {
			due = "in " + admin.Short(wait)
		} else if !r.DueAt.IsZero() {
			due = "now"
		}
		changed := ago(r.ChangedAt, layout.Now, admin.Short)
		if changed != "-" {
			changed += " ago"
		}
		t.row(safe(r.Route), safe(state), strconv.Itoa(r.Attempts), due, changed, safe(r.Error))
	}
	return t.flush()
}

// printPayload prints a payload as text if it is one, else in hexadecimal.
func (o *office) printPayload(payload []byte) error {
	part := payload[:min(len(payload), shownPayload)]
	lines := []string{"", fmt.Sprintf("payload, %s", plural(len(payload), "byte"))}
	if isText(payload) {
		lines = append(lines, strings.TrimSuffix(escape(strings.ToValidUTF8(string(part), ""), "\n\t"), "\n"))
	} else {
		lines = append(lines, strings.TrimSuffix(hex.Dump(part), "\n"))
	}
	if len(part) < len(payload) {
		lines = append(lines, fmt.Sprintf("… and %d bytes more: --payload prints all", len(payload)-len(part)))
	}
	return printLines(o.p.Stdout, lines...)
}

// isText: mostly printable, and valid.
func isText(payload []byte) bool {
	if !utf8.Valid(payload) {
		return false
	}
	odd := 0
	for _, r := range string(payload) {
		if !unicode.IsPrint(r) && !strings.ContainsRune("\n\r\t", r) {
			odd++
		}
	}
	return odd*10 <= len(payload)
}
