// Package dynamoinbox tests the DynamoDB inbox on the AWS emulator.
package dynamoinbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/uuid"

	"github.com/postrider/postrider/conformance"
	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/inbox/dynamoinbox"
)

// rig is an inbox and a table of counters, both fresh.
type rig struct {
	client          *dynamodb.Client
	inbox           *dynamoinbox.Store
	table, counters string
}

func newRig(t testing.TB, change func(*dynamoinbox.Config)) *rig {
	t.Helper()
	server := awsemulator.Start()
	t.Cleanup(server.Close)
	return newRigAt(t, server.Endpoint, change)
}

func newRigAt(t testing.TB, endpoint string, change func(*dynamoinbox.Config)) *rig {
	t.Helper()
	name := uuid.NewString()
	r := &rig{
		client:   dynamodb.NewFromConfig(awsemulator.Config(endpoint)),
		table:    "inbox-" + name,
		counters: "counters-" + name,
	}
	config := dynamoinbox.Config{Client: r.client, Table: r.table}
	if change != nil {
		change(&config)
	}
	var err error
	if r.inbox, err = dynamoinbox.New(config); err != nil {
		t.Fatal(err)
	}
	for range 2 { // safe to run again
		if err := r.inbox.CreateTable(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := cloud.EnsureTable(t.Context(), r.client, r.counters, "name"); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) count(name string) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                 &r.counters,
		Key:                       counterKey(name),
		UpdateExpression:          aws.String("ADD seen :one"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":one": &types.AttributeValueMemberN{Value: "1"}},
	}}
}

func (r *rig) counted(ctx context.Context, name string) (int, error) {
	found, err := r.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &r.counters, Key: counterKey(name), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return 0, err
	}
	seen, ok := found.Item["seen"].(*types.AttributeValueMemberN)
	if !ok {
		return 0, nil
	}
	return strconv.Atoi(seen.Value)
}

func counterKey(name string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"name": &types.AttributeValueMemberS{Value: name}}
}

func TestConformance(t *testing.T) {
	conformance.Inbox(t, func(t testing.TB) conformance.InboxHarness[*dynamoinbox.Tx] {
		r := newRig(t, nil)
		name := func(consumer string, id uuid.UUID) string { return consumer + "/" + id.String() }
		return conformance.InboxHarness[*dynamoinbox.Tx]{
			Store: r.inbox,
			Effect: func(_ context.Context, tx *dynamoinbox.Tx, consumer string, id uuid.UUID) error {
				tx.Add(r.count(name(consumer, id)))
				return nil
			},
			Effects: func(ctx context.Context, consumer string, id uuid.UUID) (int, error) {
				return r.counted(ctx, name(consumer, id))
			},
		}
	})
}

// Two messages handled in one transaction, one of which a second consumer
// process records in between: the other one's effect must not be lost.
func TestOneOfTwoRecordedMeanwhile(t *testing.T) {
	r, ctx := newRig(t, nil), t.Context()
	contested, own := uuid.New(), uuid.New()
	handle := func(between func(), ids ...uuid.UUID) error {
		return r.inbox.InTx(ctx, func(tx *dynamoinbox.Tx) error {
			for _, id := range ids {
				first, err := r.inbox.Record(ctx, tx, "shop", id)
				if err != nil {
					return err
				}
				if first {
					tx.Add(r.count(id.String()))
				}
			}
			between()
			return nil
		})
	}
	runs := 0
	err := handle(func() {
		if runs++; runs == 1 {
			if err := handle(func() {}, contested); err != nil {
				t.Error(err)
			}
		}
	}, contested, own)
	if err != nil {
		t.Fatal(err)
	}
	if runs != 2 {
		t.Errorf("the function ran %d times, want 2", runs)
	}
	for _, id := range []uuid.UUID{contested, own} {
		if n, err := r.counted(ctx, id.String()); n != 1 || err != nil {
			t.Errorf("message %s: %d effects, %v; want 1", id, n, err)
		}
	}
}

// handle counts the message's effects.
func (r *rig) handle(ctx context.Context, id uuid.UUID) (runs int, err error) {
	err = r.inbox.InTx(ctx, func(tx *dynamoinbox.Tx) error {
		runs++
		first, err := r.inbox.Record(ctx, tx, "shop", id)
		if err == nil && first {
			tx.Add(r.count(id.String()))
		}
		return err
	})
	return runs, err
}

// DynamoDB wrote the transaction, but its answer was lost: the client sends it
// again, and must not take its own record for a reason to fail.
func TestLostAnswer(t *testing.T) {
	server := awsemulator.Start()
	t.Cleanup(server.Close)
	proxy := awsproxy.New(server.Endpoint, 1)
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	r, ctx, id := newRigAt(t, front.URL, nil), t.Context(), uuid.New()
	proxy.Add(awsproxy.Rule{Target: "TransactWriteItems", Count: 1, Fault: awsproxy.LoseAnswer()})
	if _, err := r.handle(ctx, id); err != nil {
		t.Fatal(err)
	}
	if n, err := r.counted(ctx, id.String()); n != 1 || err != nil {
		t.Errorf("%d effects, %v; want 1", n, err)
	}
}

