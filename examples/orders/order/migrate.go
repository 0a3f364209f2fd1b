package order

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
)

//go:embed migrations
var migrations embed.FS

// Dialect is the kind of database; its name is that of a folder of migrations.
type Dialect string

// The databases that the service works on.
const (
	PostgreSQL Dialect = "postgres"
	SQLite     Dialect = "sqlite"
)

// Migrate creates what the service needs. It is safe to run again, and by
// several processes at once.
func Migrate(ctx context.Context, db *sql.DB, dialect Dialect) error {
	files, err := fs.Glob(migrations, "migrations/"+string(dialect)+"/*.sql")
	if err != nil || len(files) == 0 {
		return fmt.Errorf("order: no migrations for database kind %q", dialect)
	}
	for _, file := range files {
		script, err := migrations.ReadFile(file)
		if err != nil {
			return fmt.Errorf("order: read %s: %w", file, err)
		}
		if _, err := db.ExecContext(ctx, string(script)); err != nil {
			return fmt.Errorf("order: migrate %s: %w", file, err)
		}
	}
	return nil
}
