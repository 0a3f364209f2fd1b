package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
)

const (
	findParkedSQL = `SELECT DISTINCT shard, seq FROM {s}.parked WHERE id = $1`

	// The log has no index on ids, since it would cost every enqueue.
	findSQL = `WITH looked AS MATERIALIZED (SELECT seq, id FROM {log} WHERE seq < $2 ORDER BY seq DESC LIMIT $3)
		SELECT (SELECT min(seq) FROM looked), (SELECT array_agg(seq) FROM looked WHERE id = $1)`

	findBetweenSQL = `SELECT seq FROM (SELECT seq, id FROM {log} WHERE seq >= $2 ORDER BY seq LIMIT $3) AS looked WHERE id = $1`

	messageSQL = `SELECT id, topic, key, type, content_type, headers::text, payload, created_at, not_before, expires FROM {log} WHERE seq = $1`

	parkedMessageSQL = `SELECT id, topic, key, type, content_type, headers::text, payload, created_at, not_before, expires
		FROM {s}.parked WHERE shard = $1 AND seq = $2 AND route = ANY (SELECT route FROM {s}.cursor) AND payload IS NOT NULL LIMIT 1`
)

const (
	// findPage is how many messages one statement looks at.
	findPage = 100_000
	// idSlack is how far a version 7 id may be from the time of the database.
	idSlack = 10 * time.Second
)

// Find is as admin.Reader says. It looks first where a version 7 id says that
// the message must be.
func (a *Admin) Find(ctx context.Context, id uuid.UUID) ([]admin.Place, error) {
	places, err := a.find(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("look for message %s: %w", id, err)
	}
	return places, nil
}

func (a *Admin) find(ctx context.Context, id uuid.UUID) ([]admin.Place, error) {
	rows, err := a.db.Query(ctx, a.schema.sql(findParkedSQL), id)
	if err != nil {
		return nil, err
	}
	places, err := pgx.CollectRows(rows, pgx.RowToStructByPos[admin.Place])
	if err != nil || len(places) > 0 {
		return places, err
	}
	status, err := ReadStatus(ctx, a.db, a.schema)
	if err != nil {
		return nil, err
	}
	if id.Version() == 7 {
		if places, err = a.findNear(ctx, id, status.Shards); err != nil || len(places) > 0 {
			return places, err
		}
	}
	for shard := range status.Shards {
		more, err := a.findBackwards(ctx, id, shard)
		if err != nil {
			return nil, err
		}
		places = append(places, more...)
	}
	return places, nil
}

// findNear looks among what was enqueued when the id was made.
func (a *Admin) findNear(ctx context.Context, id uuid.UUID, shards int) (places []admin.Place, err error) {
	made := time.Unix(id.Time().UnixTime())
	err = a.read(ctx, func(tx pgx.Tx) error {
		for shard := range shards {
			first, err := a.numberAt(ctx, tx, shard, made.Add(-idSlack))
			if err != nil {
				return err
			}
			rows, err := tx.Query(ctx, a.schema.logSQL(findBetweenSQL, shard), id, first, findPage)
			if err != nil {
				return err
			}
			var seq int64
			if _, err := pgx.ForEachRow(rows, []any{&seq}, func() error {
				places = append(places, admin.Place{Shard: shard, Seq: seq})
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return places, err
}

// findBackwards looks through a shard's log from its end, a page a statement.
func (a *Admin) findBackwards(ctx context.Context, id uuid.UUID, shard int) (places []admin.Place, err error) {
	before := int64(maxNumber)
	for {
		var lowest *int64
		var found []int64
		err := a.read(ctx, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, a.schema.logSQL(findSQL, shard), id, before, findPage).Scan(&lowest, &found)
		})
		if err != nil || lowest == nil {
			return places, err
		}
		for _, seq := range found {
			places = append(places, admin.Place{Shard: shard, Seq: seq})
		}
		before = *lowest
	}
}

// Message is as admin.Reader says.
func (a *Admin) Message(ctx context.Context, at admin.Place) (m outbox.Message, inLog bool, err error) {
	m, err = scanMessage(a.db.QueryRow(ctx, a.schema.logSQL(messageSQL, at.Shard), at.Seq))
	if err == nil {
		return m, true, nil
	}
	if errors.Is(err, pgx.ErrNoRows) {
		m, err = scanMessage(a.db.QueryRow(ctx, a.schema.sql(parkedMessageSQL), at.Shard, at.Seq))
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return outbox.Message{}, false, fmt.Errorf("%w: nothing is at %s", admin.ErrNotFound, at)
	}
	if err != nil {
		return outbox.Message{}, false, fmt.Errorf("read message %s: %w", at, err)
	}
	return m, false, nil
}

func scanMessage(row pgx.Row) (m outbox.Message, err error) {
	var n Nullables
	err = row.Scan(&m.ID, &m.Topic, &m.Key, &m.Type, &m.ContentType, &n.Headers, &m.Payload, &m.CreatedAt, &n.NotBefore, &n.Expires)
	n.Into(&m)
	return m, err
}
