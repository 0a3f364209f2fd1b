// Package dynamoinbox is the inbox of consumers whose effects go to DynamoDB:
// the record of having handled a message and the effect are one
// TransactWriteItems call, so both happen or neither.
package dynamoinbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/uuid"

	"github.com/postrider/postrider/inbox"
)

var _ inbox.Store[*Tx] = (*Store)(nil)

// MaxItems is how many items one transaction may write, records included: the
// limit of TransactWriteItems, as
// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
// states it. DynamoDB also refuses more than 4 MB together.
const MaxItems = 100

// Defaults of Config.
const (
	DefaultTable        = "postrider_inbox"
	DefaultKeyAttribute = "id"
	DefaultTTLAttribute = "expires"
)

// conflictPause is the longest pause before the first repetition of a
// transaction that met another one on the same item; it doubles up to
// maxConflictPause. It goes on until the context ends.
const (
	conflictPause    = 10 * time.Millisecond
	maxConflictPause = 500 * time.Millisecond
)

// Config says where the records are.
type Config struct {
	// Client is the caller's. Required.
	Client *dynamodb.Client
	// Table holds the records. It must be in the same account and region as
	// the effects. Default: DefaultTable.
	Table string
	// KeyAttribute is the table's partition key, a string; the table has no
	// sort key. Default: DefaultKeyAttribute.
	KeyAttribute string
	// Keep is how long records are kept at least, after which DynamoDB's time
	// to live may remove them. It must exceed the longest time that a copy of
	// a message can be under way: the queue's and its dead-letter queue's
	// retention together. Zero: for ever.
	Keep time.Duration
	// TTLAttribute is where the end of Keep is written, in seconds since
	// 1970, if Keep is set. Default: DefaultTTLAttribute.
	TTLAttribute string
}

// Store is an inbox in a DynamoDB table. It is safe for concurrent use.
type Store struct {
	config Config
}

// New returns a Store, or everything that is wrong with the config. It calls
// nobody: CreateTable makes the table.
func New(c Config) (*Store, error) {
	var errs []error
	if c.Client == nil {
		errs = append(errs, errors.New("dynamoinbox: Config.Client is nil"))
	}
	if c.Keep < 0 {
		errs = append(errs, fmt.Errorf("dynamoinbox: Config.Keep is %s; zero keeps records for ever", c.Keep))
	}
	if c.Table == "" {
		c.Table = DefaultTable
	}
	if c.KeyAttribute == "" {
		c.KeyAttribute = DefaultKeyAttribute
	}
	if c.TTLAttribute == "" {
		c.TTLAttribute = DefaultTTLAttribute
	}
	if c.TTLAttribute == c.KeyAttribute {
		errs = append(errs, fmt.Errorf("dynamoinbox: the key and the time to live are both attribute %q", c.KeyAttribute))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Store{config: c}, nil
}

// Tx collects the writes of one transaction. It belongs to one call of the
// function that InTx runs, and to one goroutine.
type Tx struct {
	items    []types.TransactWriteItem
	records  map[string]bool // by key
	isRecord []bool          // parallel to items: this one is a record
}

// Add puts writes of an effect into the transaction. Each of the items may be
// written once in one transaction, which DynamoDB checks.
func (tx *Tx) Add(items ...types.TransactWriteItem) {
	for _, item := range items {
		tx.add(item, false)
	}
}

// Put adds a put to the transaction.
func (tx *Tx) Put(put types.Put) { tx.Add(types.TransactWriteItem{Put: &put}) }

func (tx *Tx) add(item types.TransactWriteItem, recorded bool) {
	tx.items = append(tx.items, item)
	tx.isRecord = append(tx.isRecord, recorded)
}

// InTx runs fn and then writes what it collected, all or nothing. If fn returns
// an error nothing is written.
//
// DynamoDB checks conditions only when the transaction is written. So if
// another consumer recorded the same message after fn had looked, nothing is
// written and fn runs again, with a fresh Tx, and then sees that record. fn
// must therefore have no effects of its own but those it adds to the Tx.
//
// A failed condition of the caller's own items is an error; errors.As finds
// DynamoDB's *types.TransactionCanceledException in it, whose reasons are in
// the order of the items.
func (s *Store) InTx(ctx context.Context, fn func(*Tx) error) error {
	pause := conflictPause
	for {
		tx := &Tx{records: make(map[string]bool)}
		if err := fn(tx); err != nil {
			return err
		}
		err := s.write(ctx, tx)
		switch judge(err, tx) {
		case done:
			return nil
		case handledBefore:
			// Look again at once: the record is there.
		case conflict:
			if err := wait(ctx, rand.N(pause)); err != nil {
				return fmt.Errorf("dynamoinbox: another transaction holds the same items: %w", err)
			}
			pause = min(2*pause, maxConflictPause)
		case broken:
			return fmt.Errorf("dynamoinbox: write %d items: %w", len(tx.items), err)
		}
	}
}

func (s *Store) write(ctx context.Context, tx *Tx) error {
	if len(tx.items) == 0 {
		return nil
	}
	if len(tx.items) > MaxItems {
		return fmt.Errorf("a transaction may write %d items, records included", MaxItems)
	}
	_, err := s.config.Client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: tx.items})
	return err
}

// Record looks for the record that consumer handled the message, with a
// consistent read, and adds it to the transaction if there is none. A second
// call for the same message in one transaction yields false too.
func (s *Store) Record(ctx context.Context, tx *Tx, consumer string, id uuid.UUID) (first bool, err error) {
	if consumer == "" {
		return false, errors.New("dynamoinbox: the consumer has no name")
	}
	// The id has a fixed length, so no two pairs share a key.
	key := id.String() + "#" + consumer
	if tx.records[key] {
		return false, nil
	}
	found, err := s.config.Client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:                &s.config.Table,
		Key:                      map[string]types.AttributeValue{s.config.KeyAttribute: text(key)},
		ConsistentRead:           aws.Bool(true),
		ProjectionExpression:     aws.String("#key"),
		ExpressionAttributeNames: map[string]string{"#key": s.config.KeyAttribute},
	})
	if err != nil {
		return false, fmt.Errorf("dynamoinbox: look for message %s of consumer %q: %w", id, consumer, err)
	}
	if found.Item != nil {
		return false, nil
	}
	record := map[string]types.AttributeValue{s.config.KeyAttribute: text(key)}
	if s.config.Keep > 0 {
		// Rounded up: kept no shorter than asked for.
		end := time.Now().Add(s.config.Keep).Unix() + 1
		record[s.config.TTLAttribute] = &types.AttributeValueMemberN{Value: strconv.FormatInt(end, 10)}
	}
	tx.records[key] = true
	tx.add(types.TransactWriteItem{Put: &types.Put{
		TableName:                &s.config.Table,
		Item:                     record,
		ConditionExpression:      aws.String("attribute_not_exists(#key)"),
		ExpressionAttributeNames: map[string]string{"#key": s.config.KeyAttribute},
	}}, true)
	return true, nil
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
