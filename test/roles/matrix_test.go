package roles

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/store/pgstore"
)

// may is what each role may do with everything that is in the schema, found out by
// trying. "every" stands for all columns, log for each shard's. A stranger may use
// the schema and has no other right: what PUBLIC has, he has.
const may = `
writer
  enqueue: EXECUTE
  lock_keys: EXECUTE
  log: INSERT (id not_before expires topic key type content_type headers payload)
  log_seq: nextval
  shard_of: EXECUTE

relay
  cursor: SELECT, INSERT every, UPDATE every, LOCK
  gap: SELECT, INSERT every, UPDATE every, DELETE, LOCK
  log: SELECT, DELETE, LOCK
  log_seq: SELECT
  mark: SELECT, INSERT every, UPDATE every, DELETE, LOCK
  member: SELECT, INSERT every, UPDATE every, DELETE, LOCK
  meta: SELECT
  parked: SELECT, INSERT every, UPDATE every, DELETE, LOCK
  parked_arrival_seq: nextval
  retention: SELECT, INSERT every, UPDATE every, LOCK
  route: SELECT
  takes_topic: EXECUTE

viewer
  audit: SELECT
  audit_id_seq: SELECT
  cursor: SELECT
  gap: SELECT
  inbox: SELECT
  log: SELECT
  log_seq: SELECT
  mark: SELECT
  member: SELECT
  messages: SELECT
  meta: SELECT
  parked: SELECT
  parked_arrival_seq: SELECT
  retention: SELECT
  route: SELECT
  shard_of: EXECUTE
  takes_topic: EXECUTE

operator
  audit: SELECT, INSERT (who action route filter count note), UPDATE (count)
  audit_id_seq: SELECT
  cursor: SELECT, UPDATE (token lease_until), DELETE, LOCK
  gap: SELECT, DELETE, LOCK
  inbox: SELECT
  log: SELECT
  log_seq: SELECT
  mark: SELECT, DELETE, LOCK
  member: SELECT
  messages: SELECT
  meta: SELECT
  parked: SELECT, INSERT every, UPDATE (state due_at attempts changed_at expires headers payload), DELETE, LOCK
  parked_arrival_seq: SELECT, nextval
  retention: SELECT
  route: SELECT, INSERT every, UPDATE every, DELETE, LOCK
  shard_of: EXECUTE
  takes_topic: EXECUTE

consumer
  inbox: SELECT, INSERT every, DELETE, LOCK

stranger
`

// impossible are errors that everybody gets: a view that cannot be written to
// (55000), and what is no table (42809).
var impossible = []string{"55000", "42809"}

const denied = "42501"

// attempt tells whether a role may do it; nothing of it stays.
func attempt(t *testing.T, tx pgx.Tx, statement string) bool {
	t.Helper()
	ctx := t.Context()
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = savepoint.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol)
	if err := savepoint.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case err != nil && !ok:
		t.Fatalf("%s: %v", statement, err)
	case ok && (refusal.Code[:2] == "42" && refusal.Code != denied && refusal.Code != "42809"):
		t.Fatalf("the test's own mistake: %s: %v", statement, err) // no such column, wrong syntax
	}
	return !ok || refusal.Code != denied && !slices.Contains(impossible, refusal.Code)
}

// object is something in the schema, with the statements that can be tried on it.
type object struct {
	name    string
	columns []string
	kinds   []kind
}

// kind is a kind of statement; with {column} it is tried for each.
type kind struct{ name, sql string }

var (
	onTables = []kind{
		{"SELECT", `SELECT FROM {o}`},
		{"INSERT", `INSERT INTO {o} ({column}) OVERRIDING SYSTEM VALUE VALUES (NULL)`},
		{"UPDATE", `UPDATE {o} SET {column} = DEFAULT`},
		{"DELETE", `DELETE FROM {o}`},
		{"TRUNCATE", `TRUNCATE {o}`},
		{"LOCK", `LOCK TABLE {o} IN ACCESS EXCLUSIVE MODE NOWAIT`},
		{"TRIGGER", `CREATE TRIGGER t BEFORE INSERT ON {o} FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()`},
		{"REFERENCES", `DO $$ BEGIN IF NOT has_any_column_privilege('{o}', 'REFERENCES') THEN RAISE insufficient_privilege; END IF; END $$`},
		{"ALTER", `ALTER TABLE {o} RENAME TO other`},
		{"GRANT", `DO $$ BEGIN IF NOT has_any_column_privilege('{o}', 'SELECT WITH GRANT OPTION, INSERT WITH GRANT OPTION, UPDATE WITH GRANT OPTION') THEN RAISE insufficient_privilege; END IF; END $$`},
	}
	onSequences = []kind{
		{"SELECT", `SELECT last_value FROM {o}`}, {"nextval", `SELECT nextval('{o}')`}, {"setval", `SELECT setval('{o}', 1)`}, {"ALTER", `ALTER SEQUENCE {o} RESTART`},
	}
	onSchema = []kind{
		{"CREATE TABLE", `CREATE TABLE {o}.other ()`}, {"CREATE FUNCTION", `CREATE FUNCTION {o}.other() RETURNS int LANGUAGE sql AS 'SELECT 1'`}, {"ALTER", `ALTER SCHEMA {o} RENAME TO other`},
	}
)

// as begins a transaction, on a connection of its own, as the role.
func (r *rig) as(role string) pgx.Tx {
	r.t.Helper()
	conn, err := pgx.ConnectConfig(r.t.Context(), r.admin.Config().ConnConfig)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(r.t.Context())) })
	tx, err := conn.Begin(r.t.Context())
	if err == nil {
		_, err = tx.Exec(r.t.Context(), `SET LOCAL ROLE `+pgx.Identifier{role}.Sanitize())
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return tx
}

