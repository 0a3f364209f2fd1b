package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/shardkey"
	"github.com/postrider/postrider/outbox"
)

// SQL enqueues in the application's own *sql.Tx on a migrated database. See the
// package comment for what that transaction's connection needs.
type SQL struct{}

var (
	_ outbox.Inserter[*sql.Tx]  = SQL{}
	_ outbox.KeyLocker[*sql.Tx] = SQL{}
)

const (
	sqlShards = `SELECT value FROM postrider_meta WHERE name = 'shards'`
	// sqlEnqueue has the shard's number still to be filled in.
	sqlEnqueue = `INSERT INTO postrider_log_%d
	(id, topic, key, type, payload, content_type, headers, not_before, expires)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`
	// sqlLock changes nothing but starts writing, which only one transaction
	// can do at a time.
	sqlLock = `DELETE FROM postrider_meta WHERE name = ''`
)

// Insert writes the messages, in order.
func (SQL) Insert(ctx context.Context, tx *sql.Tx, msgs []outbox.Message) error {
	var shards int
	if err := tx.QueryRowContext(ctx, sqlShards).Scan(&shards); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			return errors.New("sqlitestore: the store has no shards: migrate it")
		}
		return fmt.Errorf("sqlitestore: read the number of shards (was the database migrated?): %w", err)
	}
	var prepared map[int]*sql.Stmt
	if len(msgs) > 2*shards {
		prepared = make(map[int]*sql.Stmt, shards)
		defer func() {
			for _, s := range prepared {
				_ = s.Close()
			}
		}()
	}
	for i := range msgs {
		if err := insert(ctx, tx, prepared, shardkey.Shard(msgs[i].Key, shards), &msgs[i]); err != nil {
			return fmt.Errorf("sqlitestore: insert message %d: %w", i, err)
		}
	}
	return nil
}

func insert(ctx context.Context, tx *sql.Tx, prepared map[int]*sql.Stmt, shard int, m *outbox.Message) error {
	headers, err := encodeHeaders(m.Headers)
	if err != nil {
		return err
	}
	payload := m.Payload
	if payload == nil {
		payload = []byte{}
	}
	query := fmt.Sprintf(sqlEnqueue, shard)
	args := []any{m.ID[:], m.Topic, m.Key, m.Type, payload, m.ContentType, headers, micros(m.NotBefore), micros(m.Expires)}
	if prepared == nil {
		_, err = tx.ExecContext(ctx, query, args...)
		return err
	}
	stmt := prepared[shard]
	if stmt == nil {
		if stmt, err = tx.PrepareContext(ctx, query); err != nil {
			return err
		}
		prepared[shard] = stmt
	}
	_, err = stmt.ExecContext(ctx, args...)
	return err
}

// LockKeys makes the transaction the only writer, which serialises it with every
// other one, whatever their keys. A transaction that was begun IMMEDIATE, as
// with DSN, already is.
func (SQL) LockKeys(ctx context.Context, tx *sql.Tx, _ []string) error {
	if _, err := tx.ExecContext(ctx, sqlLock); err != nil {
		return fmt.Errorf("sqlitestore: become the writer: %w", err)
	}
	return nil
}

// encodeHeaders is a JSON object; JSON has an escape for every character that
// text in a database cannot hold.
func encodeHeaders(h map[string]string) (string, error) {
	if len(h) == 0 {
		return "{}", nil
	}
	b, err := json.Marshal(h)
	if err != nil {
		return "", fmt.Errorf("encode headers: %w", err)
	}
	return string(b), nil
}

// micros is a time as it is stored; the zero time is NULL.
func micros(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: t.UnixMicro(), Valid: !t.IsZero()}
}

func fromMicros(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return time.UnixMicro(n.Int64).UTC()
}
