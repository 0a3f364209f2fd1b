// Package pgstore keeps messages in PostgreSQL 14 or later: the append-only log
// that applications enqueue into, and the cursors, parked messages and inbox of
// those who read it.
package pgstore

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// DefaultSchema is where the tables are unless a setting says otherwise.
const DefaultSchema = "postrider"

// Schema names the schema that holds the tables. It is used exactly as
// written, capitals included. The zero value is DefaultSchema.
type Schema string

// Name is the schema's name, DefaultSchema for the zero value.
func (s Schema) Name() string {
	if s == "" {
		return DefaultSchema
	}
	return string(s)
}

// Validate reports why the name cannot be a schema's.
func (s Schema) Validate() error {
	name := s.Name()
	switch {
	case len(name) > 63:
		return fmt.Errorf("schema name %q has %d bytes: PostgreSQL cuts names at 63", name, len(name))
	case strings.HasPrefix(name, "pg_"):
		return fmt.Errorf("schema name %q: PostgreSQL keeps names that begin with pg_ for itself", name)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return fmt.Errorf("schema name %q is not valid text", name)
	}
	return nil
}

// quoted is the schema's name as an SQL identifier.
func (s Schema) quoted() string { return pgx.Identifier{s.Name()}.Sanitize() }

// Table is a table or function of the schema as an SQL identifier.
func (s Schema) Table(name string) string { return pgx.Identifier{s.Name(), name}.Sanitize() }

// Log is the log table of a shard as an SQL identifier.
func (s Schema) Log(shard int) string { return s.Table(fmt.Sprintf("log_%d", shard)) }

// LogSequence is the sequence of a shard's numbers as an SQL identifier.
func (s Schema) LogSequence(shard int) string { return s.Table(fmt.Sprintf("log_%d_seq", shard)) }

// sql fills a statement: {s} is the schema.
func (s Schema) sql(statement string) string {
	return strings.ReplaceAll(statement, "{s}", s.quoted())
}

// logSQL fills a statement on one shard's log: {s} is the schema, {log} the
// table, {seq} its sequence, {logname} and {seqname} the two as literals,
// {shard} its number.
func (s Schema) logSQL(statement string, shard int) string {
	log, seq := s.Log(shard), s.LogSequence(shard)
	return strings.NewReplacer("{s}", s.quoted(), "{log}", log, "{seq}", seq,
		"{logname}", "'"+quoteLiteral(log)+"'", "{seqname}", "'"+quoteLiteral(seq)+"'", "{shard}", strconv.Itoa(shard)).Replace(statement)
}

// shardsUpTo are the numbers of n shards, from 0.
func shardsUpTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func quoteLiteral(text string) string { return strings.ReplaceAll(text, "'", "''") }