// objects are all in the schema, from the catalog.
func (r *rig) objects() []object {
	r.t.Helper()
	ctx := r.t.Context()
	all := []object{{name: r.opts.Schema.Name(), kinds: onSchema}}
	rows, err := r.admin.Query(ctx, `SELECT relname::text, relkind = 'S', coalesce((SELECT array_agg(quote_ident(attname) ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped), '{}') FROM pg_class AS c WHERE relnamespace = $1::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S') ORDER BY relname`,
		pgx.Identifier{r.opts.Schema.Name()}.Sanitize())
	if err != nil {
		r.t.Fatal(err)
	}
	var o object
	var sequence bool
	if _, err := pgx.ForEachRow(rows, []any{&o.name, &sequence, &o.columns}, func() error {
		o.kinds = onTables
		if sequence {
			o.kinds = onSequences
		}
		all = append(all, object{o.name, slices.Clone(o.columns), o.kinds})
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	rows, err = r.admin.Query(ctx, `SELECT proname::text, format('SELECT {s}.%I(%s)', proname, (SELECT string_agg(
			CASE WHEN provariadic <> 0 AND n = pronargs THEN 'VARIADIC ' ELSE '' END || 'NULL::' || format_type(t, NULL), ', ' ORDER BY n) FROM unnest(proargtypes) WITH ORDINALITY AS a (t, n)))
		FROM pg_proc WHERE pronamespace = $1::regnamespace ORDER BY proname`, pgx.Identifier{r.opts.Schema.Name()}.Sanitize())
	if err != nil {
		r.t.Fatal(err)
	}
	var name, call string
	if _, err := pgx.ForEachRow(rows, []any{&name, &call}, func() error {
		all = append(all, object{name: name, kinds: []kind{{"EXECUTE", strings.ReplaceAll(call, "{s}", pgx.Identifier{r.opts.Schema.Name()}.Sanitize())}, {"ALTER", ""}}})
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return all
}

// allowed tries everything on one object.
func (r *rig) allowed(tx pgx.Tx, o object) string {
	r.t.Helper()
	quoted := r.opts.Schema.Table(o.name)
	if o.name == r.opts.Schema.Name() {
		quoted = pgx.Identifier{o.name}.Sanitize()
	}
	var can []string
	for _, k := range o.kinds {
		sql := strings.ReplaceAll(k.sql, "{o}", quoted)
		switch {
		case sql == "": // a function's owner is told apart by the catalog
			sql = fmt.Sprintf(`DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_proc WHERE pronamespace = '%s'::regnamespace AND proname = '%s' AND pg_has_role(proowner, 'USAGE'))
				THEN RAISE insufficient_privilege; END IF; END $$`, pgx.Identifier{r.opts.Schema.Name()}.Sanitize(), o.name)
			if attempt(r.t, tx, sql) {
				can = append(can, k.name)
			}
		case !strings.Contains(sql, "{column}"):
			if attempt(r.t, tx, sql) {
				can = append(can, k.name)
			}
		default:
			var columns []string
			for _, c := range o.columns {
				if attempt(r.t, tx, strings.ReplaceAll(sql, "{column}", c)) {
					columns = append(columns, c)
				}
			}
			switch len(columns) {
			case 0:
			case len(o.columns):
				can = append(can, k.name+" every")
			default:
				can = append(can, k.name+" ("+strings.Join(columns, " ")+")")
			}
		}
	}
	return strings.Join(can, ", ")
}

// Everything in the schema is tried as every role, also what a later version adds:
// it has to be written down above what each may do with it.
func TestNoRoleMayDoMore(t *testing.T) {
	r := newRig(t, pgstore.Options{Shards: 2})
	kinds, name := r.kinds()
	name["stranger"] = r.name[len(r.name)-16:] + " stranger"
	r.exec(r.admin, `CREATE ROLE `+pgx.Identifier{name["stranger"]}.Sanitize())
	r.exec(r.admin, `GRANT USAGE ON SCHEMA postrider TO `+pgx.Identifier{name["stranger"]}.Sanitize())
	r.drops(name["stranger"])
	objects := r.objects()
	shard := regexp.MustCompile(`^log_[0-9]+`)
	var got strings.Builder
	for _, kind := range append(kinds[1:], "stranger") { // the owner may do everything
		tx := r.as(name[kind])
		fmt.Fprintf(&got, "\n%s\n", kind)
		var lines []string
		for _, o := range objects {
			if can := r.allowed(tx, o); can != "" {
				lines = append(lines, fmt.Sprintf("  %s: %s\n", shard.ReplaceAllString(o.name, "log"), can))
			}
		}
		slices.Sort(lines)
		got.WriteString(strings.Join(slices.Compact(lines), ""))
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(strings.Split(may, "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("what roles may do is not as written (-written +tried):\n%s\n%s", diff, got.String())
	}
}

// Who has nothing granted has nothing: the schema is not even to be used.
func TestPublicHasNothing(t *testing.T) {
	r := newRig(t, pgstore.Options{Shards: 1})
	other := r.name[len(r.name)-16:] + " nobody"
	r.exec(r.admin, `CREATE ROLE `+pgx.Identifier{other}.Sanitize())
	r.drops(other)
	tx := r.as(other)
	for _, o := range r.objects() {
		if can := r.allowed(tx, o); can != "" {
			t.Errorf("%s: %s", o.name, can)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}
