package sqlitestore

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// history is the migrations in their order: the tables have version n once the
// first n were applied. What a migration may do while programs of the version
// before it are at work is as in package pgstore.
type history []migration

// migration is one step, from NNNN_name.sql and, once for each shard,
// NNNN_name.shard.sql. The line "-- postrider:compatible_from N" says that
// programs that know version N or a later one may go on.
type migration struct {
	number, compatibleFrom int
	name                   string
	once, perShard         string
}

// known is the history that this program has.
var known = sync.OnceValues(func() (history, error) { return readHistory(migrationFiles) })

var compatibleLine = regexp.MustCompile(`(?m)^-- postrider:compatible_from ([0-9]+)$`)

// readHistory reads the folder migrations, numbered from 1 without gaps.
func readHistory(files fs.FS) (history, error) {
	entries, err := fs.ReadDir(files, "migrations")
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	var all history
	for _, e := range entries { // sorted by name
		if strings.HasSuffix(e.Name(), ".shard.sql") {
			continue
		}
		m, err := readMigration(files, e.Name(), len(all)+1)
		if err != nil {
			return nil, fmt.Errorf("read migration %s: %w", e.Name(), err)
		}
		all = append(all, m)
	}
	return all, nil
}

func readMigration(files fs.FS, file string, number int) (migration, error) {
	m := migration{number: number, name: strings.TrimSuffix(file, ".sql")}
	if !strings.HasPrefix(m.name, fmt.Sprintf("%04d_", number)) {
		return m, fmt.Errorf("number %04d is due", number)
	}
	once, err := fs.ReadFile(files, "migrations/"+file)
	if err != nil {
		return m, err
	}
	perShard, err := fs.ReadFile(files, "migrations/"+m.name+".shard.sql")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return m, err
	}
	m.once, m.perShard = string(once), string(perShard)
	compatible := compatibleLine.FindStringSubmatch(m.once)
	if compatible == nil {
		return m, errors.New("it does not say which version it is compatible_from")
	}
	if m.compatibleFrom, err = strconv.Atoi(compatible[1]); err != nil || m.compatibleFrom < 1 || m.compatibleFrom > number {
		return m, fmt.Errorf("compatible_from %s is not between 1 and its own number", compatible[1])
	}
	return m, nil
}

// compatibleFrom is the version that a program must know at least to use tables
// of the newest one.
func (h history) compatibleFrom() (from int) {
	for _, m := range h {
		from = max(from, m.compatibleFrom)
	}
	return from
}

func (m migration) script(shards int) string {
	script := "-- " + m.name + "\n" + m.once
	if m.perShard != "" {
		for shard := range shards {
			script += strings.ReplaceAll(m.perShard, "{shard}", strconv.Itoa(shard))
		}
	}
	return script
}
