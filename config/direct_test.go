package config

import (
	"strings"
	"testing"
)

// The direct connection is written as the other one is, in every place.
func TestDirectDatabase(t *testing.T) {
	const url = "postgres://owner:" + canary + "@h:5432/orders"
	secret := files(map[string]string{"url": url + "\n"})
	for place, in := range map[string]Input{
		"flag":          {Flags: map[string]string{"direct_database": url}},
		"flag of file":  {Flags: map[string]string{"direct_database_file": "url"}, Environ: []string{"POSTRIDER_DIRECT_DATABASE=sqlite:weaker"}},
		"variable":      {Environ: []string{"POSTRIDER_DIRECT_DATABASE=" + url}},
		"variable file": {Environ: []string{"POSTRIDER_DIRECT_DATABASE_FILE=url"}},
		"key":           {ReadFile: files(map[string]string{DefaultFile: "direct_database: ${U}"}), Environ: []string{"U=" + url}},
	} {
		if in.ReadFile == nil {
			in.ReadFile = secret
		}
		in.Environ = append(in.Environ, "POSTRIDER_DATABASE=postgres://shop@pooler:6432/orders")
		c, err := Load(in)
		if err != nil {
			t.Errorf("%s: %v", place, err)
			continue
		}
		if c.DirectDatabase.URL.Reveal() != url || c.DirectDatabase.String() != "postgres://owner@h:5432/orders" || c.Database.String() != "postgres://shop@pooler:6432/orders" {
			t.Errorf("%s: %v and %v", place, c.DirectDatabase, c.Database)
		}
	}
}

func TestDirectDatabaseProblems(t *testing.T) {
	for yaml, want := range map[string]string{
		"database: sqlite:x\ndirect_database: postgres://h/d":                                "direct_database: is for PostgreSQL alone",
		"database: postgres://h/d\ndirect_database: sqlite:x":                                "direct_database: is for PostgreSQL alone",
		"database: postgres://h/d\ndirect_database: postgres://h/d?sslmode=x":                "2:18: direct_database: is not a valid PostgreSQL URL",
		"database: postgres://h/d\ndirect_database: postgres://h/d\ndirect_database_file: x": "3:23: direct_database_file: the database is given here and as postrider.yaml:2:18",
		"direct_database: postgres://h/d":                                                    "no database is named",
	} {
		_, err := Load(Input{ReadFile: files(map[string]string{DefaultFile: yaml}), Database: true})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", yaml, err, want)
		}
	}
}
