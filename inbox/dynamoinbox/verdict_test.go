package dynamoinbox

import (
	"errors"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

func TestJudge(t *testing.T) {
	cancelled := func(codes ...string) error {
		e := &types.TransactionCanceledException{}
		for _, code := range codes {
			e.CancellationReasons = append(e.CancellationReasons, types.CancellationReason{Code: aws.String(code)})
		}
		return fmt.Errorf("operation error: %w", e)
	}
	tx := &Tx{}
	tx.add(types.TransactWriteItem{}, true)
	tx.add(types.TransactWriteItem{}, false)

	for name, c := range map[string]struct {
		err  error
		want verdict
	}{
		"written":                              {nil, done},
		"network":                              {errors.New("no route"), broken},
		"record exists":                        {cancelled("ConditionalCheckFailed", "None"), handledBefore},
		"record exists and the effect failed":  {cancelled("ConditionalCheckFailed", "ConditionalCheckFailed"), handledBefore},
		"record exists beside a conflict":      {cancelled("ConditionalCheckFailed", "TransactionConflict"), handledBefore},
		"the effect's condition failed":        {cancelled("None", "ConditionalCheckFailed"), broken},
		"conflict on the record":               {cancelled("TransactionConflict", "None"), conflict},
		"conflict on the effect":               {cancelled("None", "TransactionConflict"), conflict},
		"conflict, and the effect is invalid":  {cancelled("TransactionConflict", "ValidationError"), broken},
		"throttled":                            {cancelled("None", "ThrottlingError"), broken},
		"reasons do not match the items":       {cancelled("ConditionalCheckFailed"), broken},
		"cancelled without a reason for items": {cancelled("None", "None"), broken},
	} {
		t.Run(name, func(t *testing.T) {
			if got := judge(c.err, tx); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestNewReportsAllProblems(t *testing.T) {
	_, err := New(Config{Keep: -1, KeyAttribute: "x", TTLAttribute: "x"})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 3 {
		t.Fatalf("want 3 problems, got %v", err)
	}
}
