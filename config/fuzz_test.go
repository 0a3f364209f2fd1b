package config

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"

	"github.com/postrider/postrider/relay"
)

func retained(d time.Duration) string {
	if d == relay.Keep {
		return "keep"
	}
	return d.String()
}

// render writes c as a file that Load reads as c again.
func render(t interface{ Fatal(...any) }, c *Config) string {
	plain := func(s string) string { return strings.ReplaceAll(s, "$", "$$") }
	top := map[string]any{
		"schema": plain(c.Schema), "source": c.Source, "lease": c.Lease.String(),
		"retention": map[string]any{"sent": retained(c.Retention.Sent), "failed": retained(c.Retention.Failed)},
		"limits": map[string]any{
			"in_flight_bytes": c.Limits.InFlightBytes.String(), "in_flight_messages": c.Limits.InFlightMessages, "parked_pending": c.Limits.ParkedPending, "connections": c.Limits.Connections,
		},
		"log_format": c.Log.Format, "log_level": c.Log.Level,
	}
	switch c.Database.Kind {
	case Postgres:
		top["database"] = plain(c.Database.URL.Reveal())
	case SQLite:
		top["database"] = plain("sqlite:" + c.Database.Path)
	}
	if c.DirectDatabase.Kind == Postgres {
		top["direct_database"] = plain(c.DirectDatabase.URL.Reveal())
	}
	switch {
	case c.HTTPSet && c.HTTP == "":
		top["http"] = "off"
	case c.HTTPSet:
		top["http"] = plain(c.HTTP)
	}
	var routes []any
	for _, r := range c.Routes {
		var topics []string
		for _, topic := range r.Topics {
			topics = append(topics, plain(topic))
		}
		routes = append(routes, map[string]any{
			"name": r.Name, "topics": topics, "to": plain(r.To.String()), "start": r.Start, "order": r.Order, "encoding": r.Encoding,
			"on_failure": r.OnFailure, "rate": r.Rate, "concurrency": r.Concurrency, "publish_timeout": r.PublishTimeout.String(),
			"retry": map[string]any{
				"max_attempts": r.Retry.MaxAttempts, "initial": r.Retry.Initial.String(), "factor": r.Retry.Factor,
				"max": r.Retry.Max.String(), "jitter": r.Retry.Jitter,
			},
		})
	}
	if routes != nil {
		top["routes"] = routes
	}
	data, err := yaml.Dump(top)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func sameAgain(t interface {
	Fatal(...any)
	Fatalf(string, ...any)
}, c *Config) {
	text := render(t, c)
	again, err := Load(Input{ReadFile: files(map[string]string{DefaultFile: text})})
	if err != nil {
		t.Fatalf("written and not read: %v\n%s", err, text)
	}
	for i := range again.Routes {
		again.Routes[i].At = c.Routes[i].At
	}
	again.File, again.Warnings = c.File, c.Warnings
	if diff := cmp.Diff(c, again, cmp.AllowUnexported(Database{}, Secret{})); diff != "" {
		t.Fatalf("%s\n%s", diff, text)
	}
}

// FuzzLoad: no file makes Load panic; what it refuses it explains, in places
// that exist; what it takes it takes again when it is written out.
func FuzzLoad(f *testing.F) {
	f.Add(everything, "postgres://shop:pw@h/orders")
	f.Add("database: ${V}\nhttp: off\nroutes: [{name: a, topics: [\"*\"], to: \"sqs://a-${V}\"}]", "x")
	f.Add("routes: &a [*a]\n", "")
	f.Add("a: [1\n", "$$")
	f.Add("? [a]\n: !!str 5\n<<: *x\n---\n", "\n- x")
	f.Add("lease: ${V}\nlimits: {in_flight_bytes: \"${V}\"}\n", "64MiB")
	f.Fuzz(func(t *testing.T, text, variable string) {
		c, err := Load(Input{
			Environ:  []string{"V=" + variable, "DATABASE_URL=" + variable},
			ReadFile: files(map[string]string{DefaultFile: text}),
		})
		if err == nil {
			sameAgain(t, c)
			return
		}
		bad, ok := errors.AsType[*Error](err)
		if !ok || len(bad.Problems) == 0 {
			t.Fatalf("%T without a problem: %v", err, err)
		}
		last := 2 // the end of the text is a place too; YAML has five kinds of line breaks
		for _, r := range text {
			if strings.ContainsRune("\n\r\u0085\u2028\u2029", r) {
				last++
			}
		}
		for _, p := range bad.Problems {
			if p.What == "" || p.File == "" || p.Line < 0 || p.Line > last {
				t.Fatalf("a problem without a place: %+v", p)
			}
		}
	})
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		duration := func(name string, low, high time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(int64(low), int64(high)).Draw(t, name))
		}
		pick := func(name string, options ...string) string { return rapid.SampledFrom(options).Draw(t, name) }
		c := &Config{
			Database: Database{Kind: SQLite, Path: rapid.StringMatching(`[a-z $%:'"{}\[\]#&*!|>@,-]{0,12}[a-z]`).Draw(t, "path")},
			Schema:   "postrider", Source: pick("source", "auto", "poll"), Lease: duration("lease", MinLease, MaxLease),
			Retention: relay.Retention{Sent: duration("sent", relay.Keep, maxRetention), Failed: duration("failed", relay.Keep, maxRetention)},
			HTTP:      pick("http", "", "127.0.0.1:0", ":9000", "[::1]:80"), HTTPSet: true,
			Limits: Limits{
				InFlightBytes:    ByteSize(rapid.Int64Range(1<<20, 1<<40).Draw(t, "bytes")),
				InFlightMessages: rapid.IntRange(1, 1_000_000).Draw(t, "messages"),
				ParkedPending:    rapid.IntRange(1, 100_000_000).Draw(t, "parked pending"),
				Connections:      rapid.IntRange(2, 1000).Draw(t, "connections"),
			},
			Log: Log{Format: pick("format", "text", "json"), Level: pick("level", "debug", "info", "warn", "error")},
		}
		d, what, _ := parseDatabase("sqlite:" + c.Database.Path)
		if what != "" {
			t.Skip("not a path: ", what)
		}
		c.Database = d
		for _, kept := range []*time.Duration{&c.Retention.Sent, &c.Retention.Failed} {
			if *kept == 0 {
				*kept = 1 // what 0s stands for
			}
		}
		if c.Retention.Sent == relay.Keep {
			c.Retention.Failed = relay.Keep // nothing else would do anything
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "routes") {
			first := duration("initial", time.Millisecond, 24*time.Hour)
			c.Routes = append(c.Routes, Route{
				Name:   string(rune('a'+i)) + rapid.StringMatching(`[A-Za-z0-9_.-]{0,20}`).Draw(t, "name"),
				Topics: rapid.SliceOfN(rapid.StringMatching(`[a-z0-9$:#{}'"*]{1,2}[a-z0-9.$]{1,9}`), 1, 4).Draw(t, "topics"),
				To:     Destination{pick("scheme", Schemes...), rapid.StringMatching(`[A-Za-z0-9_-]{1,20}(\{topic\}|\{key\}|\{type\}|)(\.fifo)?`).Draw(t, "queue")},
				Start:  pick("start", "beginning", "now"), Order: pick("order", "key", "none"), Encoding: pick("encoding", "raw", "base64"),
				OnFailure: pick("on failure", "release", "hold"), Rate: rapid.Float64Range(0, 1e9).Draw(t, "rate"),
				Concurrency:    rapid.IntRange(1, 1024).Draw(t, "concurrency"),
				PublishTimeout: duration("timeout", 10*time.Millisecond, longestTimeout(c.Lease)),
				Retry: Retry{
					MaxAttempts: rapid.IntRange(1, 1_000_000).Draw(t, "attempts"), Initial: first,
					Factor: rapid.Float64Range(1, 100).Draw(t, "factor"), Max: duration("max", first, 7*24*time.Hour), Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"),
				},
			})
		}
		sameAgain(t, c)
	})
}

