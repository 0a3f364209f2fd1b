package dynamoinbox

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// verdict is what DynamoDB's answer means for the transaction.
type verdict int

const (
	done          verdict = iota
	handledBefore         // somebody recorded one of the messages meanwhile
	conflict              // another transaction is at the same items just now
	broken                // an error for the caller
)

// Codes of cancellation reasons, from
// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
const (
	codeConditionFailed = "ConditionalCheckFailed"
	codeConflict        = "TransactionConflict"
	codeNone            = "None"
)

// judge reads the reasons of a cancelled transaction. A record that exists
// outweighs everything else, because the effect is then done. Otherwise any
// failure of the caller's own items is for the caller.
func judge(err error, tx *Tx) verdict {
	if err == nil {
		return done
	}
	cancelled, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok || len(cancelled.CancellationReasons) != len(tx.items) {
		return broken
	}
	result := broken
	onlyConflicts := true
	for i, reason := range cancelled.CancellationReasons {
		switch code := aws.ToString(reason.Code); {
		case code == codeConditionFailed && tx.isRecord[i]:
			return handledBefore
		case code == codeConflict:
			result = conflict
		case code != codeNone && code != "":
			onlyConflicts = false
		}
	}
	if !onlyConflicts {
		return broken
	}
	return result
}

// wait waits for d or the context's end.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
