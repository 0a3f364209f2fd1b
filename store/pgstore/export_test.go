package pgstore

import (
	"context"
	"io/fs"
)

// Migrations are the ones of this version.
var Migrations fs.FS = migrationFiles

// MigrateWith is Migrate of a version that has other migrations.
func MigrateWith(ctx context.Context, files fs.FS, db DB, opts Options) ([]string, error) {
	h, err := readHistory(files)
	if err != nil {
		return nil, err
	}
	return h.migrate(ctx, db, opts)
}

// StatusWith is ReadStatus of such a version.
func StatusWith(ctx context.Context, files fs.FS, db DB, schema Schema) (Status, error) {
	h, err := readHistory(files)
	if err != nil {
		return Status{}, err
	}
	return h.status(ctx, db, schema)
}
