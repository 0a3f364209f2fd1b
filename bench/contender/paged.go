package contender

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Paged reads a table in pages and does nothing else: what PostgreSQL and the
// client can do at all. It is no relay, since it notes nothing and misses late
// commits.
type Paged struct {
	// Raw leaves the columns as the server sent them.
	Raw bool
}

// pageSize of the limit.
const pageSize = 1000

// Rereads marks it as one that leaves the messages in place.
func (Paged) Rereads() {}

// pagedTable has the columns of this project's log, in one table.
const pagedTable = `CREATE TABLE paged (
	seq          bigserial   PRIMARY KEY,
	id           uuid        NOT NULL,
	created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
	not_before   timestamptz,
	expires      timestamptz,
	topic        text        NOT NULL,
	key          text        NOT NULL,
	type         text        NOT NULL,
	content_type text        NOT NULL DEFAULT 'application/json',
	headers      json,
	payload      bytea       NOT NULL)`

const (
	fillPagedSQL = `INSERT INTO paged (id, topic, key, type, payload)
		SELECT id, 'orders', key, 'order.created', convert_to(payload, 'UTF8') FROM bench_source ORDER BY n`
	pageSQL = `SELECT seq, id, topic, key, type, content_type, headers::text, payload, created_at, not_before, expires
		FROM paged WHERE seq > $1 ORDER BY seq LIMIT $2`
)

// Setup makes the table.
func (Paged) Setup(ctx context.Context, db *pgxpool.Pool) error { return exec(ctx, db, pagedTable) }

// Fill copies the source.
func (Paged) Fill(ctx context.Context, db *pgxpool.Pool) error { return exec(ctx, db, fillPagedSQL) }

// FillSent copies the source; Options.After leaves it out.
func (p Paged) FillSent(ctx context.Context, db *pgxpool.Pool, _ string) error {
	return p.Fill(ctx, db)
}

// Reset empties the table.
func (Paged) Reset(ctx context.Context, db *pgxpool.Pool) error {
	return exec(ctx, db, "TRUNCATE paged RESTART IDENTITY")
}

// pagedRow is a row as a program would want it.
type pagedRow struct {
	seq                           int64
	id                            uuid.UUID
	topic, key, kind, contentType string
	headers                       *string
	payload                       []byte
	createdAt                     time.Time
	notBefore, expires            *time.Time
}

// Open connects. The run ends by itself at the end of the table.
func (p Paged) Open(ctx context.Context, o Options, sink *Sink) (func(context.Context) error, error) {
	db, err := connect(ctx, o.URL, 1)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		defer db.Close()
		read := p.decoded
		if p.Raw {
			read = p.raw
		}
		page := make([]pagedRow, 0, pageSize)
		for after := int64(o.After); ctx.Err() == nil; {
			page = page[:0]
			rows, err := db.Query(ctx, pageSQL, after, pageSize)
			if err == nil {
				page, err = read(rows, page)
			}
			if err != nil {
				return unlessDone(ctx, err)
			}
			if len(page) == 0 {
				<-ctx.Done()
				break
			}
			for i := range page {
				sink.MarkPayload(page[i].payload)
			}
			sink.Batch(len(page))
			after = page[len(page)-1].seq
		}
		return nil
	}, nil
}

func (Paged) decoded(rows pgx.Rows, page []pagedRow) ([]pagedRow, error) {
	var r pagedRow
	_, err := pgx.ForEachRow(rows, []any{(*int64)(&r.seq), (*[16]byte)(&r.id), &r.topic, &r.key, &r.kind, &r.contentType,
		&r.headers, &r.payload, &r.createdAt, &r.notBefore, &r.expires}, func() error {
		page = append(page, r)
		return nil
	})
	return page, err
}

func (Paged) raw(rows pgx.Rows, page []pagedRow) ([]pagedRow, error) {
	for rows.Next() {
		values := rows.RawValues()
		seq := int64(0)
		for _, b := range values[0] {
			seq = seq<<8 | int64(b)
		}
		page = append(page, pagedRow{seq: seq, payload: append([]byte(nil), values[7]...)})
	}
	return page, rows.Err()
}

// unlessDone drops the error of what was stopped.
func unlessDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
