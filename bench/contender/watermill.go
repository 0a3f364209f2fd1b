package contender

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/jackc/pgx/v5/pgxpool"
)

const watermillModule = "github.com/ThreeDotsLabs/watermill-sql/v4"

// Watermill is watermill-sql through pgx, with either of its schemas.
type Watermill struct {
	// Queue is its schema that deletes (PostgreSQLQueueSchema); otherwise the
	// default one, where a consumer group notes how far it has come.
	Queue bool
	// Batch is SubscribeBatchSize. Its default is 100.
	Batch int
	// Poll is the pause when there is nothing. Its default is 1 s.
	Poll time.Duration
}

// watermillTopic names its tables.
const watermillTopic = "orders"

func (w Watermill) adapters() (sql.SchemaAdapter, sql.OffsetsAdapter) {
	bytea := func(string) string { return "BYTEA" }
	if w.Queue {
		return sql.PostgreSQLQueueSchema{GeneratePayloadType: bytea, SubscribeBatchSize: w.Batch}, sql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true}
	}
	return sql.DefaultPostgreSQLSchema{GeneratePayloadType: bytea, SubscribeBatchSize: w.Batch}, sql.DefaultPostgreSQLOffsetsAdapter{}
}

func (w Watermill) subscriber(db *pgxpool.Pool, group string) (*sql.Subscriber, error) {
	schema, offsets := w.adapters()
	if w.Queue {
		group = "" // it knows no groups
	}
	return sql.NewSubscriber(sql.BeginnerFromPgx(db), sql.SubscriberConfig{
		ConsumerGroup: group, PollInterval: w.Poll, SchemaAdapter: schema, OffsetsAdapter: offsets,
	}, watermill.NopLogger{})
}

// Setup lets it make its tables.
func (w Watermill) Setup(_ context.Context, db *pgxpool.Pool) error {
	s, err := w.subscriber(db, "")
	if err != nil {
		return err
	}
	return s.SubscribeInitialize(watermillTopic)
}

// Fill copies the source; the key travels in the metadata.
func (w Watermill) Fill(ctx context.Context, db *pgxpool.Pool) error {
	columns, values := "", ""
	if !w.Queue {
		columns, values = ", transaction_id", ", pg_current_xact_id()"
	}
	return exec(ctx, db, fmt.Sprintf(`INSERT INTO watermill_%s (uuid, payload, metadata%s)
		SELECT id::text, convert_to(payload, 'UTF8'), json_build_object('key', key)%s FROM bench_source ORDER BY n`, watermillTopic, columns, values))
}

// Reset empties the tables.
func (w Watermill) Reset(ctx context.Context, db *pgxpool.Pool) error {
	statements := []string{"TRUNCATE watermill_" + watermillTopic + " RESTART IDENTITY"}
	if !w.Queue {
		statements = append(statements, "TRUNCATE watermill_offsets_"+watermillTopic)
	}
	return exec(ctx, db, statements...)
}

// Open connects and subscribes.
func (w Watermill) Open(ctx context.Context, o Options, sink *Sink) (func(context.Context) error, error) {
	db, err := connect(ctx, o.URL, 2)
	if err != nil {
		return nil, err
	}
	s, err := w.subscriber(db, o.Reader)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		defer db.Close()
		messages, err := s.Subscribe(context.WithoutCancel(ctx), watermillTopic)
		if err != nil {
			return err
		}
		defer s.Close()
		for {
			select {
			case m := <-messages:
				sink.MarkPayload(m.Payload)
				sink.One(w.Batch)
				m.Ack()
			case <-ctx.Done():
				return nil
			}
		}
	}, nil
}
