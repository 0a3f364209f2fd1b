package fulfilment

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/postrider/postrider/examples/orders/cloud"
)

// Provision creates the service's table, and its queue with a dead-letter
// queue. It is safe to run again.
func (s *Service) Provision(ctx context.Context, client *sqs.Client, queue string) error {
	if err := cloud.EnsureQueue(ctx, client, queue); err != nil {
		return err
	}
	return cloud.EnsureTable(ctx, s.client, s.table, key)
}
