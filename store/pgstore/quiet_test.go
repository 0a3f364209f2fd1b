package pgstore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/internal/testsize"
	"github.com/postrider/postrider/store/pgstore"
)

// quietPair is a quiet connection and its other end.
func quietPair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	config, err := pgxpool.ParseConfig("postgres://127.0.0.1/")
	if err != nil {
		t.Fatal(err)
	}
	pgstore.Quiet(config)
	if ours, err = config.ConnConfig.DialFunc(t.Context(), "tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return ours, theirs
}

// A quiet connection carries what any would, in pieces of any size, also where
// the other end is slow.
func TestQuietConnectionsCarryEverything(t *testing.T) {
	ours, theirs := quietPair(t)
	random := rand.New(rand.NewPCG(uint64(testsize.Seed(t)), 0))
	sent := make([]byte, 8<<20)
	for i := range sent {
		sent[i] = byte(random.Uint32())
	}
	go func() { // and back again
		_, _ = io.Copy(theirs, theirs)
		_ = theirs.(*net.TCPConn).CloseWrite()
	}()
	sizes := rand.New(rand.NewPCG(random.Uint64(), 0))
	written := make(chan error, 1)
	go func() {
		for rest := sent; len(rest) > 0; {
			n, err := ours.Write(rest[:min(len(rest), sizes.IntN(20_000))])
			if err != nil {
				written <- err
				return
			}
			rest = rest[n:]
		}
		written <- nil
	}()
	got := make([]byte, 0, len(sent))
	for len(got) < len(sent) {
		n, err := ours.Read(got[len(got):min(cap(got), len(got)+1+random.IntN(20_000))])
		if err != nil {
			t.Fatal(err)
		}
		got = got[:len(got)+n]
	}
	if err := <-written; err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%v; equal: %t", err, bytes.Equal(got, sent))
	}
}

// It ends as any connection does: at its deadline, when the other end closes, and
// when it is closed itself.
func TestQuietConnectionsEnd(t *testing.T) {
	ours, theirs := quietPair(t)
	_ = ours.SetDeadline(time.Now().Add(10 * time.Millisecond))
	var timeout net.Error
	if _, err := ours.Read(make([]byte, 100)); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("at its deadline: %v", err)
	}
	if _, err := ours.Write([]byte("late")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("at its deadline: %v", err)
	}
	_ = ours.SetDeadline(time.Time{})
	_ = theirs.Close()
	if n, err := ours.Read(make([]byte, 100)); n != 0 || err != io.EOF {
		t.Errorf("after the other end closed: %d, %v", n, err)
	}
	var failed error
	for began := time.Now(); failed == nil && time.Since(began) < 10*time.Second; {
		_, failed = ours.Write([]byte("to nobody"))
	}
	if operation, ok := errors.AsType[*net.OpError](failed); !ok || operation.Op != "write" || operation.Addr == nil {
		t.Errorf("to nobody: %v", failed)
	}
	_ = ours.Close()
	if _, err := ours.Read(make([]byte, 100)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after its own close: %v", err)
	}
}

// A statement that is cancelled returns at once.
func TestQuietConnectionsAreCancelled(t *testing.T) {
	config, err := pgxpool.ParseConfig(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	pgstore.Quiet(config)
	pgstore.Watchful(config, time.Minute)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := pool.Exec(ctx, `SELECT pg_sleep(60)`); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 30*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	var n int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM generate_series(1, 100000)`).Scan(&n); err != nil || n != 100_000 {
		t.Errorf("%d, %v", n, err)
	}
}
