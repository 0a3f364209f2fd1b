package cli_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/store/sqlitestore"
)

func TestMigrateSQLite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "shop data#1.db")
	db := "sqlite:" + strings.ReplaceAll(path, "#", "")
	path = strings.TrimPrefix(db, "sqlite:")

	status := world{}.run(t, "migrate", "status", "--db", db)
	status.wantExit(1)
	if out := status.stdout.String(); !strings.Contains(out, "missing   0001") || !strings.Contains(out, "run       postrider migrate up") {
		t.Errorf("status: %s", out)
	}
	world{}.run(t, "relay", "--db", db, "--to", "sqs://orders", "--http", "off").wantExit(2, "tables are missing", "postrider migrate up --db")
	if _, err := os.Stat(path); err == nil {
		t.Fatal("asking for the status, or starting a relay, made the file")
	}

	up := world{}.run(t, "migrate", "up", "--db", db, "--shards", "2")
	up.wantExit(0)
	if !strings.Contains(up.stdout.String(), "applied 0001") {
		t.Errorf("up: %s", up.stdout.String())
	}
	again := world{}.run(t, "migrate", "up", "--db", "sqlite://"+path)
	again.wantExit(0)
	if !strings.Contains(again.stdout.String(), "nothing to do") {
		t.Errorf("second up: %s", again.stdout.String())
	}
	world{}.run(t, "migrate", "up", "--db", db, "--shards", "3").wantExit(2, "has 2 shards")

	status = world{}.run(t, "migrate", "status", "--db", db)
	status.wantExit(0)
	if out := status.stdout.String(); !strings.Contains(out, "shards    2\n") || strings.Contains(out, "schema") {
		t.Errorf("status: %s", out)
	}
}

func TestMigratePrintSQLite(t *testing.T) {
	print := world{}.run(t, "migrate", "print", "--db", "sqlite:nowhere.db", "--shards", "3")
	print.wantExit(0)
	path := filepath.Join(t.TempDir(), "shop.db")
	db, err := sql.Open("sqlite", sqlitestore.DSN(path))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), print.stdout.String()); err != nil {
		t.Fatal(err)
	}
	status := world{}.run(t, "migrate", "status", "--db", "sqlite:"+path)
	status.wantExit(0)
	if out := status.stdout.String(); !strings.Contains(out, "shards    3\n") {
		t.Errorf("status: %s", out)
	}
}

func TestUnusableSQLiteFiles(t *testing.T) {
	dir := t.TempDir()
	text := write(t, dir, "text.db", strings.Repeat("this is no database\n", 1000))
	for _, db := range []string{text, dir, filepath.Join(dir, "no", "such", "folder.db")} {
		world{}.run(t, "migrate", "up", "--db", "sqlite:"+db).wantExit(3, "cannot open the database")
	}
	world{}.run(t, "migrate", "status", "--db", "sqlite:"+text).wantExit(3, "cannot open the database")
	world{}.run(t, "relay", "--db", "sqlite:"+text, "--to", "sqs://orders", "--http", "off").wantExit(3, "cannot open the database")

	newer := filepath.Join(dir, "newer.db")
	world{}.run(t, "migrate", "up", "--db", "sqlite:"+newer).wantExit(0)
	db, err := sql.Open("sqlite", sqlitestore.DSN(newer))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "UPDATE postrider_meta SET value = 999 WHERE name IN ('version', 'compatible_from')"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"relay", "--to", "sqs://x", "--http", "off"}, {"migrate", "up"}, {"migrate", "status"}} {
		world{}.run(t, append(args, "--db", "sqlite:"+newer)...).wantExit(2, "later version")
	}
}
