package database

import (
	"context"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlitestore"
)

func openSQLite(ctx context.Context, path string) (*Database, error) {
	store, err := sqlitestore.Open(ctx, path, sqlitestore.Options{})
	if err != nil {
		return nil, err
	}
	return &Database{
		DB:         store.DB(),
		Inserter:   sqlitestore.SQL{},
		relayStore: func() (relay.Store, error) { return store, nil },
		closers:    []func() error{store.Close},
	}, nil
}
