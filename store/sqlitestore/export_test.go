package sqlitestore

import (
	"context"
	"database/sql"
	"io/fs"
)

// Migrations are the ones of this version.
var Migrations fs.FS = migrationFiles

// MigrateWith is Migrate of a version that has other migrations.
func MigrateWith(ctx context.Context, files fs.FS, db *sql.DB, o Options) error {
	h, err := readHistory(files)
	if err != nil {
		return err
	}
	return h.migrate(ctx, db, o)
}
