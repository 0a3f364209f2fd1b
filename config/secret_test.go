package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
)

const canary = "c4n4ry"

func TestSecretIsQuiet(t *testing.T) {
	d, err := ParseDatabase("postgres://shop:" + canary + "@h/orders?sslpassword=" + canary)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(d.URL.Reveal(), canary) {
		t.Fatal("the secret itself is lost")
	}
	c := Config{Database: d}
	var log strings.Builder
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		l := slog.New(h)
		l.Info("x", "secret", d.URL, "database", d, "config", c, "pointer", &c, "err", fmt.Errorf("%v %w", d, errors.New("x")))
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%T"} {
		fmt.Fprintf(&log, verb+verb+verb+verb+"\n", d.URL, &d.URL, d, c)
	}
	for _, v := range []any{d.URL, d, c, &c, map[string]any{"x": d.URL}} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		log.Write(b)
	}
	for _, form := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary), fmt.Sprint([]byte(canary))} {
		if strings.Contains(log.String(), form) {
			t.Errorf("shown as %q in:\n%s", form, log.String())
		}
	}
	if Secret.String(Secret{}) != "" || !(Secret{}).IsZero() {
		t.Error("an empty secret is shown as if there were one")
	}
}

// Every way of writing a database's URL wrongly, from every place, keeps the
// password to itself.
func TestNoProblemShowsAPassword(t *testing.T) {
	urls := []string{
		"postgres://shop:%s@h:port/orders", "postgres://shop:%s@h:99999/orders", "postgres://shop:a@%s@h/orders",
		"postgres://shop:12/%s@h/orders", "postgres://shop:12?%s@h/orders", "postgres://shop:12#%s@h/orders", "postgres://shop:1%%zz%s@h/orders",
		"postgres://shop:%s@h/orders?sslmode=perhaps", "postgres://shop:%s@h/orders?connect_timeout=long",
		"postgres://shop:%s@h/orders?sslrootcert=/nowhere&sslmode=verify-full", "postgres://shop:%s@h/orders?pool_max_conns=many",
		"postgres://h/orders?password=%s&sslmode=perhaps", "postgres://shop:%s @h/orders?sslmode=x", "postgres:shop:%s@h", "postgres:/shop:%s@h/x",
		"postgers://shop:%s@h/orders", "mysql://shop:%s@h/orders", "shop:%s@h/orders", "host=h password=%s dbname=x", "sqlite://shop:%s@h/x",
		"%s", "http://shop:%s@h", "postgres://shop:%s\x00@h/orders", "postgres://[shop:%s@h/orders", "postgres://shop:%s@h:5432,h2:x/orders",
	}
	for _, form := range urls {
		url := fmt.Sprintf(form, canary)
		yaml := func(s string) string { b, _ := json.Marshal(s); return string(b) } // JSON is YAML
		places := map[string]Input{
			"flag":             {Flags: map[string]string{"database": url}},
			"variable":         {Environ: []string{"POSTRIDER_DATABASE=" + url}},
			"file":             {ReadFile: files(map[string]string{DefaultFile: "database: " + yaml(url)})},
			"bare in file":     {ReadFile: files(map[string]string{DefaultFile: "database: " + url + "\nlease: 0"})},
			"substituted":      {Environ: []string{"U=" + url}, ReadFile: files(map[string]string{DefaultFile: "database: ${U}"})},
			"secret file":      {Flags: map[string]string{"database_file": "url"}, ReadFile: files(map[string]string{"url": url})},
			"as the file":      {Flags: map[string]string{"database_file": url}},
			"as the config":    {File: url},
			"direct":           {Flags: map[string]string{"direct_database": url}},
			"direct variable":  {Environ: []string{"POSTRIDER_DIRECT_DATABASE=" + url}},
			"direct file":      {ReadFile: files(map[string]string{DefaultFile: "direct_database: " + yaml(url)})},
			"direct secret":    {Flags: map[string]string{"direct_database_file": "url"}, ReadFile: files(map[string]string{"url": url})},
			"as a destination": {Flags: map[string]string{"to": url}},
			"in every setting": {Environ: []string{"U=" + url}, ReadFile: files(map[string]string{DefaultFile: `
database: ${U}x
database_file: ${U}
schema: ${U}` + strings.Repeat("x", 70) + `
source: ${U}
lease: ${U}
http: ${U}
log_level: ${U}
log_format: ${U}
limits: {in_flight_bytes: "${U}", in_flight_messages: "${U}", connections: "${U}"}
routes:
- {name: "${U}", topics: ["^${U}", " ${U}"], to: "${U}", start: "${U}", order: "${U}", encoding: "${U}", on_failure: "${U}", rate: "${U}", concurrency: "${U}", publish_timeout: "${U}", retry: {max_attempts: "${U}", initial: "${U}", factor: "${U}", max: "${U}", jitter: "${U}"}}
`})},
		}
		for place, in := range places {
			if in.ReadFile == nil {
				in.ReadFile = files(nil)
			}
			in.Routes = true
			_, err := Load(in)
			if err == nil {
				t.Errorf("%s: %s: no problem", place, form)
				continue
			}
			text := err.Error() + fmt.Sprintf("%+v %#v", err, err)
			// A bare word where a file's or a destination's name belongs is no
			// URL, and the operator needs to see which name it was.
			if strings.Contains(text, canary) && !(form == "%s" && strings.HasPrefix(place, "as ")) {
				t.Errorf("%s: %s: shown in: %v", place, form, err)
			}
			if b, _ := json.Marshal(err); strings.Contains(string(b), canary) && !(form == "%s" && strings.HasPrefix(place, "as ")) {
				t.Errorf("%s: %s: shown in JSON: %s", place, form, b)
			}
		}
	}
}

// What a variable held is not shown, not even within advice.
func TestSubstitutedValuesAreNotShown(t *testing.T) {
	for _, setting := range []string{"lease", "limits: {in_flight_bytes", "http"} {
		end := ""
		if strings.Contains(setting, "{") {
			end = "}"
		}
		_, err := Load(Input{
			Environ:  []string{"N=123456"},
			ReadFile: files(map[string]string{DefaultFile: setting + ": \"${N}\"" + end + "\n"}),
		})
		if err == nil {
			t.Errorf("%s took a bare number", setting)
		} else if strings.Contains(err.Error(), "123456") {
			t.Errorf("%s: %v", setting, err)
		}
	}
}

// A library that quotes the password in its complaint gives nothing away.
func TestScrub(t *testing.T) {
	text := "postgres://shop:p%40" + canary + "@h/orders?sslpassword=" + canary + "2"
	parsed, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, complaint := range []string{
		"cannot parse `" + text + "`: bad host (" + text + ")", "cannot parse `x`: bad password p@" + canary, "bad p%40" + canary, "no file " + canary + "2",
	} {
		if got := scrub(complaint, text, parsed); strings.Contains(got, canary) {
			t.Errorf("%q became %q", complaint, got)
		}
	}
	if got := scrub("cannot parse `x`: sslmode is invalid", text, parsed); got != "sslmode is invalid" {
		t.Errorf("the reason is lost: %q", got)
	}
}
