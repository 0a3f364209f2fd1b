package main

import (
	"context"
	"errors"

	"github.com/postrider/postrider/config"
)

func openSQLite(context.Context, *config.Config, bool) (database, error) {
	return nil, usage(errors.New("SQLite is not wired yet"), "")
}

func sqliteScript(int) (string, error) { return "", errors.New("SQLite is not wired yet") }
