package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/config"
)

func (*migrateStatus) Help() string {
	return `Exit codes: 0 nothing is missing, 1 a migration is, 2 the tables are a later version's and not for this one.

Before and after an upgrade:

  postrider migrate status --json | jq '{version, known, missing, relays: [.relays[].owner]}'`
}

// tables is what is known of them, as programs read it.
type tables struct {
	Database string `json:"database"`
	Schema   string `json:"schema,omitempty"`
	Shards   int    `json:"shards"`
	// Version of the tables, and the newest one that this program knows.
	Version int `json:"version"`
	Known   int `json:"known"`
	// CompatibleFrom is what a program must know to use the tables.
	CompatibleFrom int                 `json:"compatible_from"`
	Compatible     bool                `json:"compatible"`
	Missing        []string            `json:"missing"`
	Relays         []admin.RelayStatus `json:"relays"`
}

func (m *migrateStatus) Run(p *process, ctx context.Context) error {
	c, db, err := openForMigration(p, ctx, &m.commonFlags, nil, false)
	if err != nil {
		return err
	}
	defer db.Close()
	s, refusal := db.Status(ctx)
	if refusal != nil && s.Version <= s.Known {
		return tablesError(c, refusal)
	}
	t := tables{
		Database: c.Database.String(), Shards: s.Shards, Version: s.Version, Known: s.Known, CompatibleFrom: s.CompatibleFrom,
		Compatible: refusal == nil && s.Missing == nil, Missing: append([]string{}, s.Missing...), Relays: []admin.RelayStatus{},
	}
	if c.Database.Kind == config.Postgres {
		t.Schema = c.Schema
	}
	if s.Version > 0 && refusal == nil {
		relays, err := db.Relays(ctx)
		if err != nil {
			return tablesError(c, err)
		}
		t.Relays = append(t.Relays, relays...)
	}
	if m.JSON {
		err = printJSON(p.Stdout, t)
	} else {
		err = t.print(p.Stdout, c)
	}
	switch {
	case err != nil:
		return err
	case refusal != nil:
		return tablesError(c, refusal)
	case len(t.Missing) > 0:
		return &alreadySaid{errors.New("migrations are missing")}
	}
	return nil
}

func (t *tables) print(w io.Writer, c *config.Config) error {
	lines := []string{"database  " + t.Database}
	if t.Schema != "" {
		lines = append(lines, "schema    "+safe(t.Schema))
	}
	if t.Shards > 0 {
		lines = append(lines, fmt.Sprintf("shards    %d", t.Shards))
	}
	version := fmt.Sprintf("version   %d, this program knows %d", t.Version, t.Known)
	if t.Version > t.Known {
		version += fmt.Sprintf(", and %d or later will do", t.CompatibleFrom)
	}
	lines = append(lines, version)
	if len(t.Missing) == 0 {
		lines = append(lines, "missing   nothing")
	} else {
		lines = append(lines, "missing   "+strings.Join(t.Missing, ", "), "run       "+migrateUpCommand(c))
	}
	for _, r := range t.Relays {
		lines = append(lines, fmt.Sprintf("relay     %s, routes %s, since %s", safe(r.Owner), safe(strings.Join(r.Routes, ", ")), r.JoinedAt.UTC().Format(time.RFC3339)))
	}
	return printLines(w, lines...)
}
