package pgstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

const (
	// insertSQL is the INSERT of the function enqueue, without the cost of a
	// function. The key's type exists only where there are {n} shards, so a
	// number that is not true any more is an error, never another shard. All
	// types are named, since a column's own would be a domain, which drivers do
	// not know.
	insertSQL = `INSERT INTO {log} (id, topic, key, type, payload, content_type, headers, not_before, expires)
		VALUES ($1::pg_catalog.uuid, $2::pg_catalog.text, $3::pg_catalog.text::{s}.key_of_{n}_shards, $4::pg_catalog.text, $5::pg_catalog.bytea,
			$6::pg_catalog.text, $7::pg_catalog.text::pg_catalog.json, $8::pg_catalog.timestamptz, $9::pg_catalog.timestamptz)`

	// shardsSQL needs no rights on any table.
	shardsSQL = `SELECT pg_catalog.substr(t.typname::pg_catalog.text, 8, pg_catalog.length(t.typname::pg_catalog.text) - 14)::pg_catalog.int4
		FROM pg_catalog.pg_type AS t JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) t.typnamespace
		WHERE n.nspname OPERATOR(pg_catalog.=) $1::pg_catalog.text AND t.typname::pg_catalog.text OPERATOR(pg_catalog.~) '^key_of_[0-9]+_shards$'`
)

// undefinedObject is PostgreSQL's code for a type that does not exist.
const undefinedObject = "42704"

// logs are the statements that insert into each shard's log. They are found
// out once for each connection.
func (p Pgx) logs(ctx context.Context, tx pgx.Tx) ([]string, error) {
	known := p.known(tx)
	if logs, ok := known[p.logsName()].([]string); ok {
		return logs, nil
	}
	if conn := tx.Conn(); conn != nil { // text that is not UTF-8 there would be another key
		if name := conn.PgConn().ParameterStatus("client_encoding"); name != "UTF8" && name != "" {
			return nil, clientEncoding(name)
		}
	}
	rows, err := tx.Query(ctx, shardsSQL, p.Schema.Name())
	if err != nil {
		return nil, fmt.Errorf("ask for the number of shards: %w", err)
	}
	counts, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, fmt.Errorf("ask for the number of shards: %w", err)
	}
	if len(counts) != 1 {
		return nil, fmt.Errorf("%w (schema %s)", ErrNoSchema, p.Schema.Name())
	}
	statement := strings.ReplaceAll(insertSQL, "{n}", strconv.Itoa(counts[0]))
	logs := make([]string, counts[0])
	for shard := range logs {
		logs[shard] = p.Schema.logSQL(statement, shard)
	}
	known[p.logsName()] = logs
	return logs, nil
}

// forget has logs ask again.
func (p Pgx) forget(tx pgx.Tx) { delete(p.known(tx), p.logsName()) }

// known is what was found out about the transaction's connection.
func (p Pgx) known(tx pgx.Tx) map[string]any {
	if conn := tx.Conn(); conn != nil {
		return conn.PgConn().CustomData()
	}
	return map[string]any{}
}

func (p Pgx) logsName() string { return "postrider: log of schema " + p.Schema.Name() }