// Another transaction is at the same items just now: InTx tries again by itself.
func TestConflict(t *testing.T) {
	server := awsemulator.Start()
	t.Cleanup(server.Close)
	upstream, err := url.Parse(server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	const conflicts = 3
	var met atomic.Int32
	pass := httputil.NewSingleHostReverseProxy(upstream)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if !strings.HasSuffix(request.Header.Get("X-Amz-Target"), ".TransactWriteItems") || met.Add(1) > conflicts {
			pass.ServeHTTP(w, request)
			return
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"cancelled",
			"CancellationReasons":[{"Code":"None"},{"Code":"TransactionConflict","Message":"Transaction is ongoing for the item"}]}`)
	}))
	t.Cleanup(front.Close)
	r, ctx, id := newRigAt(t, front.URL, nil), t.Context(), uuid.New()
	runs, err := r.handle(ctx, id)
	if err != nil || runs != conflicts+1 {
		t.Errorf("%d runs, %v; want %d", runs, err, conflicts+1)
	}
	if n, err := r.counted(ctx, id.String()); n != 1 || err != nil {
		t.Errorf("%d effects, %v; want 1", n, err)
	}

	met.Store(-1 << 20) // it never ends
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if _, err := r.handle(short, uuid.New()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the context's end", err)
	}
}

func TestSameMessageTwiceInOneTransaction(t *testing.T) {
	r, ctx, id := newRig(t, nil), t.Context(), uuid.New()
	var answers []bool
	err := r.inbox.InTx(ctx, func(tx *dynamoinbox.Tx) error {
		for range 2 {
			first, err := r.inbox.Record(ctx, tx, "shop", id)
			if err != nil {
				return err
			}
			answers = append(answers, first)
		}
		return nil
	})
	if err != nil || fmt.Sprint(answers) != "[true false]" {
		t.Fatalf("answers %v, error %v", answers, err)
	}
}

func TestFailedConditionOfTheEffectIsTheCallers(t *testing.T) {
	r, ctx, id := newRig(t, nil), t.Context(), uuid.New()
	handle := func(condition string) error {
		return r.inbox.InTx(ctx, func(tx *dynamoinbox.Tx) error {
			if _, err := r.inbox.Record(ctx, tx, "shop", id); err != nil {
				return err
			}
			item := r.count("stock")
			item.Update.ConditionExpression = &condition
			tx.Add(item)
			return nil
		})
	}
	err := handle("attribute_exists(seen)")
	cancelled, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok || aws.ToString(cancelled.CancellationReasons[1].Code) != "ConditionalCheckFailed" {
		t.Fatalf("error %v, want the cancelled transaction with its reasons", err)
	}
	// The record went with the effect, so the message can come again.
	if err := handle("attribute_not_exists(seen)"); err != nil {
		t.Fatal(err)
	}
	if n, err := r.counted(ctx, "stock"); n != 1 || err != nil {
		t.Fatalf("%d effects, %v; want 1", n, err)
	}
}

func TestTooManyItems(t *testing.T) {
	r, ctx := newRig(t, nil), t.Context()
	handle := func(id uuid.UUID, n int) error {
		return r.inbox.InTx(ctx, func(tx *dynamoinbox.Tx) error {
			if _, err := r.inbox.Record(ctx, tx, "shop", id); err != nil {
				return err
			}
			for i := range n {
				tx.Add(r.count(fmt.Sprint(id, i)))
			}
			return nil
		})
	}
	if err := handle(uuid.New(), dynamoinbox.MaxItems-1); err != nil {
		t.Fatalf("a full transaction: %v", err)
	}
	id := uuid.New()
	if err := handle(id, dynamoinbox.MaxItems); err == nil {
		t.Fatal("one item too many was taken")
	}
	if n, err := r.counted(ctx, fmt.Sprint(id, 0)); n != 0 || err != nil {
		t.Fatalf("%d effects of a refused transaction, %v", n, err)
	}
}

func TestKeepWritesTheTimeToLive(t *testing.T) {
	const keep = 24 * time.Hour
	r := newRig(t, func(c *dynamoinbox.Config) { c.Keep, c.KeyAttribute, c.TTLAttribute = keep, "pk", "ttl" })
	ctx, before := t.Context(), time.Now()
	err := r.inbox.InTx(ctx, func(tx *dynamoinbox.Tx) error {
		_, err := r.inbox.Record(ctx, tx, "shop", uuid.New())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	setting, err := r.client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &r.table})
	if err != nil || aws.ToString(setting.TimeToLiveDescription.AttributeName) != "ttl" {
		t.Fatalf("time to live: %+v, %v", setting, err)
	}
	all, err := r.client.Scan(ctx, &dynamodb.ScanInput{TableName: &r.table})
	if err != nil || len(all.Items) != 1 {
		t.Fatalf("records: %+v, %v", all, err)
	}
	end, err := strconv.ParseInt(all.Items[0]["ttl"].(*types.AttributeValueMemberN).Value, 10, 64)
	if err != nil || time.Unix(end, 0).Before(before.Add(keep)) || time.Unix(end, 0).After(time.Now().Add(keep+2*time.Second)) {
		t.Fatalf("the record lives until %s, %v", time.Unix(end, 0), err)
	}
}
