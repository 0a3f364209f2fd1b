package archtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const top = "../.."

func TestWorkspaceKeepsTheRules(t *testing.T) {
	packages, err := Packages(top)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(packages, func(p Package) bool { return p.Path == "outbox" && len(p.Imports) > 0 }) {
		t.Fatalf("the tree was not read: %v", packages)
	}
	for _, wrong := range Check(packages) {
		t.Error(wrong)
	}
}

func TestRootModuleStaysLight(t *testing.T) {
	modules, err := Required(filepath.Join(top, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if len(modules) == 0 {
		t.Fatal("go.mod was not read")
	}
	for _, wrong := range CheckModules(modules) {
		t.Error(wrong)
	}
}

// Every rule sees what it is there for.
func TestPlantedViolations(t *testing.T) {
	for _, c := range []struct {
		from, imports string
		wrong         bool
	}{
		{"outbox", "context", false},
		{"outbox", "github.com/google/uuid", false},
		{"outbox", "github.com/jackc/pgx/v5", true},
		{"outbox", Module + "/relay", true},
		{"outbox", Module + "/internal/numset", true},
		{"outbox/outboxtest", "testing", true},

		{"relay", Module + "/outbox", false},
		{"relay", Module + "/internal/numset", false},
		{"relay", "golang.org/x/time/rate", false},
		{"relay", Module + "/store/memstore", true},
		{"relay", Module + "/inbox", true},
		{"relay", Module + "/config", true},
		{"relay", "github.com/jackc/pgx/v5/pgxpool", true},
		{"inbox", Module + "/inbox/dynamoinbox", true},
		{"inbox", Module + "/relay", true},
		{"admin", Module + "/outbox", false},
		{"admin", Module + "/store/pgstore", true},

		{"store/pgstore", Module + "/relay", false},
		{"store/pgstore", Module + "/inbox", false},
		{"store/pgstore", "github.com/jackc/pgx/v5", false},
		{"store/pgstore", Module + "/store/pgstore/migrations", false},
		{"store/pgstore", Module + "/store/sqlitestore", true},
		{"store/pgstore", Module + "/source/poll", true},
		{"store/sqlitestore", Module + "/store/pgstore", true},
		{"source/poll", Module + "/store/pgstore", false},
		{"source/wal", Module + "/store/pgstore", false},
		{"source/poll", Module + "/source/wal", true},
		{"source/claim", Module + "/store/pgstore", true},
		{"broker/snsbroker", Module + "/broker/sqsbroker", true},
		{"broker/sqsbroker", Module + "/admin", true},
		{"broker/snsbroker", Module + "/internal/awsmsg", false},
		{"broker/sqsbroker", Module + "/internal/awsmsg", false},
		{"broker/kafkabroker", Module + "/internal/awsmsg", true},
		{"relay", Module + "/internal/awsmsg", true},
		{"internal/awsmsg", Module + "/broker/sqsbroker", true},
		{"inbox/dynamoinbox", Module + "/inbox", false},
		{"inbox/redisinbox", Module + "/inbox/dynamoinbox", true},
		{"telemetry", Module + "/relay", false},
		{"telemetry", Module + "/broker/sqsbroker", true},

		{"dashboard", Module + "/admin", false},
		{"dashboard", Module + "/store/pgstore", true},
		{"config", Module + "/relay", false},
		{"config", Module + "/broker/sqsbroker", true},
		{"internal/numset", Module + "/store/pgstore", true},

		{"cmd/postrider", Module + "/store/pgstore", false},
		{"cmd/postrider", Module + "/conformance", true},
		{"cmd/postrider", Module + "/internal/pgserver", true},
		{"examples/orders", Module + "/broker/sqsbroker", false},
		{"examples/orders/demo", Module + "/internal/pgserver", false},
		{"examples/orders", Module + "/internal/pgtest", true},
		{"bench", Module + "/store/pgstore", false},
		{"bench", Module + "/internal/pgserver", false},
		{"test/rig", Module + "/internal/pgtest", false},
		{"test/rig", Module + "/store/pgstore", false},

		{"conformance", Module + "/relay", false},
		{"conformance", "testing", false},
		{"conformance", Module + "/internal/testsize", false},
		{"conformance", Module + "/store/memstore", true},
		{"relay", Module + "/conformance", true},
		{"store/pgstore", Module + "/internal/pgtest", true},
		{"store/pgstore", Module + "/internal/pgserver", true},
		{"relay", Module + "/internal/testsize", true},
		{"internal/pgtest", Module + "/internal/pgserver", false},
		{"internal/pgtest/with", Module + "/internal/pgserver", false},

		{"", "fmt", true},
		{"helpers", "fmt", true},
	} {
		wrong := Check([]Package{{Path: c.from, Imports: []string{c.imports}}})
		if (len(wrong) > 0) != c.wrong {
			t.Errorf("%q imports %s: got %q, want a violation: %v", c.from, c.imports, wrong, c.wrong)
		}
	}
}

func TestPlantedModules(t *testing.T) {
	wrong := CheckModules([]string{
		"github.com/jackc/pgx/v5", "github.com/sivchari/kumo", "github.com/riverqueue/river", "github.com/ncruces/go-strftime",
		"github.com/ncruces/go-sqlite3", "github.com/ThreeDotsLabs/watermill-sql/v4", "github.com/Shopify/toxiproxy/v2",
	})
	if len(wrong) != 5 {
		t.Errorf("found %d of 5: %q", len(wrong), wrong)
	}
}

// Files of every build tag count, tests and folders that the go command ignores do not.
func TestReadsTheTree(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"relay/relay.go":         "package relay\nimport \"fmt\"\n",
		"relay/relay_windows.go": "//go:build windows\n\npackage relay\nimport \"example.com/win\"\n",
		"relay/relay_test.go":    "package relay\nimport \"testing\"\n",
		"relay/testdata/x.go":    "package x\nimport \"os\"\n",
		".hidden/x.go":           "package x\nimport \"os\"\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	packages, err := Packages(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) != 1 || packages[0].Path != "relay" || strings.Join(packages[0].Imports, " ") != "fmt example.com/win" {
		t.Errorf("got %+v", packages)
	}
}
