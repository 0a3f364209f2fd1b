package pgstore_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/store/pgstore"
)

// Several of the next version migrate at once: one does it.
func TestUpgradeByManyAtOnce(t *testing.T) {
	pool, files := migrated(t, pgstore.Options{}), next(t, additive)
	var group sync.WaitGroup
	var applied [5][]string
	var errs [5]error
	for i := range errs {
		group.Go(func() { applied[i], errs[i] = pgstore.MigrateWith(t.Context(), files, pool, pgstore.Options{}) })
	}
	group.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, names := range applied {
		n += len(names)
	}
	if n != 1 {
		t.Errorf("applied %v", applied)
	}
}

// A later version refuses to work with tables that lack its migration, and can
// name it.
func TestALaterVersionWantsItsMigration(t *testing.T) {
	pool := migrated(t, pgstore.Options{})
	status, err := pgstore.StatusWith(t.Context(), next(t, additive), pool, "")
	if err != nil || len(status.Pending) != 1 || !strings.HasSuffix(status.Pending[0], "_next") || status.Known != status.Version+1 {
		t.Errorf("%+v, %v", status, err)
	}
	exec(t, pool, `UPDATE postrider.meta SET value = '0' WHERE name = 'version'`)
	if status, err := pgstore.CheckSchema(t.Context(), pool, ""); !errors.Is(err, pgstore.ErrNoSchema) || !strings.Contains(err.Error(), status.Pending[0]) {
		t.Errorf("tables of an earlier version: %v", err)
	}
}

// Tables that do not say for whom they are, are for their own version.
func TestTablesThatDoNotSay(t *testing.T) {
	pool := migrated(t, pgstore.Options{})
	exec(t, pool, `DELETE FROM postrider.meta WHERE name = 'compatible_from'`)
	if _, err := pgstore.ReadStatus(t.Context(), pool, ""); err != nil {
		t.Errorf("of this version: %v", err)
	}
	exec(t, pool, `UPDATE postrider.meta SET value = '99' WHERE name = 'version'`)
	if status, err := pgstore.ReadStatus(t.Context(), pool, ""); !errors.Is(err, pgstore.ErrNewerSchema) || status.CompatibleFrom != 99 {
		t.Errorf("of a later version: %+v, %v", status, err)
	}
}

func TestMigrationsThatAreNone(t *testing.T) {
	pool := open(t)
	for name, files := range map[string]fs.FS{
		"a gap":            fstest.MapFS{"migrations/0002_x.sql": &fstest.MapFile{Data: []byte("-- postrider:compatible_from 1\n")}},
		"it does not say":  fstest.MapFS{"migrations/0001_x.sql": &fstest.MapFile{Data: []byte("SELECT 1;\n")}},
		"it says too much": fstest.MapFS{"migrations/0001_x.sql": &fstest.MapFile{Data: []byte("-- postrider:compatible_from 2\n")}},
		"no template":      fstest.MapFS{"migrations/0001_x.sql": &fstest.MapFile{Data: []byte("-- postrider:compatible_from 1\n{{")}},
	} {
		if _, err := pgstore.MigrateWith(t.Context(), files, pool, pgstore.Options{}); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
}

// Whoever migrates as a member of the owner's role adds to what is the owner's, so
// that the default privileges hold for what is new.
func TestUpgradeBelongsToTheOwner(t *testing.T) {
	pool := migrated(t, pgstore.Options{Shards: 1})
	prefix := pool.Config().ConnConfig.Database
	prefix = prefix[len(prefix)-16:]
	roles := pgstore.Roles{Owner: prefix + "_owner", Writer: prefix + "_writer", Relay: prefix + "_relay",
		Viewer: prefix + "_viewer", Operator: prefix + "_operator", Consumer: prefix + "_consumer"}
	script, err := pgstore.RolesScript(pgstore.Options{Shards: 1}, roles)
	if err != nil {
		t.Fatal(err)
	}
	login := prefix + "_deploy"
	for _, role := range []string{roles.Owner, roles.Writer, roles.Relay, roles.Viewer, roles.Operator, roles.Consumer, login} {
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			_, _ = pool.Exec(ctx, `DROP OWNED BY "`+role+`" CASCADE`)
			_, _ = pool.Exec(ctx, `DROP ROLE "`+role+`"`)
		})
	}
	exec(t, pool, script, pgx.QueryExecModeSimpleProtocol)
	exec(t, pool, `CREATE ROLE "`+login+`" IN ROLE "`+roles.Owner+`"`)
	config := pool.Config().Copy()
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET SESSION AUTHORIZATION "`+login+`"`)
		return err
	}
	deploy, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer deploy.Close()
	if _, err := pgstore.MigrateWith(t.Context(), next(t, additive), deploy, pgstore.Options{}); err != nil {
		t.Fatal(err)
	}
	var owner string
	var viewer, relay, operator, writer, anybody bool
	err = pool.QueryRow(t.Context(), `SELECT pg_get_userbyid(relowner), has_table_privilege($1, oid, 'SELECT'), has_table_privilege($2, oid, 'SELECT'),
		has_table_privilege($3, oid, 'SELECT'), has_table_privilege($4, oid, 'SELECT'), has_table_privilege('public', oid, 'SELECT')
		FROM pg_class WHERE oid = 'postrider.later'::regclass`, roles.Viewer, roles.Relay, roles.Operator, roles.Writer).Scan(&owner, &viewer, &relay, &operator, &writer, &anybody)
	if err != nil || owner != roles.Owner || !viewer || !relay || !operator || writer || anybody {
		t.Errorf("it is %s's, who sees it: viewer %t, relay %t, operator %t, writer %t, everybody %t, %v", owner, viewer, relay, operator, writer, anybody, err)
	}
}
