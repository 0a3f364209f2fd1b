package dynamoinbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// tableTimeout is how long CreateTable waits for the table to become usable.
const tableTimeout = 2 * time.Minute

// CreateTable creates the table, paid per request, waits until it is usable and
// switches time to live on if Keep is set. It is safe to run again; a table
// that exists keeps its other settings.
func (s *Store) CreateTable(ctx context.Context) error {
	_, err := s.config.Client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:            &s.config.Table,
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &s.config.KeyAttribute, AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: &s.config.KeyAttribute, KeyType: types.KeyTypeHash}},
	})
	if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
		return fmt.Errorf("dynamoinbox: create table %q: %w", s.config.Table, err)
	}
	waiter := dynamodb.NewTableExistsWaiter(s.config.Client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay = time.Second
	})
	if err := waiter.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &s.config.Table}, tableTimeout); err != nil {
		return fmt.Errorf("dynamoinbox: wait for table %q: %w", s.config.Table, err)
	}
	if s.config.Keep == 0 {
		return nil
	}
	// DynamoDB refuses to switch on what is on.
	now, err := s.config.Client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &s.config.Table})
	if err != nil {
		return fmt.Errorf("dynamoinbox: read the time to live of table %q: %w", s.config.Table, err)
	}
	if d := now.TimeToLiveDescription; d != nil && aws.ToString(d.AttributeName) == s.config.TTLAttribute &&
		(d.TimeToLiveStatus == types.TimeToLiveStatusEnabled || d.TimeToLiveStatus == types.TimeToLiveStatusEnabling) {
		return nil
	}
	_, err = s.config.Client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName:               &s.config.Table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &s.config.TTLAttribute, Enabled: aws.Bool(true)},
	})
	if err != nil {
		return fmt.Errorf("dynamoinbox: set the time to live of table %q: %w", s.config.Table, err)
	}
	return nil
}
