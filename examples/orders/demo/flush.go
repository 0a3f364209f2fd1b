package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/fulfilment"
)

const (
	flushTimeout = 30 * time.Second
	flushPoll    = 10 * time.Millisecond
)

// flush waits until the emulator has written all that it holds. It has no call
// for that; it writes its snapshots in the background, after changes. So flush
// makes a change that changes nothing and waits for the snapshots, twice: the
// first to appear may have been begun before the last change, the second not.
func (p *peers) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	for range 2 {
		before, err := snapshots(p.folder.emulator())
		if err != nil {
			return err
		}
		if err := cloud.EnsureQueue(ctx, p.queues, fulfilment.DefaultQueue); err != nil {
			return err
		}
		table := fulfilment.DefaultTable
		_, err = p.dynamo.DeleteItem(ctx, &dynamodb.DeleteItemInput{
			TableName: &table,
			Key:       map[string]types.AttributeValue{"orderId": &types.AttributeValueMemberS{Value: "none"}},
		})
		if err != nil {
			return fmt.Errorf("touch table %q: %w", table, err)
		}
		if err := awaitNewer(ctx, p.folder.emulator(), before); err != nil {
			return fmt.Errorf("wait for the emulator to write its data: %w", err)
		}
	}
	return nil
}

// snapshotTimes are the times of the snapshots of SQS and DynamoDB.
type snapshotTimes [2]time.Time

func snapshots(dir string) (times snapshotTimes, err error) {
	for i, service := range []string{"sqs", "dynamodb"} {
		info, err := os.Stat(filepath.Join(dir, service+".json"))
		if err != nil && !os.IsNotExist(err) {
			return times, err
		}
		if err == nil {
			times[i] = info.ModTime()
		}
	}
	return times, nil
}

func awaitNewer(ctx context.Context, dir string, before snapshotTimes) error {
	tick := time.NewTicker(flushPoll)
	defer tick.Stop()
	for {
		now, err := snapshots(dir)
		if err != nil {
			return err
		}
		if now[0].After(before[0]) && now[1].After(before[1]) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
