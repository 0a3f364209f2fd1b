package pooler

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgstore"
)

// evil is a schema with tables, types, functions and operators of the names that
// are ours and PostgreSQL's own; whoever comes to them is told.
var evil = func() []string {
	all := []string{`CREATE SCHEMA evil`, `CREATE DOMAIN evil.text AS pg_catalog.text CHECK (value = 'evil')`, `CREATE DOMAIN evil.bytea AS pg_catalog.bytea CHECK (false)`}
	for _, table := range []string{"log_0", "log_1", "cursor", "parked", "meta", "member", "route", "mark", "gap", "pg_locks", "pg_sequence", "pg_class", "pg_type"} {
		all = append(all, `CREATE TABLE evil.`+table+` (evil int)`)
	}
	function := func(name, args, returns string) {
		all = append(all, fmt.Sprintf(`CREATE FUNCTION evil.%s(%s) RETURNS %s LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil.%[1]s was called'; END $$`, name, args, returns))
	}
	for name, returns := range map[string]string{
		"now": "timestamptz", "clock_timestamp": "timestamptz", "statement_timestamp": "timestamptz", "pg_current_xact_id": "xid8",
		"pg_current_snapshot": "pg_snapshot", "gen_random_uuid": "uuid", "pg_is_in_recovery": "boolean",
	} {
		function(name, "", returns)
	}
	function("nextval", "regclass", "bigint")
	function("set_config", "pg_catalog.text, pg_catalog.text, boolean", "pg_catalog.text")
	function("json_array_elements_text", "json", "SETOF pg_catalog.text")
	function("unnest", "anyarray", "SETOF anyelement")
	for i, o := range []struct{ name, left, right, result string }{
		{"=", "integer", "integer", "boolean"}, {"=", "bigint", "bigint", "boolean"}, {"=", "pg_catalog.text", "pg_catalog.text", "boolean"}, {"=", "uuid", "uuid", "boolean"},
		{"+", "integer", "integer", "integer"}, {"%", "integer", "integer", "integer"}, {"&", "integer", "integer", "integer"}, {"<<", "integer", "integer", "integer"},
		{"||", "pg_catalog.text", "pg_catalog.text", "pg_catalog.text"}, {"*", "float8", "float8", "float8"}, {"+", "timestamptz", "interval", "timestamptz"},
		{"*", "float8", "interval", "interval"}, {"<>", "pg_catalog.text", "pg_catalog.text", "boolean"}, {"<=", "timestamptz", "timestamptz", "boolean"},
	} {
		function(fmt.Sprint("operator_", i), o.left+", "+o.right, o.result)
		all = append(all, fmt.Sprintf(`CREATE OPERATOR evil.%s (FUNCTION = evil.operator_%d, LEFTARG = %s, RIGHTARG = %s)`, o.name, i, o.left, o.right))
	}
	return all
}()

var formats = []string{"TimeZone = 'Asia/Jakarta'", "DateStyle = 'SQL, DMY'", "IntervalStyle = 'sql_standard'", "bytea_output = 'escape'", "extra_float_digits = -15",
	"standard_conforming_strings = off", "backslash_quote = on", "array_nulls = off", "xmlbinary = hex", "client_encoding = LATIN1", "lc_monetary = 'C'"}

// oddSessions are ways in which a database has its sessions set.
var oddSessions = map[string]struct {
	set     []string
	through bool   // a pooler
	refused string // what the relay says, if it does not go on
	says    string // what it says, if it does
	lease   string
}{
	"names of others first":                  {set: []string{"search_path = evil, pg_catalog"}},
	"names of others":                        {set: []string{"search_path = evil"}},
	"no names":                               {set: []string{"search_path = ''"}},
	"formats":                                {set: formats},
	"formats through a pooler":               {set: formats, through: true},
	"names of others first through a pooler": {set: []string{"search_path = evil, pg_catalog"}, through: true, refused: `search_path has schema "evil" before pg_catalog`},
	"isolation":                              {set: []string{"default_transaction_isolation = serializable", "default_transaction_deferrable = on", "synchronous_commit = off", "TimeZone = 'America/New_York'"}},
	"isolation through a pooler": {set: []string{"default_transaction_isolation = 'repeatable read'", "default_transaction_deferrable = on"}, through: true,
		says: "ALTER ROLE … SET default_transaction_isolation = 'read committed'"},
	// Compiling every statement takes so long that only what comes of it counts.
	"plans through a pooler": {through: true, lease: "2m", set: []string{"jit = on", "jit_above_cost = 0", "plan_cache_mode = force_generic_plan", "enable_seqscan = off",
		"enable_indexscan = off", "work_mem = 64", "force_parallel_mode = on", "parallel_setup_cost = 0", "parallel_tuple_cost = 0"}},
}

