package pgstore

import (
	"context"
	"net"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Quiet makes the connections of a pool take less processor time where there is
// little to do, as in a relay that polls. Call it before the pool is made, and
// before Watchful. It changes nothing but on Linux.
//
// Go's runtime has a thread that watches over system calls, lest one that blocks
// keeps other goroutines from running. Whenever a program that was idle makes a
// call, that thread is woken, which costs more than a small statement's reading
// and writing. A socket that does not block needs no watching over.
func Quiet(config *pgxpool.Config) {
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return quiet(conn), nil
	}
}