// Names in the documentation and in flags, variables and keys stay the same.
func TestNamesOfASetting(t *testing.T) {
	got := make(map[string][]string)
	for _, key := range scalars {
		got[key] = append([]string{flagName(key)}, variables(key)...)
	}
	want := map[string][]string{
		"database":                  {"--db", "POSTRIDER_DATABASE", "POSTRIDER_DB"},
		"database_file":             {"--db-file", "POSTRIDER_DATABASE_FILE", "POSTRIDER_DB_FILE"},
		"direct_database":           {"--direct-database", "POSTRIDER_DIRECT_DATABASE"},
		"direct_database_file":      {"--direct-database-file", "POSTRIDER_DIRECT_DATABASE_FILE"},
		"schema":                    {"--schema", "POSTRIDER_SCHEMA"},
		"source":                    {"--source", "POSTRIDER_SOURCE"},
		"lease":                     {"--lease", "POSTRIDER_LEASE"},
		"http":                      {"--http", "POSTRIDER_HTTP"},
		"retention.sent":            {"--retention-sent", "POSTRIDER_RETENTION_SENT"},
		"retention.failed":          {"--retention-failed", "POSTRIDER_RETENTION_FAILED"},
		"limits.in_flight_bytes":    {"--limits-in-flight-bytes", "POSTRIDER_LIMITS_IN_FLIGHT_BYTES"},
		"limits.in_flight_messages": {"--limits-in-flight-messages", "POSTRIDER_LIMITS_IN_FLIGHT_MESSAGES"},
		"limits.parked_pending":     {"--limits-parked-pending", "POSTRIDER_LIMITS_PARKED_PENDING"},
		"limits.connections":        {"--limits-connections", "POSTRIDER_LIMITS_CONNECTIONS"},
		"log_format":                {"--log-format", "POSTRIDER_LOG_FORMAT"},
		"log_level":                 {"--log-level", "POSTRIDER_LOG_LEVEL"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func ExampleLoad() {
	_, err := Load(Input{
		Environ:  []string{"POSTRIDER_DB=sqlite:shop.db"},
		ReadFile: func(string) ([]byte, error) { return []byte("lease: 15\nhtpp: off\n"), nil },
	})
	os.Stdout.WriteString(err.Error())
	// Output:
	// 2 problems with the settings:
	//   postrider.yaml:1:8: lease: "15" has no unit; write 15s for seconds
	//   postrider.yaml:2:1: unknown setting "htpp"; did you mean "http"?
}
