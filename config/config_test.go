package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/relay"
)

// files is a ReadFile that knows only these.
func files(content map[string]string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		text, ok := content[name]
		if !ok {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		return []byte(text), nil
	}
}

func load(t *testing.T, yaml string, env ...string) *Config {
	t.Helper()
	c, err := Load(Input{Environ: env, ReadFile: files(map[string]string{DefaultFile: yaml}), Database: true})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const everything = `
database: ${DATABASE_URL}
schema: postrider
source: auto                     # auto | poll
lease: 15s
http: 127.0.0.1:8080
retention: {sent: 0s, failed: 720h}
limits: {in_flight_bytes: 64MiB, in_flight_messages: 10000, parked_pending: 200000, connections: 8}
log_format: json
log_level: debug
routes:
  - name: orders
    topics: [orders, "billing.*"]
    to: sqs://orders
    start: beginning
    order: key
    encoding: raw
    retry: {max_attempts: 10, initial: 1s, factor: 2, max: 5m, jitter: 0.2}
    on_failure: release
    rate: 0
    concurrency: 8
  - name: audit
    topics: ["**"]
    to: sqs://audit-{topic}.fifo
    start: now
    order: none
    encoding: base64
    on_failure: hold
    rate: 12.5
    publish_timeout: 3s
`

func TestEverySettingOfTheFile(t *testing.T) {
	c := load(t, everything, "DATABASE_URL=postgres://shop:pw@db.example/orders")
	if got := c.Database.URL.Reveal(); got != "postgres://shop:pw@db.example/orders" {
		t.Errorf("URL = %q", got)
	}
	if got := c.Database.String(); got != "postgres://shop@db.example:5432/orders" {
		t.Errorf("shown as %q", got)
	}
	retry := Retry{MaxAttempts: 10, Initial: time.Second, Factor: 2, Max: 5 * time.Minute, Jitter: 0.2}
	want := &Config{
		File: DefaultFile, Database: c.Database, Schema: "postrider", Source: "auto", Lease: 15 * time.Second,
		HTTP: "127.0.0.1:8080", HTTPSet: true,
		Retention: relay.Retention{Sent: 1, Failed: 720 * time.Hour},
		Limits:    Limits{InFlightBytes: 64 << 20, InFlightMessages: 10000, ParkedPending: 200000, Connections: 8},
		Log:       Log{Format: "json", Level: "debug"},
		Routes: []Route{{
			Name: "orders", Topics: []string{"orders", "billing.*"}, To: Destination{"sqs", "orders"},
			Start: "beginning", Order: "key", Encoding: "raw", OnFailure: "release", Retry: retry,
			Concurrency: 8, PublishTimeout: 7500 * time.Millisecond, At: "postrider.yaml:12:5",
		}, {
			Name: "audit", Topics: []string{"**"}, To: Destination{"sqs", "audit-{topic}.fifo"},
			Start: "now", Order: "none", Encoding: "base64", OnFailure: "hold", Retry: retry, Rate: 12.5,
			Concurrency: 8, PublishTimeout: 3 * time.Second, At: "postrider.yaml:22:5",
		}},
	}
	if diff := cmp.Diff(want, c, cmp.AllowUnexported(Database{}, Secret{})); diff != "" {
		t.Error(diff)
	}
}

func TestDefaults(t *testing.T) {
	c := load(t, "database: sqlite:shop.db\n")
	want := &Config{
		File: DefaultFile, Database: Database{Kind: SQLite, Path: "shop.db", shown: "sqlite:shop.db"},
		Schema: "postrider", Source: "auto", Lease: 15 * time.Second, HTTP: "127.0.0.1:8080",
		Retention: relay.Retention{Sent: 24 * time.Hour, Failed: relay.Keep},
		Limits:    Limits{InFlightBytes: 64 << 20, InFlightMessages: 10000, ParkedPending: 100000, Connections: 8},
		Log:       Log{Format: "text", Level: "info"},
	}
	if diff := cmp.Diff(want, c, cmp.AllowUnexported(Database{}, Secret{})); diff != "" {
		t.Error(diff)
	}
}

func TestFlagBeatsVariableBeatsFile(t *testing.T) {
	in := Input{
		ReadFile: files(map[string]string{"p.yaml": "database: sqlite:file.db\nlease: 11s\nschema: file\nlog_level: debug\nlimits: {connections: 3}\n"}),
		Environ:  []string{"POSTRIDER_CONFIG=p.yaml", "POSTRIDER_LEASE=12s", "POSTRIDER_DB=postgres://h/env", "POSTRIDER_LIMITS_CONNECTIONS=4", "POSTRIDER_LOG_LEVEL="},
		Flags:    map[string]string{"lease": "13s", "limits.connections": "5"},
	}
	c, err := Load(in)
	if err != nil {
		t.Fatal(err)
	}
	if c.Lease != 13*time.Second || c.Schema != "file" || c.Limits.Connections != 5 || c.Database.Kind != Postgres {
		t.Errorf("got %+v", c)
	}
	if c.Log.Level != "debug" {
		t.Error("an empty variable overrode the file")
	}
	in.Flags = nil
	if c, err = Load(in); err != nil || c.Lease != 12*time.Second || c.Limits.Connections != 4 {
		t.Errorf("without flags: %+v, %v", c, err)
	}
}

func TestShortForm(t *testing.T) {
	c, err := Load(Input{
		Flags:    map[string]string{"database": "sqlite:shop.db", "to": "sqs://orders", "lease": "3s"},
		ReadFile: files(nil), Database: true, Routes: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Routes) != 1 || c.Routes[0].Name != "default" || c.Routes[0].Topics[0] != "**" || c.Routes[0].To.String() != "sqs://orders" {
		t.Errorf("routes: %+v", c.Routes)
	}
	if got := c.Routes[0].PublishTimeout; got != 1500*time.Millisecond {
		t.Errorf("a lease of 3s leaves %s for publishing, not 1.5s", got)
	}
}

func TestDatabaseFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(name, []byte("postgres://shop:pw@h/orders\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Input{Flags: map[string]string{"database_file": name}, Environ: []string{"POSTRIDER_DATABASE=sqlite:weaker.db"}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Database.URL.Reveal() != "postgres://shop:pw@h/orders" {
		t.Errorf("read %q", c.Database.URL.Reveal())
	}
}

// A variable's value is text: nothing in it becomes YAML, another variable, or
// another type.
func TestSubstitutionHappensAfterParsing(t *testing.T) {
	hostile := "x\nlease: 1s\nroutes: [${HOME}]"
	c := load(t, "database: sqlite:${P}\nschema: \"postrider\"\nlimits: {connections: \"${N}\"}\n", "P=a b: c, $$ ${HOME} \"'", "HOME=/root", "N=4")
	if c.Database.Path != `a b: c, $$ ${HOME} "'` || c.Limits.Connections != 4 {
		t.Errorf("got %q, %d", c.Database.Path, c.Limits.Connections)
	}
	c = load(t, "database: sqlite:${P}\n", "P="+hostile)
	if c.Database.Path != hostile || c.Lease != relay.DefaultLease || len(c.Routes) != 0 {
		t.Errorf("the value became structure: %+v", c)
	}
	c = load(t, "database: sqlite:a$$b$${C}$d$\n")
	if c.Database.Path != "a$b${C}$d$" {
		t.Errorf("escapes: %q", c.Database.Path)
	}
}

func TestAliasForAWholeValue(t *testing.T) {
	c := load(t, `
database: sqlite:x
routes:
  - {name: a, topics: &all ["**"], to: sqs://a, retry: &r {max_attempts: 3}}
  - {name: b, topics: *all, to: sqs://b, retry: *r}
`)
	if len(c.Routes) != 2 || c.Routes[1].Retry.MaxAttempts != 3 || c.Routes[1].Topics[0] != "**" {
		t.Errorf("%+v", c.Routes)
	}
}

func TestWarnsOfNearMisses(t *testing.T) {
	c := load(t, "database: sqlite:x\n", "POSTRIDER_LAESE=3s", "POSTRIDER_SERVICE_HOST=10.0.0.1", "POSTRIDER_PORT=tcp://10.0.0.1:80", "POSTRIDER_LEASE=9s", "LEASE=1s")
	if len(c.Warnings) != 1 || c.Warnings[0].String() != "POSTRIDER_LAESE: is not a setting; did you mean POSTRIDER_LEASE?" {
		t.Errorf("warnings: %v", c.Warnings)
	}
}

func TestDatabaseForms(t *testing.T) {
	t.Setenv("PGUSER", "env-user")
	for text, shown := range map[string]string{
		"postgres://shop:pw@h:6432/orders?sslmode=disable": "postgres://shop@h:6432/orders",
		"postgresql://h/orders":                            "postgres://env-user@h:5432/orders",
		"postgres:///orders?host=/var/run/postgresql":      "postgres://env-user@/orders?host=/var/run/postgresql",
		"postgres://a%40b:p%2Fw@[::1]/o":                   "postgres://a%40b@[::1]:5432/o",
		"sqlite:shop.db":                                   "sqlite:shop.db",
		"sqlite:./data/../shop.db":                         "sqlite:shop.db",
		"sqlite:/var/lib/shop.db":                          "sqlite:/var/lib/shop.db",
		"sqlite:///var/lib/shop.db":                        "sqlite:/var/lib/shop.db",
	} {
		d, err := ParseDatabase(text)
		if err != nil || d.String() != shown {
			t.Errorf("%s: %q, %v; want %q", text, d, err, shown)
		}
	}
	for _, text := range []string{"", "shop.db", "mysql://h/x", "postgres:h", "postgres://u:p@h:x/d", "sqlite:", "sqlite://", "sqlite://shop.db",
		"sqlite::memory:", "sqlite:dir/", "sqlite:a?mode=ro", "host=h dbname=x", "postgres://h/d?sslmode=perhaps", "postgres://u:12/x@h/d", "postgres://u:1#2@h/d"} {
		d, err := ParseDatabase(text)
		if err == nil {
			t.Errorf("%s was taken: %s", text, d)
		}
		if _, ok := errors.AsType[*Error](err); err != nil && !ok {
			t.Errorf("%s: error is %T", text, err)
		}
	}
}

func TestUnits(t *testing.T) {
	for s, want := range map[string]ByteSize{"0B": 0, "1B": 1, "64MiB": 64 << 20, "1kB": 1000, "3TiB": 3 << 40, "9223372036854775807B": 1<<63 - 1} {
		if got, err := ParseByteSize(s); got != want || err != nil {
			t.Errorf("%s = %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "64", "MiB", "-1B", "+1B", "1.5MiB", "1 MiB", "1mib", "1MB1", "9223372036854775808B", "9223372036854775807KiB", "1_0B", "0x1B"} {
		if got, err := ParseByteSize(s); err == nil {
			t.Errorf("%q was taken for %d", s, got)
		}
	}
	for s, want := range map[string]time.Duration{"15s": 15 * time.Second, "1h30m": 90 * time.Minute, "1.5s": 1500 * time.Millisecond, "0s": 0, "2ms": 2 * time.Millisecond} {
		if got, err := ParseDuration(s); got != want || err != nil {
			t.Errorf("%s = %s, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "15", "0", "-1s", "+1s", "s", "1 s", "1d", "15S", "1s 2s", "99999999999h", ".5s", "1.s"} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("%q was taken for %s", s, got)
		}
	}
}

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"":                                     "",
		"dial tcp 127.0.0.1:5432: refused":     "dial tcp 127.0.0.1:5432: refused",
		"parse postgres://u:p@h/d: bad":        "parse postgres://[redacted]@h/d: bad",
		"a://x:y z@h, b://u:p@q@h":             "a://[redacted]@h",
		"to postgres://shop@h:5432/d: refused": "to postgres://shop@h:5432/d: refused",
		"postgres://u:p://q@h":                 "postgres://[redacted]@h",
		"user=u password='a b' host=h":         "user=u password=[redacted] host=h",
		"https://h/?token=abc&x=1":             "https://h/?token=[redacted]&x=1",
		"password authentication failed for u": "password authentication failed for u",
	} {
		if got := Redact(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
