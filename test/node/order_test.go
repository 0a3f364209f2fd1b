// Package node runs the example in JavaScript against a real server.
package node

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/pgtest"
	"github.com/postrider/postrider/store/pgstore"
)

const example = "../../examples/node"

// patience bounds what one program may take.
const patience = 3 * time.Minute

// install copies the example and has npm install what its lock file names.
func install(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "order.js"} {
		text, err := os.ReadFile(filepath.Join(example, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if out, err := program(t, dir, "", "npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts"); err != nil {
		t.Fatalf("npm ci (Debian: apt-get install npm; make tools does it): %v\n%s", err, out)
	}
	return dir
}

// program runs one in the folder.
func program(t *testing.T, dir, db, name string, args ...string) (out string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := osexec.CommandContext(ctx, name, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "DATABASE_URL="+db)
	text, err := command.CombinedOutput()
	return string(text), err
}

// shop is a database with the example's table, and the URL for the shop's role, to
// which the writer's is granted.
func shop(t *testing.T) (admin *pgxpool.Pool, of string) {
	t.Helper()
	at := pgtest.Database(t)
	admin, err := pgxpool.New(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	exec := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(context.WithoutCancel(t.Context()), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Errorf("%v in\n%s", err, sql)
		}
	}
	if _, err := pgstore.Migrate(t.Context(), admin, pgstore.Options{}); err != nil {
		t.Fatal(err)
	}
	// Roles are the whole server's: the test's own have a part of the database's name.
	prefix := admin.Config().ConnConfig.Database
	prefix = prefix[len(prefix)-16:]
	roles := pgstore.Roles{Owner: prefix + "_owner", Writer: prefix + "_writer", Relay: prefix + "_relay",
		Viewer: prefix + "_viewer", Operator: prefix + "_operator", Consumer: prefix + "_consumer"}
	script, err := pgstore.RolesScript(pgstore.Options{}, roles)
	if err != nil {
		t.Fatal(err)
	}
	exec(script)
	login, password := prefix+"_shop", "a-password-for-the-test"
	exec(`CREATE ROLE "` + login + `" LOGIN PASSWORD '` + password + `' IN ROLE "` + roles.Writer + `"`)
	for _, role := range []string{roles.Owner, roles.Writer, roles.Relay, roles.Viewer, roles.Operator, roles.Consumer, login} {
		t.Cleanup(func() { exec(`DROP OWNED BY "` + role + `" CASCADE; DROP ROLE "` + role + `"`) })
	}
	exec(`CREATE TABLE orders (id text PRIMARY KEY, customer text NOT NULL, amount_cents bigint NOT NULL); GRANT INSERT ON orders TO "` + login + `"`)
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(login, password)
	return admin, u.String()
}

// The order and its message are there together, or not at all.
func TestAnOrderAndItsMessage(t *testing.T) {
	dir := install(t)
	admin, db := shop(t)
	out, err := program(t, dir, db, "node", "order.js", "4711", "c1", "4999")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var orders, messages int
	var id uuid.UUID
	var topic, kind, headers, payload string
	read := func() {
		t.Helper()
		err := admin.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM orders), count(*), max(id::text)::uuid, max(topic), max(type), max(headers->>'source'), max(convert_from(payload, 'UTF8'))
			FROM postrider.enqueued`).Scan(&orders, &messages, &id, &topic, &kind, &headers, &payload)
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.Exec(t.Context(), `CREATE VIEW postrider.enqueued AS SELECT * FROM postrider.log_0 UNION ALL SELECT * FROM postrider.log_1
		UNION ALL SELECT * FROM postrider.log_2 UNION ALL SELECT * FROM postrider.log_3`); err != nil {
		t.Fatal(err)
	}
	read()
	if orders != 1 || messages != 1 || id.String() != strings.TrimSpace(out) || topic != "orders" || kind != "order.created" || headers != "shop" ||
		payload != `{"id":"4711","customer":"c1","amountCents":4999}` {
		t.Errorf("%d orders, %d messages: %s %s %s %s %s; it printed %s", orders, messages, id, topic, kind, headers, payload, out)
	}
	for _, args := range [][]string{{"4711", "c2", "1"}, {strings.Repeat("k", 1025), "c3", "1"}} {
		if out, err := program(t, dir, db, "node", append([]string{"order.js"}, args...)...); err == nil || !strings.Contains(out, "was not placed: ") {
			t.Errorf("order %.10s… of %s: %v\n%s", args[0], args[1], err, out)
		}
	}
	if read(); orders != 1 || messages != 1 {
		t.Errorf("afterwards there are %d orders and %d messages", orders, messages)
	}
}

// wrong calls enqueue in ways that it refuses, and prints what the errors say.
const wrong = `
import pg from 'pg';
const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
const said = {};
for (const [name, args] of Object.entries({
	headers: ['orders', 'p', '[1]', 'k'], json: ['orders', 'p', '{', 'k'], topic: [null, 'p', '{}', 'k'], empty: ['', 'p', '{}', 'k'],
	payload: ['orders', Buffer.alloc(16777217), '{}', 'k'], none: ['orders', null, '{}', 'k'], key: ['orders', 'p', '{}', 'k'.repeat(1025)],
})) {
	try {
		await client.query('SELECT postrider.enqueue(topic => $1, payload => $2, headers => $3, key => $4)', args);
		said[name] = 'nothing';
	} catch (err) {
		said[name] = err.message;
	}
}
await client.end();
console.log(JSON.stringify(said));
`

// What cannot be sent is refused with the reason.
func TestErrorsSayWhatIsWrong(t *testing.T) {
	dir := install(t)
	_, db := shop(t)
	out, err := program(t, dir, db, "node", "--input-type=module", "-e", wrong)
	var said map[string]string
	if err == nil {
		err = json.Unmarshal([]byte(out), &said)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, want := range map[string]string{
		"headers": "headers are one JSON object", "json": "invalid input syntax for type json", "topic": `null value in column "topic"`, "empty": "a topic has 1 to 255 bytes",
		"payload": "a payload has at most 16777216 bytes", "none": `null value in column "payload"`, "key": "a key has at most 1024 bytes",
	} {
		if !strings.Contains(said[name], want) {
			t.Errorf("%s: %q, want %q", name, said[name], want)
		}
	}
}
