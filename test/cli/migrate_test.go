package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/pgtest"
)

// What status --json tells, by which a deployment can decide.
func TestMigrateStatusJSON(t *testing.T) {
	for _, db := range []string{pgtest.Database(t), "sqlite:" + filepath.Join(t.TempDir(), "shop.db")} {
		type told struct {
			Version, Known int
			Compatible     bool
			CompatibleFrom int `json:"compatible_from"`
			Missing        []string
			Relays         []struct{ Owner string }
		}
		ask := func(exit int) (s told) {
			t.Helper()
			p := world{}.run(t, "migrate", "status", "--json", "--db", db)
			p.wantExit(exit)
			if err := json.Unmarshal([]byte(p.stdout.String()), &s); err != nil {
				t.Fatalf("%v in %s", err, p.stdout.String())
			}
			return s
		}
		if s := ask(1); s.Version != 0 || s.Known == 0 || s.Compatible || len(s.Missing) != s.Known {
			t.Errorf("before: %+v", s)
		}
		world{}.run(t, "migrate", "up", "--db", db).wantExit(0)
		if s := ask(0); s.Version != s.Known || s.CompatibleFrom == 0 || !s.Compatible || s.Missing == nil || len(s.Missing) > 0 || s.Relays == nil {
			t.Errorf("after: %+v", s)
		}
	}
}

// Tables of a later version that are for this one too are no reason to refuse.
func TestLaterTablesThatWillDo(t *testing.T) {
	db := pgtest.Database(t)
	world{}.run(t, "migrate", "up", "--db", db).wantExit(0)
	execute(t, db, `UPDATE postrider.meta SET value = '999' WHERE name = 'version';
		INSERT INTO postrider.member (owner, routes, expires) VALUES ('another', '{orders}', now() + interval '1 hour')`)
	status := world{}.run(t, "migrate", "status", "--db", db)
	status.wantExit(0)
	if out := status.stdout.String(); !strings.Contains(out, "version   999, this program knows ") || !strings.Contains(out, "relay     another, routes orders, since 20") {
		t.Errorf("status: %s", out)
	}
	up := world{}.run(t, "migrate", "up", "--db", db)
	up.wantExit(0)
	if out := up.stdout.String(); !strings.Contains(out, "a later version's") {
		t.Errorf("up: %s", out)
	}
	world{}.run(t, "status", "--db", db).wantExit(0)
}

// Whom it waits for is said, and the time-out ends it.
func TestMigrateUpSaysForWhomItWaits(t *testing.T) {
	db := pgtest.Database(t)
	conn, err := pgx.Connect(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), `BEGIN; SET application_name = 'another one'; SELECT pg_advisory_xact_lock(hashtextextended('postrider migrate postrider', 0))`); err != nil {
		t.Fatal(err)
	}
	pid := fmt.Sprintf("pid %d, application \"another one\"", conn.PgConn().PID())
	world{}.run(t, "migrate", "up", "--db", db, "--timeout", "0s").wantExit(1, pid, "its transaction is open since", "--timeout")
	world{}.run(t, "migrate", "up", "--db", db, "--timeout=-1s").wantExit(2, "negative")

	p := world{}.start(t, "migrate", "up", "--db", db)
	line := p.awaitLog("waiting for locks")
	if !strings.Contains(line, fmt.Sprintf("pid %d", conn.PgConn().PID())) || !strings.Contains(line, "next_attempt_in") {
		t.Errorf("it says: %s", line)
	}
	if _, err := conn.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	p.wantExit(0)
	world{}.run(t, "migrate", "status", "--db", db).wantExit(0)
}
