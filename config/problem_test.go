package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestEveryProblemAtOnce(t *testing.T) {
	const text = `databse: x
database: postgres://shop:hunter2@x@db/orders
lease: 15
http: 8080
source: wal
limits: {in_flight_bytes: 64, in_flight_mesages: 3}
retention: {sent: 24, failed: for ever, inbox: 1h}
routes:
  - name: a b
    topics: orders
    to: sqss://x
    retry: {max_attempts: "3", initial: 10}
    on-failure: hold
  - name: ok
    topics: ["^x", "a.***", 5]
    to: sqs://a{topick}
    publish_timeout: 20s
    name: ok
  - name: ok
    rate: ${RATE}
    concurrency: ${CANARY}
  - 7
`
	_, err := Load(Input{
		Environ:  []string{"CANARY=hunter2", "POSTRIDER_LOG_LEVEL=verbose"},
		Flags:    map[string]string{"limits.connections": "1"},
		ReadFile: files(map[string]string{DefaultFile: text}),
		Database: true, Routes: true,
	})
	bad, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("error is %T: %v", err, err)
	}
	want := []string{ // prefix | what must be in it
		`postrider.yaml:1:1: unknown setting "databse"|did you mean "database"?`,
		`postrider.yaml:2:11: database: is not a valid PostgreSQL URL|%40`,
		`postrider.yaml:3:8: lease: "15" has no unit|write 15s`,
		`postrider.yaml:4:7: http: "8080" is a number|127.0.0.1:8080`,
		`postrider.yaml:5:9: source: |use auto or poll`,
		`postrider.yaml:6:27: limits.in_flight_bytes: "64" has no unit|64B`,
		`postrider.yaml:6:31: limits: unknown setting "in_flight_mesages"|"in_flight_messages"`,
		`postrider.yaml:7:19: retention.sent: "24" has no unit|24s`,
		`postrider.yaml:7:31: retention.failed: "for ever" is neither a duration nor keep|0s`,
		`postrider.yaml:7:41: retention: unknown setting "inbox"|known here: `,
		`postrider.yaml:9:11: routes[0].name: "a b" is not a name|letters`,
		`postrider.yaml:10:13: routes[0].topics: is text where a list belongs|["**"]`,
		`postrider.yaml:11:9: routes[0].to: unknown scheme "sqss"|did you mean "sqs"?`,
		`postrider.yaml:12:27: routes[0].retry.max_attempts: is text|remove the quotes`,
		`postrider.yaml:12:41: routes[0].retry.initial: "10" has no unit|10s`,
		`postrider.yaml:13:5: routes[0]: unknown setting "on-failure"|"on_failure"`,
		`postrider.yaml:15:14: routes[1].topics[0]: "^x"|**`,
		`postrider.yaml:15:20: routes[1].topics[1]: "a.***"|**`,
		`postrider.yaml:15:29: routes[1].topics[2]: is a number where text belongs|"5"`,
		`postrider.yaml:16:9: routes[1].to: "{topick}"|did you mean "topic"?`,
		`postrider.yaml:17:22: routes[1].publish_timeout: is too long for a lease of 15s|at least 21s`,
		`postrider.yaml:18:5: routes[1].name: stands here a second time|line 14`,
		`postrider.yaml:19:5: routes[2]: has no topics|`,
		`postrider.yaml:19:5: routes[2]: does not say where to send to|sqs://`,
		`postrider.yaml:19:11: routes[2].name: "ok" is the name of the route at postrider.yaml:14:11|`,
		`postrider.yaml:20:11: routes[2].rate: the variable RATE is not set|$${RATE}`,
		`postrider.yaml:21:18: routes[2].concurrency: "${CANARY}" is not a whole number|`,
		`postrider.yaml:22:5: routes[3]: is a number where a mapping belongs|name`,
		`--limits-connections: "1" is out of range|2 to 1000`,
		`POSTRIDER_LOG_LEVEL: "verbose"|warn`,
	}
	for i, p := range bad.Problems {
		line := p.String()
		if i >= len(want) {
			t.Errorf("more than expected: %s", line)
			continue
		}
		prefix, part, _ := strings.Cut(want[i], "|")
		if !strings.HasPrefix(line, prefix) || !strings.Contains(line, part) {
			t.Errorf("problem %d:\n got %s\nwant %s … %s", i, line, prefix, part)
		}
		if p.Mend == "" && p.What == "" {
			t.Errorf("problem %d says nothing", i)
		}
	}
	if len(bad.Problems) < len(want) {
		t.Errorf("%d problems, want %d", len(bad.Problems), len(want))
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Error("the password is shown")
	}
	if got := strings.Count(err.Error(), "\n"); got != len(bad.Problems) {
		t.Errorf("%d lines after the first for %d problems", got, len(bad.Problems))
	}
}

