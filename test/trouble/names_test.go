package trouble

import (
	"context"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/broker/membroker"
	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
	"github.com/postrider/postrider/store/pgstore"
	"github.com/postrider/postrider/test/internal/dbgate"
	"github.com/postrider/postrider/test/internal/programs"
)

// The name of the server comes to mean another address: first the old one is
// gone, then it goes on to answer nothing. The relay, as a library, asks for the
// address with each connect and finds out by itself. (A process takes names from
// the machine, which a test must not change.)
func TestNameMoves(t *testing.T) {
	everyVersion(t, func(t *testing.T, version string) {
		server := pgtest.ServerOf(t, version).URL("postgres")
		first, second := dbgate.New(t, server), dbgate.New(t, server)
		var mu sync.Mutex
		addresses := []string{address(t, first)}
		asked := 0
		config, err := pgxpool.ParseConfig(dbgate.At(t, server, "database.example:5432"))
		if err != nil {
			t.Fatal(err)
		}
		config.ConnConfig.LookupFunc = func(context.Context, string) ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			asked++
			return slices.Clone(addresses), nil
		}
		move := func(to ...string) {
			mu.Lock()
			defer mu.Unlock()
			addresses = to
		}
		pgstore.Watchful(config, 0)
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		if _, err := pgstore.Migrate(t.Context(), pool, pgstore.Options{}); err != nil {
			t.Fatal(err)
		}
		store, err := poll.New(poll.Config{Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		broker := membroker.New()
		r, err := relay.New(relay.Config{Store: store, Routes: []relay.Route{{Name: "all", Topics: []string{"**"}, Publisher: &membroker.Publisher{Broker: broker}}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Errorf("the relay: %v", err)
			}
		})
		t.Cleanup(func() { stop(); running.Wait() })

		sent := 0
		flows := func() {
			t.Helper()
			began := time.Now()
			if err := run(server, "SELECT postrider.enqueue('orders', 'x')"); err != nil {
				t.Fatal(err)
			}
			sent++
			programs.Within(t, recovery, "it arrives", nil, func() error {
				n := len(broker.Messages("orders"))
				return programs.Unless(n >= sent, "%d of %d", n, sent)
			})
			t.Logf("it arrives after %v", time.Since(began))
		}
		flows()
		move(address(t, second))
		first.Cut()
		flows()
		if second.Connects() == 0 {
			t.Error("nobody came to the new address")
		}
		before := first.Connects()
		move(address(t, first))
		second.Deaden()
		flows()
		if first.Connects() == before {
			t.Error("nobody came back to the first address")
		}
		recorded(t, server)
		mu.Lock()
		defer mu.Unlock()
		t.Logf("%d times the address was asked for", asked)
	})
}

// address is where a gate listens.
func address(t *testing.T, g *dbgate.Gate) string {
	t.Helper()
	u, err := url.Parse(g.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := net.SplitHostPort(u.Host); err != nil {
		t.Fatal(err)
	}
	return u.Host
}
