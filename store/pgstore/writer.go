package pgstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postrider/postrider/internal/shardkey"
	"github.com/postrider/postrider/outbox"
)

// Applications have any search_path, so everything has its schema.
const (
	enqueueSQL = `SELECT {s}.enqueue($1::pg_catalog.text, $2::pg_catalog.bytea, $3::pg_catalog.text, $4::pg_catalog.text,
		$5::pg_catalog.text::pg_catalog.json, $6::pg_catalog.text, $7::pg_catalog.timestamptz, $8::pg_catalog.timestamptz, $9::pg_catalog.text::pg_catalog.uuid)`
	lockKeysSQL = `SELECT {s}.lock_keys(VARIADIC ARRAY(SELECT pg_catalog.json_array_elements_text($1::pg_catalog.text::pg_catalog.json)))`
)

// Pgx enqueues within a pgx.Tx. The zero value uses DefaultSchema. It is an
// outbox.Inserter and outbox.KeyLocker, safe for concurrent use. It works in every
// mode in which pgx sends statements, and in sessions with any search_path; their
// client_encoding must be UTF8.
type Pgx struct{ Schema Schema }

var (
	_ outbox.Inserter[pgx.Tx]  = Pgx{}
	_ outbox.KeyLocker[pgx.Tx] = Pgx{}
)

// Insert sends all messages in one round trip; a connection's first Insert
// takes one more, to learn how many shards there are. ErrNoSchema if the tables
// are missing.
func (p Pgx) Insert(ctx context.Context, tx pgx.Tx, msgs []outbox.Message) error {
	logs, err := p.logs(ctx, tx)
	if err != nil {
		return err
	}
	var batch pgx.Batch
	for i := range msgs {
		m := &msgs[i]
		headers, err := headersArg(m)
		if err != nil {
			return err
		}
		batch.Queue(logs[shardkey.Shard(m.Key, len(logs))],
			pgtype.UUID{Bytes: m.ID, Valid: true}, m.Topic, m.Key, m.Type, payloadArg(m), m.ContentType, headers, timeArg(m.NotBefore), timeArg(m.Expires))
	}
	err = tx.SendBatch(ctx, &batch).Close()
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == undefinedObject {
		p.forget(tx) // the tables are others now
	}
	return err
}

// LockKeys takes transaction-level advisory locks.
func (p Pgx) LockKeys(ctx context.Context, tx pgx.Tx, keys []string) error {
	list, err := json.Marshal(keys)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, p.Schema.sql(lockKeysSQL), string(list))
	return err
}

// SQL enqueues within a *sql.Tx of any PostgreSQL driver whose placeholders
// are $1, $2 (pgx/stdlib, lib/pq). The zero value uses DefaultSchema. It is an
// outbox.Inserter and outbox.KeyLocker, safe for concurrent use.
type SQL struct{ Schema Schema }

var (
	_ outbox.Inserter[*sql.Tx]  = SQL{}
	_ outbox.KeyLocker[*sql.Tx] = SQL{}
)

// Insert sends the messages one by one.
func (s SQL) Insert(ctx context.Context, tx *sql.Tx, msgs []outbox.Message) error {
	statement := s.Schema.sql(enqueueSQL)
	for i := range msgs {
		args, err := enqueueArgs(&msgs[i])
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
			return err
		}
	}
	return nil
}

// LockKeys takes transaction-level advisory locks.
func (s SQL) LockKeys(ctx context.Context, tx *sql.Tx, keys []string) error {
	list, err := json.Marshal(keys)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, s.Schema.sql(lockKeysSQL), string(list))
	return err
}

// enqueueArgs uses only types that every driver passes alike.
func enqueueArgs(m *outbox.Message) ([]any, error) {
	headers, err := headersArg(m)
	if err != nil {
		return nil, err
	}
	return []any{m.Topic, payloadArg(m), m.Key, m.Type, headers, m.ContentType, timeArg(m.NotBefore), timeArg(m.Expires), m.ID.String()}, nil
}

// headersArg is NULL where there are none.
func headersArg(m *outbox.Message) (any, error) {
	if len(m.Headers) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(m.Headers)
	if err != nil {
		return nil, fmt.Errorf("headers: %w", err)
	}
	return string(text), nil
}

func payloadArg(m *outbox.Message) []byte {
	if m.Payload == nil {
		return []byte{}
	}
	return m.Payload
}

// timeArg is NULL for the zero time.
func timeArg(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC()
}
