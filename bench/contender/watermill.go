package contender

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
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

// Stalls says that the default schema reads nothing that is newer than the oldest
// transaction of the cluster.
func (w Watermill) Stalls() bool { return !w.Queue }

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

// FillSent copies the source and notes that the reader had all of it.
func (w Watermill) FillSent(ctx context.Context, db *pgxpool.Pool, reader string) error {
	if err := w.Fill(ctx, db); err != nil || w.Queue {
		return err
	}
	_, err := db.Exec(ctx, `INSERT INTO watermill_offsets_`+watermillTopic+` (consumer_group, offset_acked, last_processed_transaction_id)
		SELECT $1, "offset", transaction_id FROM watermill_`+watermillTopic+` ORDER BY transaction_id DESC, "offset" DESC LIMIT 1
		ON CONFLICT (consumer_group) DO UPDATE SET offset_acked = excluded.offset_acked, last_processed_transaction_id = excluded.last_processed_transaction_id`, reader)
	return err
}

// Insert publishes within the transaction.
func (w Watermill) Insert(context.Context, *pgxpool.Pool) (func(ctx context.Context, tx pgx.Tx, m Message) error, error) {
	schema, _ := w.adapters()
	return func(ctx context.Context, tx pgx.Tx, m Message) error {
		p, err := sql.NewPublisher(sql.TxFromPgx(tx), sql.PublisherConfig{SchemaAdapter: schema}, watermill.NopLogger{})
		if err != nil {
			return err
		}
		out := message.NewMessageWithContext(ctx, watermill.NewUUID(), m.Payload)
		out.Metadata.Set("key", m.Key)
		return p.Publish(watermillTopic, out)
	}, nil
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
