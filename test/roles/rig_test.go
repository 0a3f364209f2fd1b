// Package roles tries the roles that `postrider migrate print --roles` makes: each
// suffices for its work, and none can do more.
package roles

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/store/pgstore"
)

// rig is a database with tables and roles.
type rig struct {
	t     *testing.T
	admin *pgxpool.Pool // a superuser's
	name  string        // of the database; roles are the whole server's, so theirs begin with it
	opts  pgstore.Options
	roles pgstore.Roles
}

// kinds of roles, in the order of the script, and the name of each.
func (r *rig) kinds() (kinds []string, name map[string]string) {
	return []string{"owner", "writer", "relay", "viewer", "operator", "consumer"}, map[string]string{
		"owner": r.roles.Owner, "writer": r.roles.Writer, "relay": r.roles.Relay,
		"viewer": r.roles.Viewer, "operator": r.roles.Operator, "consumer": r.roles.Consumer,
	}
}

func newRig(t *testing.T, opts pgstore.Options) *rig {
	t.Helper()
	admin, err := pgxpool.New(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	r := &rig{t: t, admin: admin, opts: opts, name: admin.Config().ConnConfig.Database}
	// Names of roles have at most 63 bytes, as those of databases.
	short := r.name[len(r.name)-16:]
	r.roles = pgstore.Roles{
		Owner: short + " owner", Writer: short + " writer", Relay: short + " relay",
		Viewer: short + " viewer", Operator: short + `_"operator"`, Consumer: short + "_consumer",
	}
	if _, err := pgstore.Migrate(t.Context(), admin, opts); err != nil {
		t.Fatal(err)
	}
	r.script(admin)
	kinds, name := r.kinds()
	for _, kind := range kinds {
		r.drops(name[kind])
	}
	return r
}

// drops has the role dropped at the end, with what it has.
func (r *rig) drops(role string) {
	r.t.Cleanup(func() {
		quoted := pgx.Identifier{role}.Sanitize()
		r.exec(r.admin, `DROP OWNED BY `+quoted+` CASCADE`)
		r.exec(r.admin, `DROP ROLE `+quoted)
	})
}

// script makes the roles, or makes them anew.
func (r *rig) script(pool *pgxpool.Pool) {
	r.t.Helper()
	script, err := pgstore.RolesScript(r.opts, r.roles)
	if err != nil {
		r.t.Fatal(err)
	}
	r.exec(pool, script)
}

func (r *rig) exec(pool *pgxpool.Pool, sql string) {
	r.t.Helper()
	ctx := context.WithoutCancel(r.t.Context())
	if _, err := pool.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		r.t.Errorf("%v in\n%s", err, sql)
		_, _ = pool.Exec(ctx, "ROLLBACK") // of a script that has begun a transaction
	}
}

const password = "a-password-for-the-test"

// login connects as somebody to whom the role of that kind is granted.
func (r *rig) login(kind string) *pgxpool.Pool {
	r.t.Helper()
	_, name := r.kinds()
	user := r.name[len(r.name)-16:] + " login of " + kind
	quoted := pgx.Identifier{user}.Sanitize()
	r.exec(r.admin, `CREATE ROLE `+quoted+` LOGIN PASSWORD '`+password+`'`)
	r.exec(r.admin, `GRANT `+pgx.Identifier{name[kind]}.Sanitize()+` TO `+quoted)
	r.drops(user)
	config := r.admin.Config().Copy()
	config.ConnConfig.User, config.ConnConfig.Password = user, password
	pool, err := pgxpool.NewWithConfig(r.t.Context(), config)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(pool.Close)
	return pool
}

// plain is a name of the test's as it is in the test.
func (r *rig) plain(text string) string {
	kinds, name := r.kinds()
	for _, kind := range kinds {
		text = strings.ReplaceAll(text, name[kind], kind)
	}
	return text
}
