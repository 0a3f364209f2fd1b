package cloud

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/postrider/postrider/internal/awsbody"
)

// DynamoDB returns a client that loses no answers; package awsbody says how one
// could. (The clients of SQS and SNS are the brokers' business.)
func DynamoDB(cfg aws.Config) *dynamodb.Client {
	return dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) { o.HTTPClient = awsbody.Wrap(o.HTTPClient) })
}

// tableTimeout is how long EnsureTable waits for a table to become usable.
const tableTimeout = 2 * time.Minute

// EnsureTable creates a table with a string partition key, paid per request,
// unless it exists, and waits until it is usable.
func EnsureTable(ctx context.Context, client *dynamodb.Client, name, key string) error {
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:            &name,
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &key, AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: &key, KeyType: types.KeyTypeHash}},
	})
	if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
		return fmt.Errorf("create table %q: %w", name, err)
	}
	waiter := dynamodb.NewTableExistsWaiter(client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay = time.Second
	})
	if err := waiter.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &name}, tableTimeout); err != nil {
		return fmt.Errorf("wait for table %q: %w", name, err)
	}
	return nil
}
