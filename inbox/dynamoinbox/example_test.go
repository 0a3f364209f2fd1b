package dynamoinbox_test

import (
	"context"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/inbox/dynamoinbox"
	"github.com/postrider/postrider/outbox"
)

// A handler that adds to a counter exactly once for each message.
func Example() {
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	store, err := dynamoinbox.New(dynamoinbox.Config{Client: dynamodb.NewFromConfig(cfg)})
	if err != nil {
		log.Fatal(err)
	}
	handler := inbox.Once(store, "counter", func(_ context.Context, tx *dynamoinbox.Tx, m outbox.Message) error {
		tx.Add(types.TransactWriteItem{Update: &types.Update{
			TableName:                 aws.String("counters"),
			Key:                       map[string]types.AttributeValue{"name": &types.AttributeValueMemberS{Value: m.Type}},
			UpdateExpression:          aws.String("ADD seen :one"),
			ExpressionAttributeValues: map[string]types.AttributeValue{":one": &types.AttributeValueMemberN{Value: "1"}},
		}})
		return nil
	})
	_ = handler // give it to a Consumer
}