// One mistake at a time: where it is said to be, and what is said.
func TestProblems(t *testing.T) {
	route := func(lines string) string {
		return "routes:\n- name: r\n  topics: [a]\n  to: sqs://q\n" + lines
	}
	for name, tc := range map[string]struct{ yaml, want string }{
		"tab":               {"routes:\n\t- name: x\n", "postrider.yaml:2:1: YAML syntax: "},
		"unclosed":          {"routes: [\nlease: 3s\n", "postrider.yaml:3:1: YAML syntax: did not find expected ',' or ']' while parsing a flow sequence that begins in line 1;"},
		"colon in value":    {"schema: a: b\n", "postrider.yaml:1:10: YAML syntax: mapping values are not allowed"},
		"star":              {"routes:\n- name: x\n  topics: [*.created]\n", "postrider.yaml:3:12: YAML syntax: "},
		"binary":            {"lease: 3s\n\x00", "postrider.yaml:2:1: is not text"},
		"latin1":            {"# caf\xe9\n", "postrider.yaml:1:6: is not text"},
		"second document":   {"lease: 3s\n---\nlease: 4s\n", "postrider.yaml:2:1: starts a second document"},
		"a list":            {"- lease: 3s\n", "postrider.yaml:1:1: is a list where a mapping belongs"},
		"a word":            {"lease\n", "postrider.yaml:1:1: is text where a mapping belongs"},
		"null":              {"lease:\n", "postrider.yaml:1:"},
		"mapping for text":  {"schema: {a: b}\n", "postrider.yaml:1:9: schema: is a mapping where text belongs"},
		"bool for text":     {"schema: true\n", `postrider.yaml:1:9: schema: is true or false where text belongs; put it in quotes if text is meant: "true"`},
		"own tag":           {"schema: !secret x\n", "postrider.yaml:1:9: schema: has a YAML tag of its own"},
		"merge key":         {route("  retry: {<<: {}}\n"), "postrider.yaml:5:11: routes[0].retry: merge keys"},
		"complex key":       {"? [a]\n: b\n", "postrider.yaml:1:3: a key is not a plain word"},
		"retention":         {"retention: {sent: keep, failed: 1h}\n", `postrider.yaml:1:33: retention.failed: deletes nothing while retention.sent is keep`},
		"hex number":        {"limits: {connections: 0x10}\n", `postrider.yaml:1:23: limits.connections: "0x10" is not a whole number`},
		"float for int":     {"limits: {connections: 2.5}\n", "postrider.yaml:1:23: limits.connections: "},
		"not a number":      {route("  rate: .nan\n"), `postrider.yaml:5:9: routes[0].rate: ".nan" is not a number`},
		"negative rate":     {route("  rate: -1\n"), `postrider.yaml:5:9: routes[0].rate: "-1" is out of range`},
		"jitter":            {route("  retry: {jitter: 1.2}\n"), "postrider.yaml:5:19: routes[0].retry.jitter: "},
		"factor":            {route("  retry: {factor: 0.5}\n"), "postrider.yaml:5:19: routes[0].retry.factor: "},
		"max below initial": {route("  retry: {initial: 5s, max: 2s}\n"), "postrider.yaml:5:29: routes[0].retry.max: is shorter than initial (5s)"},
		"timeout and lease": {"lease: 4s\n" + route("  publish_timeout: 3700ms\n"), "postrider.yaml:6:20: routes[0].publish_timeout: is too long for a lease of 4s (from postrider.yaml:1:8)"},
		"empty routes":      {"routes: []\n", "postrider.yaml:1:9: routes: is an empty list"},
		"empty topic":       {"routes:\n- {name: r, topics: [\"\"], to: sqs://q}\n", "postrider.yaml:2:22: routes[0].topics[0]: is empty"},
		"amqp pattern":      {"routes:\n- {name: r, topics: [\"a.#\"], to: sqs://q}\n", "postrider.yaml:2:22: routes[0].topics[0]: \"a.#\" is another system's pattern"},
		"queue name":        {"routes:\n- {name: r, topics: [a], to: \"sqs://a b\"}\n", "postrider.yaml:2:30: routes[0].to: does not name a queue"},
		"topic name":        {"routes:\n- {name: r, topics: [a], to: \"sns://a b\"}\n", "postrider.yaml:2:30: routes[0].to: does not name a topic; SNS takes 1 to 256 letters, digits, hyphens and underscores, with .fifo at the end or not; for another account's topic write its ARN, as in sns://arn:aws:sns:REGION:ACCOUNT:NAME"},
		"no topic":          {"routes:\n- {name: r, topics: [a], to: \"sns://\"}\n", "postrider.yaml:2:30: routes[0].to: names no topic; write sns://TOPIC"},
		"queue for a topic": {"routes:\n- {name: r, topics: [a], to: \"sns://arn:aws:sqs:eu-west-1:123456789012:q\"}\n", "postrider.yaml:2:30: routes[0].to: does not name a topic"},
		"long topic":        {"routes:\n- {name: r, topics: [a], to: \"sns://" + strings.Repeat("x", 257) + "\"}\n", "postrider.yaml:2:30: routes[0].to: has more than 256 characters, which is the limit of SNS"},
		"part of a topic":   {"routes:\n- {name: r, topics: [a], to: \"sns://{topics}\"}\n", "postrider.yaml:2:30: routes[0].to: \"{topics}\" does not name a part of the message; did you mean"},
		"another scheme":    {"routes:\n- {name: r, topics: [a], to: \"sms://a\"}\n", "postrider.yaml:2:30: routes[0].to: unknown scheme \"sms\""},
		"no scheme":         {"routes:\n- {name: r, topics: [a], to: orders}\n", "postrider.yaml:2:30: routes[0].to: has no scheme; write sqs://QUEUE"},
		"unknown scheme":    {"routes:\n- {name: r, topics: [a], to: \"kafka://orders\"}\n", `postrider.yaml:2:30: routes[0].to: unknown scheme "kafka"; known here: sqs`},
		"address":           {"http: localhost\n", `postrider.yaml:1:7: http: "localhost" is not an address`},
		"http false":        {"http: false\n", "postrider.yaml:1:7: http: is true or false where an address belongs; write off"},
		"schema reserved":   {"schema: pg_x\n", "postrider.yaml:1:9: schema: "},
		"schema on sqlite":  {"database: sqlite:x\nschema: shop\n", "postrider.yaml:2:9: schema: SQLite has no schemas"},
		"two databases":     {"database: sqlite:x\ndatabase_file: y\n", "postrider.yaml:2:16: database_file: the database is given here and as postrider.yaml:1:11"},
		"missing file":      {"database_file: nowhere\n", `postrider.yaml:1:16: database_file: "nowhere": file does not exist`},
		"unset variable":    {"lease: 3s\nschema: ${NOPE}\n", "postrider.yaml:2:9: schema: the variable NOPE is not set"},
		"open brace":        {"schema: \"${NOPE\"\n", "postrider.yaml:1:9: schema: ${ without its }"},
		"operator":          {"schema: \"${NOPE:-x}\"\n", "postrider.yaml:1:9: schema: what stands between"},
		"lease too short":   {"lease: 10ms\n", `postrider.yaml:1:8: lease: "10ms" is out of range; use 1s to 10m`},
		"self alias":        {"routes: &a [*a]\n", "postrider.yaml:1:13: routes[0]: is a list where a mapping belongs"},
		"direct_database":   {"direct_database: x\n", `postrider.yaml:1:18: direct_database: is not the URL of a database; write postgres://user@host:5432/name or sqlite:PATH`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(Input{ReadFile: files(map[string]string{DefaultFile: tc.yaml})})
			bad, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("error is %v", err)
			}
			if !slices.ContainsFunc(bad.Problems, func(p Problem) bool { return strings.HasPrefix(p.String(), tc.want) }) {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
			if len(bad.Problems) > 1 {
				t.Errorf("one mistake, %d problems: %v", len(bad.Problems), err)
			}
		})
	}
}

