package load

import (
	"context"
	"fmt"
	"net"
	"net/rpc"
	"sync"

	"github.com/postrider/postrider/outbox"
)

// Sink is a Counter that other processes publish to, so that what was counted
// outlives them.
type Sink struct{ counter *Counter }

// Batch is what one call of a Sink takes.
type Batch struct{ Messages []outbox.Message }

// Answer tells of each message of a Batch whether it was taken, or refused for
// now because the counter is away.
type Answer struct{ Taken, Away []bool }

// Publish counts a batch. It is what rpc calls.
func (s *Sink) Publish(b Batch, a *Answer) error {
	for _, r := range s.counter.Publish(context.Background(), b.Messages) {
		a.Taken = append(a.Taken, r.Err == nil)
		a.Away = append(a.Away, r.Err == errDead)
	}
	return nil
}

// Serve has the counter listen on a loopback port until stop is called.
func Serve(counter *Counter) (address string, stop func(), err error) {
	server := rpc.NewServer()
	if err := server.Register(&Sink{counter}); err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // stopped
			}
			go server.ServeConn(conn)
		}
	}()
	return listener.Addr().String(), func() { _ = listener.Close() }, nil
}

// remote publishes to a Sink.
type remote struct {
	address string

	mu     sync.Mutex
	client *rpc.Client
}

// Dial returns a publisher that sends to the Sink at an address.
func Dial(address string) outbox.Publisher { return &remote{address: address} }

func (r *remote) connect() (*rpc.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client == nil {
		client, err := rpc.Dial("tcp", r.address)
		if err != nil {
			return nil, err
		}
		r.client = client
	}
	return r.client, nil
}

// Publish waits for the answer however long the call takes: the sink answers at
// once, or its process is gone.
func (r *remote) Publish(_ context.Context, msgs []outbox.Message) []outbox.Result {
	results := make([]outbox.Result, len(msgs))
	var a Answer
	client, err := r.connect()
	if err == nil {
		err = client.Call("Sink.Publish", Batch{msgs}, &a)
	}
	if err == nil && len(a.Taken) != len(msgs) {
		err = fmt.Errorf("%d answers to %d messages", len(a.Taken), len(msgs))
	}
	for i := range results {
		switch {
		case err != nil:
			results[i].Err = outbox.Unavailable(err)
		case a.Away[i]:
			results[i].Err = errDead
		case !a.Taken[i]:
			results[i].Err = errRefused
		}
	}
	return results
}
