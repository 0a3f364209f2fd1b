package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/bench/contender"
	"github.com/postrider/postrider/internal/pgserver"
)

// settings of the server. It waits for the disk, as in production; checkpoints
// come between the runs rather than in one of them.
var settings = map[string]string{
	"shared_buffers":     "512MB",
	"max_wal_size":       "8GB",
	"checkpoint_timeout": "30min",
	"max_connections":    "200",
}

// bench is one run of this program.
type bench struct {
	options
	out       io.Writer
	server    *pgserver.Server
	admin     *pgxpool.Pool
	databases map[string]*database
	readers   int
	log       *slog.Logger
}

// measure starts the server and runs the sections.
func measure(ctx context.Context, o options, out io.Writer) (err error) {
	all := maps.Clone(settings)
	maps.Copy(all, o.settings)
	server, err := pgserver.Start(ctx, pgserver.Options{Settings: all})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	b := &bench{options: o, out: out, server: server, databases: map[string]*database{},
		log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	defer func() {
		for _, d := range b.databases {
			d.pool.Close()
		}
	}()
	if b.admin, err = pgxpool.New(ctx, server.URL("postgres")); err != nil {
		return err
	}
	defer b.admin.Close()
	begun := time.Now()
	if err := b.preface(ctx, all); err != nil {
		return err
	}
	for _, s := range o.sections {
		b.log.Info("section", "name", s.name)
		if err := s.run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	_, err = fmt.Fprintf(out, "Took %v.\n", time.Since(begun).Round(time.Second))
	return err
}

// preface says what was measured on what.
func (b *bench) preface(ctx context.Context, settings map[string]string) error {
	var version string
	if err := b.admin.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return err
	}
	set := make([]string, 0, len(settings))
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		set = append(set, name+"="+settings[name])
	}
	_, err := fmt.Fprintf(b.out, `# This project beside its peers

%s · %d cores · load %s · %s · PostgreSQL %s · %s · commit %s

Command: `+"`go run ./bench %s`"+`

Server settings beyond the defaults: %s; fsync and synchronous_commit are on.
Libraries: %s.

Each contender runs as its own process. A round runs all of them, one after the other, and begins with another one each
time. Figures are medians, with the range over the rounds (%d) in brackets. Ratios are medians of the ratios within a
round. Tables are vacuumed and a checkpoint is made before each run. A run that takes longer than %v is cut off, and its
rate is that of what came. The clock starts once the connections are there and stops at the last message that is
published. Messages carry %d bytes and are of some 10,000 keys. Processor time of PostgreSQL is that of all its processes.

`, processor(), runtime.NumCPU(), load(), time.Now().UTC().Format(time.DateOnly), version, runtime.Version(), commit(),
		strings.Join(os.Args[1:], " "), strings.Join(set, ", "), strings.Join(versions(), ", "), b.rounds, b.limit, contender.PayloadSize)
	return err
}

// processor is the name of the processor's model.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// load is how many processes wanted to run on average in the last minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// commit of this project, if it runs in a clone. The file that the results go to
// is no change.
func commit() string {
	text, err := exec.Command("git", "describe", "--always").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(text))
	if changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no", "--", ":/", ":!/bench/RESULTS.md").Output(); err != nil || len(changed) > 0 {
		name += " with changes"
	}
	return name
}

// versions are those of the contenders' libraries and of the driver.
func versions() []string {
	wanted := map[string]bool{"github.com/jackc/pgx/v5": true}
	for _, e := range contender.Entries {
		wanted[e.Module] = e.Module != ""
	}
	var found []string
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if wanted[m.Path] {
				found = append(found, strings.TrimPrefix(m.Path, "github.com/")+" "+m.Version)
			}
		}
	}
	return found
}

// of returns those of the entries that the command line asks for: all if it
// names none.
func (b *bench) of(entries []contender.Entry) ([]contender.Entry, error) {
	if len(b.contenders) == 0 {
		return entries, nil
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(e contender.Entry) bool { return !slices.Contains(b.contenders, e.ID) })
	if len(entries) == 0 {
		return nil, fmt.Errorf("none of the contenders %s is in it", strings.Join(b.contenders, ", "))
	}
	return entries, nil
}

// named is of for a section's ids.
func (b *bench) named(ids ...string) ([]contender.Entry, error) {
	entries := make([]contender.Entry, len(ids))
	for i, id := range ids {
		var err error
		if entries[i], err = contender.Find(id); err != nil {
			return nil, err
		}
	}
	return b.of(entries)
}

// write prints a section's table as soon as it is there.
func (b *bench) write(t *table) error { return t.write(b.out) }