func TestWhatIsMissing(t *testing.T) {
	_, err := Load(Input{ReadFile: files(nil), Database: true, Routes: true})
	bad, ok := errors.AsType[*Error](err)
	if !ok || len(bad.Problems) != 2 || !strings.Contains(err.Error(), "--db URL") || !strings.Contains(err.Error(), "--to sqs://QUEUE") {
		t.Errorf("got %v", err)
	}
	_, err = Load(Input{File: "gone.yaml", ReadFile: files(nil)})
	if err == nil || err.Error() != `--config: "gone.yaml": file does not exist; name a file that can be read` {
		t.Errorf("got %v", err)
	}
	_, err = Load(Input{
		ReadFile: files(map[string]string{DefaultFile: "routes:\n- {name: r, topics: [a], to: sqs://q}\n"}),
		Flags:    map[string]string{"to": "sqs://x"},
	})
	if err == nil || !strings.HasPrefix(err.Error(), "--to: makes a route of its own, but postrider.yaml:2 has routes") {
		t.Errorf("got %v", err)
	}
}

// Nobody knows what a file would have said that cannot be read, so what is
// missing without it is no news.
func TestABrokenFileIsOneProblem(t *testing.T) {
	for text, want := range map[string]string{
		"routes: [":        "postrider.yaml:2:1: YAML syntax",
		"- database\n":     "postrider.yaml:1:1: ",
		"database: \x00\n": "postrider.yaml:1:11: is not text",
	} {
		_, err := Load(Input{File: DefaultFile, ReadFile: files(map[string]string{DefaultFile: text}), Database: true, Routes: true})
		bad, ok := errors.AsType[*Error](err)
		if !ok || len(bad.Problems) != 1 || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	_, err := Load(Input{File: "gone.yaml", ReadFile: files(nil), Database: true, Routes: true})
	if bad, ok := errors.AsType[*Error](err); !ok || len(bad.Problems) != 1 {
		t.Errorf("a file that is not there: %v", err)
	}
	_, err = Load(Input{ReadFile: files(nil), Database: true, Routes: true})
	if bad, ok := errors.AsType[*Error](err); !ok || len(bad.Problems) != 2 {
		t.Errorf("no file: %v", err)
	}
}
