// Package archtest holds the rules of who may import whom, and its test checks
// the whole workspace against them. ARCHITECTURE.md tells the reasons.
package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Module is the path of the product's module; the paths of its packages and of
// the nested modules' packages are told below it.
const Module = "github.com/postrider/postrider"

// Package is one folder with Go files, of whatever build tags.
type Package struct {
	Path    string   // below the module, "" for the module's own folder
	Imports []string // of files that are no tests
}

// A part is a part of the tree that one rule is about.
type part struct {
	// ours are the packages of this project that it may import besides itself.
	ours []string
	// adapter says that one folder of it must not import another.
	adapter bool
	// plain says that no module of others may be imported but google/uuid and
	// golang.org/x.
	plain bool
	// wires says that it may import every package that is not for tests alone.
	wires bool
	// tests says that it is for tests and may import whatever tests may.
	tests bool
}

// parts are the folders of the tree, each with its rule. A folder that is not
// here has none, which is a violation of its own: say here what it may import.
var parts = map[string]part{
	"outbox": {plain: true},
	"relay":  {plain: true, ours: []string{"outbox", "internal"}},
	"inbox":  {plain: true, ours: []string{"outbox", "internal"}},
	"admin":  {plain: true, ours: []string{"outbox", "internal"}},

	"store/*":   {adapter: true, ours: []string{"outbox", "relay", "inbox", "admin", "internal"}},
	"source/*":  {adapter: true, ours: []string{"outbox", "relay", "inbox", "internal"}},
	"broker/*":  {adapter: true, ours: []string{"outbox", "relay", "inbox", "internal"}},
	"inbox/*":   {adapter: true, ours: []string{"outbox", "inbox", "internal"}},
	"telemetry": {adapter: true, ours: []string{"outbox", "relay", "inbox", "admin", "internal"}},

	"dashboard": {ours: []string{"admin", "outbox", "internal"}},
	"config":    {ours: []string{"outbox", "relay", "internal"}},

	"cmd":      {wires: true},
	"examples": {wires: true},
	"bench":    {wires: true},
	"test":     {wires: true, tests: true},

	"conformance": {tests: true, ours: []string{"outbox", "relay", "inbox", "admin", "internal"}},

	"internal":          {ours: []string{"outbox"}},
	"internal/awsmsg":   {adapter: true, ours: []string{"outbox"}},
	"internal/pgserver": {},
	"internal/probe":    {},
	"internal/pgtest":   {tests: true, ours: []string{"internal/pgserver"}},
	"internal/testsize": {tests: true},
}

// also are imports that an adapter may make besides its part's: the two readers
// of PostgreSQL's log share its tables, the two services of AWS the look of a
// message.
var also = map[string][]string{
	"broker/sqsbroker": {"internal/awsmsg"},
	"broker/snsbroker": {"internal/awsmsg"},
	"source/poll":      {"store/pgstore"},
	"source/wal":       {"store/pgstore"},
}

// forTests are the packages that only tests may import, and from which no test
// helper may get into the product.
var forTests = []string{"conformance", "internal/pgtest", "internal/testsize", "testing"}

// servers starts server processes; the product itself never does.
const servers = "internal/pgserver"

// only are modules that the root's go.mod never lists, not even indirectly,
// because they are a rival, an emulator, a server or a browser driver: they
// belong to the nested modules. A word stands for every module path that has it.
var only = []string{
	"/kumo", "ncruces/go-sqlite3", "watermill", "riverqueue/", "pgoutbox", "chromedp", "blevesearch", "toxiproxy",
	"nats-server", "kfake", "miniredis", "testcontainers", "mailpit", "dynalite", "goaws",
}

// Check returns the violations of the import rules, sorted.
func Check(packages []Package) []string {
	var wrong []string
	report := func(p Package, imported, why string) {
		wrong = append(wrong, fmt.Sprintf("%s imports %s: %s", orRoot(p.Path), imported, why))
	}
	for _, p := range packages {
		name, rule, ok := partOf(p.Path)
		if !ok {
			wrong = append(wrong, fmt.Sprintf("%s: no rule says what this folder may import; add one", orRoot(p.Path)))
			continue
		}
		for _, imported := range p.Imports {
			path, ours := below(imported)
			switch {
			case !rule.tests && slices.ContainsFunc(forTests, func(t string) bool { return within(path, t) }):
				report(p, imported, "it is for tests alone")
			case !ours:
				if rule.plain && isModule(imported) && imported != "github.com/google/uuid" && !strings.HasPrefix(imported, "golang.org/x/") {
					report(p, imported, name+" stays free of other modules")
				}
			case within(path, root(name, p.Path)) && (rule.adapter || !isAdapter(path)):
				// its own
			case path == servers && !(rule.wires && name != "cmd") && name != "internal/pgtest":
				report(p, imported, "the product starts no servers")
			case rule.wires:
				// everything that is not for tests alone
			case allowed(path, rule.ours) || allowed(path, also[root(name, p.Path)]):
			case isAdapter(path):
				report(p, imported, "adapters are imported by cmd, examples, test and bench alone")
			default:
				report(p, imported, fmt.Sprintf("%s may import %s of this project", name, list(rule.ours)))
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// CheckModules returns which of the modules that the root's go.mod lists do not
// belong there.
func CheckModules(required []string) []string {
	var wrong []string
	for _, module := range required {
		for _, word := range only {
			if strings.Contains(module, word) {
				wrong = append(wrong, fmt.Sprintf("the root's go.mod lists %s, which belongs to a nested module", module))
			}
		}
	}
	return wrong
}

// partOf returns the most particular part that a package is in.
func partOf(path string) (name string, rule part, ok bool) {
	for candidate := range parts {
		folder, isPattern := strings.CutSuffix(candidate, "/*")
		in := within(path, folder)
		if isPattern {
			in = strings.HasPrefix(path, folder+"/")
		}
		// "inbox/*" is more particular than "inbox".
		if in && len(candidate) > len(name) {
			name = candidate
		}
	}
	rule, ok = parts[name]
	return name, rule, ok
}

// root is the folder whose packages may import each other: of an adapter its own
// ("store/pgstore"), of every other part the whole of it.
func root(name, path string) string {
	folder, isPattern := strings.CutSuffix(name, "/*")
	if !isPattern {
		return folder
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(path, folder+"/"), "/")
	return folder + "/" + first
}

// allowed reports whether a package is one of the parts named. A part does not
// stand for the adapters below it: inbox is not inbox/dynamoinbox; nor internal
// for the packages in it that have rules of their own.
func allowed(path string, names []string) bool {
	for _, n := range names {
		if path == n || strings.HasPrefix(path, n+"/") && !isAdapter(path) || isAdapter(n) && within(path, n) {
			return true
		}
	}
	return false
}

func isAdapter(path string) bool {
	_, rule, _ := partOf(path)
	return rule.adapter
}

func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// below returns the path of one of our packages below the module.
func below(imported string) (path string, ours bool) {
	if imported == Module {
		return "", true
	}
	if path, ours = strings.CutPrefix(imported, Module+"/"); ours {
		return path, true
	}
	return imported, false
}

// isModule reports whether an import is of a module and not of the standard library.
func isModule(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return strings.Contains(first, ".")
}

func orRoot(path string) string {
	if path == "" {
		return "the root folder"
	}
	return path
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return "only " + strings.Join(names, ", ")
}
