package pgstore

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"text/template"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// A history is the migrations in their order: the tables have version n once the
// first n were applied.
//
// A migration runs while programs of the version before it are at work. It may
// add tables, columns with a default, indexes on small tables, functions, and
// wider checks. It must never refuse what an application of an earlier version
// sends: columns that it inserts into, the name of the key's type, and the
// arguments of the functions stay. Nothing in it may read or rewrite a whole log,
// since enqueueing waits as long.
//
// Two lines of comment in the file are for the program. "-- postrider:compatible_from N"
// says that relays and operators' programs that know version N or a later one may
// go on; where that leaves the version before it out, the leases of relays end
// with the migration. "-- postrider:locks NAME ..." names the tables of before that it
// alters, "log" for every shard's.
type history []migration

type migration struct {
	name           string
	compatibleFrom int
	locks          []string
	text           *template.Template
}

// known is the history that this program has.
var known = sync.OnceValues(func() (history, error) { return readHistory(migrationFiles) })

var (
	compatibleLine = regexp.MustCompile(`(?m)^-- postrider:compatible_from ([0-9]+)$`)
	locksLine      = regexp.MustCompile(`(?m)^-- postrider:locks (.+)$`)
)

// readHistory reads migrations/NNNN_name.sql, numbered from 1 without gaps.
func readHistory(files fs.FS) (history, error) {
	paths, err := fs.Glob(files, "migrations/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	all := make(history, len(paths))
	for i, path := range paths {
		if all[i], err = readMigration(files, path, i+1); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
	}
	return all, nil
}

func readMigration(files fs.FS, path string, number int) (m migration, err error) {
	m.name = strings.TrimSuffix(strings.TrimPrefix(path, "migrations/"), ".sql")
	if !strings.HasPrefix(m.name, fmt.Sprintf("%04d_", number)) {
		return m, fmt.Errorf("number %04d is due", number)
	}
	text, err := fs.ReadFile(files, path)
	if err != nil {
		return m, err
	}
	compatible := compatibleLine.FindSubmatch(text)
	if compatible == nil {
		return m, fmt.Errorf("it does not say which version it is compatible_from")
	}
	if m.compatibleFrom, err = strconv.Atoi(string(compatible[1])); err != nil || m.compatibleFrom < 1 || m.compatibleFrom > number {
		return m, fmt.Errorf("compatible_from %s is not between 1 and its own number", compatible[1])
	}
	if locks := locksLine.FindSubmatch(text); locks != nil {
		m.locks = strings.Fields(string(locks[1]))
	}
	m.text, err = template.New(m.name).Parse(string(text))
	return m, err
}

// compatibleFrom is the version that a program must know at least to use tables
// of the given one.
func (h history) compatibleFrom(version int) (from int) {
	for _, m := range h[:version] {
		from = max(from, m.compatibleFrom)
	}
	return from
}

// names of the migrations after a version.
func (h history) names(after int) []string {
	var names []string
	for _, m := range h[min(after, len(h)):] {
		names = append(names, m.name)
	}
	return names
}

// sql is the migration for a schema and its number of shards.
func (m migration) sql(schema Schema, shards int) (string, error) {
	var b strings.Builder
	err := m.text.Execute(&b, map[string]any{
		"Schema":        schema.quoted(),
		"SchemaLiteral": quoteLiteral(schema.quoted()),
		"SchemaText":    escapeLiteral(schema.Name()),
		"Shards":        shardsUpTo(shards),
	})
	if err != nil {
		return "", fmt.Errorf("migration %s: %w", m.name, err)
	}
	return b.String(), nil
}

// tables are the ones that the migration alters, for LOCK TABLE.
func (m migration) tables(schema Schema, shards int) []string {
	var tables []string
	for _, name := range m.locks {
		if name != "log" {
			tables = append(tables, schema.Table(name))
			continue
		}
		for shard := range shards {
			tables = append(tables, schema.Log(shard))
		}
	}
	return tables
}