// However the sessions of a database are set, the tables are made, messages are
// enqueued, published, retried and looked at as ever. Through a pooler, which
// gives the program no session of its own, too, unless names would mean something
// else.
func TestSessionsThatAreSetOddly(t *testing.T) {
	t.Parallel()
	for name, test := range oddSessions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, owner := database(t)
			execute(t, owner, evil...)
			for _, set := range test.set {
				execute(t, owner, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET `+strings.ReplaceAll(set, "'", "''")+`', current_database()); END $$`)
			}
			p := newPost(t, url, sane(t, url), "postrider")
			if test.through {
				p.db = newBouncer(t, url, "default_pool_size=3").url()
			}
			if test.lease != "" {
				p.lease = test.lease
			}
			if test.refused != "" {
				code, _, stderr := p.try("relay", "--to", "sqs://"+p.queue, "--http", "off")
				if code == 0 || !strings.Contains(stderr, test.refused) {
					t.Errorf("exit code %d: %s", code, stderr)
				}
				return
			}
			r := p.relay()
			if test.says != "" {
				r.Said(test.says)
			}
			app := connect(t, url+"&client_encoding=UTF8") // for the rest as the database has it
			p.asAnApplication(app)
			p.arrive()
			p.settled(outbox.StateFailed, 1)
			if code, out, _ := p.try("status", "--check"); code != 1 || !strings.Contains(out, "1 message failed") {
				t.Errorf("status --check: exit code %d: %s", code, out)
			}
			p.run("retry", "--route", "default", "--since", "1h", "--yes")
			p.run("list", "--state", "sent", "--since", "1h")
			p.settled(outbox.StateFailed, 1)
			r.Stop()
			p.once()
			if said := r.Output.String(); strings.Contains(said, "evil") || strings.Contains(said, "level=ERROR") || strings.Contains(said, "lease lost") {
				t.Errorf("it says\n%s", said)
			}
		})
	}
}

// asAnApplication enqueues in sessions as they are, and checks the log.
func (p *post) asAnApplication(app *pgxpool.Pool) {
	p.t.Helper()
	ctx := p.t.Context()
	due := time.Now().Add(time.Second).Truncate(time.Microsecond)
	err := pgx.BeginFunc(ctx, app, func(tx pgx.Tx) error {
		w := outbox.NewWriter(pgstore.Pgx{})
		if err := w.LockKeys(ctx, tx, "a", odd); err != nil {
			return err
		}
		if err := w.Enqueue(ctx, tx, outbox.Message{Topic: "nowhere", Key: odd, Payload: []byte("{}")},
			outbox.Message{Topic: p.queue, Key: odd, Payload: []byte(`{"by":"Writer"}`), Headers: map[string]string{"h": odd}, NotBefore: due}); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `SELECT postrider.lock_keys('a'), postrider.enqueue($1::pg_catalog.text, pg_catalog.convert_to('{"by":"function"}', 'UTF8'), $2::pg_catalog.text)`, p.queue, odd)
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.sent += 2
	var n, lone int
	err = p.owner.QueryRow(ctx, `SELECT count(*) FILTER (WHERE key = $1 AND (not_before IS NULL OR not_before = $2) AND abs(extract(epoch FROM clock_timestamp() - created_at)) < 600),
			count(DISTINCT shard) FROM (SELECT *, 0 AS shard FROM postrider.log_0 UNION ALL SELECT *, 1 FROM postrider.log_1) AS log`, odd, due).Scan(&n, &lone)
	if err != nil || n != 3 || lone != 1 {
		p.t.Errorf("%d messages are in %d shards as they were written, want 3 in 1 (%v)", n, lone, err)
	}
}

// sane is a pool whose sessions are as PostgreSQL's defaults have them.
func sane(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	return connect(t, url+"&search_path=pg_catalog&client_encoding=UTF8&standard_conforming_strings=on&DateStyle=ISO&bytea_output=hex&default_transaction_isolation=read%20committed")
}

// A role may have fewer connections than the relay would like.
func TestARoleWithFewConnections(t *testing.T) {
	t.Parallel()
	db, owner := database(t)
	p := newPost(t, db, owner, "postrider")
	name := role(t, owner, "LOGIN PASSWORD '"+canary+"' CONNECTION LIMIT 3",
		`GRANT USAGE ON SCHEMA postrider TO {role}`, `GRANT ALL ON ALL TABLES IN SCHEMA postrider TO {role}`, `GRANT ALL ON ALL SEQUENCES IN SCHEMA postrider TO {role}`)
	p.db = as(t, db, name)
	r := p.relay()
	p.enqueue(300)
	p.arrive()
	p.enqueue(300)
	p.arrive()
	r.Stop()
	p.nothingMore()
}

func execute(t testing.TB, db *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.Exec(context.WithoutCancel(t.Context()), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}
