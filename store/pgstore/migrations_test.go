package pgstore_test

import (
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

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
