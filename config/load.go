package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/postrider/postrider/relay"
)

// scalars are the settings that exist as a flag, a variable and a key alike, in
// the order in which people are told about them.
var scalars = []string{
	"database", "database_file", "direct_database", "direct_database_file", "schema", "source", "lease", "http",
	"retention.sent", "retention.failed",
	"limits.in_flight_bytes", "limits.in_flight_messages", "limits.parked_pending", "limits.connections",
	"log_format", "log_level",
}

// Load reads the settings. The error is an *Error with every problem; the
// Config is complete and valid if and only if it is nil.
func Load(in Input) (*Config, error) {
	l := &loader{in: in, env: make(map[string]string), file: make(map[string]value), names: make(map[string]origin)}
	for _, entry := range in.Environ {
		name, text, _ := strings.Cut(entry, "=")
		l.env[name] = text
	}
	c := &Config{
		Schema: DefaultSchema, Source: "auto", Lease: relay.DefaultLease, HTTP: DefaultHTTP,
		Limits: Limits{InFlightBytes: relay.DefaultInFlightBytes, InFlightMessages: relay.DefaultInFlightMessages, ParkedPending: relay.DefaultParkedPending, Connections: DefaultConnections},
		Log:    Log{Format: "text", Level: "info"},
	}
	l.readFile(c)
	l.databases(c)
	if v, ok := l.pick("schema"); ok {
		c.Schema = l.schema(v, c.Database)
	}
	if v, ok := l.pick("source"); ok {
		c.Source = l.source(v)
	}
	leaseAt := value{}
	if v, ok := l.pick("lease"); ok {
		leaseAt = v
		c.Lease = l.duration(v, relay.DefaultLease, MinLease, MaxLease)
	}
	if v, ok := l.pick("http"); ok {
		c.HTTPSet, c.HTTP = true, l.http(v)
	}
	c.Retention = l.retention()
	if v, ok := l.pick("limits.in_flight_bytes"); ok {
		c.Limits.InFlightBytes = l.bytes(v, relay.DefaultInFlightBytes, 1<<20, 1<<40)
	}
	if v, ok := l.pick("limits.in_flight_messages"); ok {
		c.Limits.InFlightMessages = l.int(v, relay.DefaultInFlightMessages, 1, 1_000_000)
	}
	if v, ok := l.pick("limits.parked_pending"); ok {
		c.Limits.ParkedPending = l.int(v, relay.DefaultParkedPending, 1, 100_000_000)
	}
	if v, ok := l.pick("limits.connections"); ok {
		c.Limits.Connections = l.int(v, DefaultConnections, 2, 1000)
	}
	if v, ok := l.pick("log_format"); ok {
		c.Log.Format = l.choice(v, "text", "text", "json")
	}
	if v, ok := l.pick("log_level"); ok {
		c.Log.Level = l.choice(v, "info", "debug", "info", "warn", "error")
	}
	l.routes(c, leaseAt)
	c.Warnings = l.strangers()
	if err := l.problems.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// MinLease and MaxLease bound the setting lease.
const (
	MinLease = time.Second
	MaxLease = 10 * time.Minute
)

type loader struct {
	reader
	in    Input
	env   map[string]string
	file  map[string]value // the file's scalar settings
	name  string           // of the file
	list  *yaml.Node       // the file's routes
	tree  *file
	names map[string]origin // where each route's name stands
	// unread: there is a file that could not be read, so that nobody knows what
	// it would have said.
	unread bool
}

func (l *loader) readFile(c *Config) {
	name, asked := l.in.File, l.in.File != ""
	at := origin{source: "--config"}
	if name == "" && l.env["POSTRIDER_CONFIG"] != "" {
		name, asked, at.source = l.env["POSTRIDER_CONFIG"], true, "POSTRIDER_CONFIG"
	}
	if name == "" {
		name = DefaultFile
	}
	data, err := l.in.readFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !asked:
		return
	case err != nil && !asked:
		l.unread = true
		l.problems.add(origin{file: name}, "", reason(err), "make it readable, or name another file with --config")
		return
	case err != nil:
		l.unread = true
		l.problems.add(at, "", quote(name)+": "+reason(err), "name a file that can be read")
		return
	case len(data) > maxFile:
		l.unread = true
		l.problems.add(origin{file: name}, "", "is larger than "+ByteSize(maxFile).String(), "is it the right file?")
		return
	}
	c.File, l.name = name, name
	f := &file{reader: &l.reader, name: name, lookup: func(v string) (string, bool) { text, ok := l.env[v]; return text, ok }}
	l.tree = f
	before := len(l.problems)
	root := f.parse(data)
	if root == nil {
		l.unread = len(l.problems) > before
		return
	}
	l.unread = resolve(root).Kind != yaml.MappingNode // which mapping reports
	keep := func(key string) field {
		return field{key: key, scalar: func(v value) { l.file[v.setting] = v }}
	}
	var top []field
	sections := make(map[string][]field)
	for _, key := range scalars {
		if section, sub, ok := strings.Cut(key, "."); ok {
			sections[section] = append(sections[section], keep(sub))
		} else {
			top = append(top, keep(key))
		}
	}
	for _, section := range slices.Sorted(maps.Keys(sections)) {
		top = append(top, field{key: section, node: func(n *yaml.Node, setting string) { f.mapping(n, setting, sections[section]) }})
	}
	top = append(top,
		field{key: "routes", node: func(n *yaml.Node, _ string) { l.list = n }},
	)
	f.mapping(root, "", top)
}

// pick returns the value that counts: the flag's, else the variable's, else
// the file's.
func (l *loader) pick(key string) (value, bool) {
	if v, ok := l.flag(key); ok {
		return v, true
	}
	if v, ok := l.variable(key); ok {
		return v, true
	}
	v, ok := l.file[key]
	return v, ok
}

func (l *loader) flag(key string) (value, bool) {
	text, ok := l.in.Flags[key]
	return value{at: origin{source: flagName(key)}, text: text, shown: text}, ok
}

// variable takes a variable that is empty for one that is not set, which is
// how compose files pass on what they do not have.
func (l *loader) variable(key string) (value, bool) {
	for _, name := range variables(key) {
		if text := l.env[name]; text != "" {
			return value{at: origin{source: name}, text: text, shown: text}, true
		}
	}
	return value{}, false
}

func flagName(key string) string {
	switch key {
	case "database":
		return "--db"
	case "database_file":
		return "--db-file"
	}
	return "--" + strings.NewReplacer(".", "-", "_", "-").Replace(key)
}

// variables that hold the setting; the first is its proper name.
func variables(key string) []string {
	name := "POSTRIDER_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
	if rest, ok := strings.CutPrefix(name, "POSTRIDER_DATABASE"); ok {
		return []string{name, "POSTRIDER_DB" + rest}
	}
	return []string{name}
}

// databases reads what the store is reached by.
func (l *loader) databases(c *Config) {
	var found bool
	if c.Database, found = l.database("database"); !found && l.in.Database && !l.unread {
		l.problems.add(origin{}, "", "no database is named", "use --db URL, POSTRIDER_DATABASE, or \"database: URL\" in "+DefaultFile+"; URLs are "+databaseForms)
	}
	c.DirectDatabase, _ = l.database("direct_database")
	if d := c.DirectDatabase; d.Kind == SQLite || d.Kind != "" && c.Database.Kind == SQLite {
		l.problems.add(origin{}, "direct_database", "is for PostgreSQL alone: nothing stands between this program and a file of SQLite", "remove it")
	}
}

// database reads the URL, or the file that holds it, whichever stands at the
// strongest place; found: there is one, be it right or wrong.
func (l *loader) database(key string) (d Database, found bool) {
	for _, place := range []func(string) (value, bool){
		l.flag, l.variable, func(key string) (value, bool) { v, ok := l.file[key]; return v, ok },
	} {
		v, isURL := place(key)
		from, isFile := place(key + "_file")
		switch {
		case isURL && isFile:
			l.problems.add(from.at, from.setting, "the database is given here and as "+v.at.String(), "keep one of the two")
			return d, true
		case isURL:
			if text := l.str(v, "", databaseForms); text != "" {
				d = l.databaseURL(v, text)
			}
			return d, true
		case isFile:
			if name := l.str(from, "", "the path of a file that holds the URL"); name != "" {
				if text, ok := l.secretFile(from, name); ok {
					d = l.databaseURL(from, text)
				}
			}
			return d, true
		}
	}
	return d, false
}

func (l *loader) databaseURL(v value, text string) Database {
	d, what, mend := parseDatabase(text)
	if what != "" {
		l.bad(v, what, mend)
	}
	return d
}

// secretFile returns the text of the file without the line's end.
func (l *loader) secretFile(v value, name string) (string, bool) {
	data, err := l.in.readFile(name)
	text := strings.TrimSpace(string(data))
	switch {
	case err != nil:
		l.bad(v, quote(v.shown)+": "+reason(err), "name a file that can be read")
	case len(data) > maxFile:
		l.bad(v, quote(v.shown)+" is larger than "+ByteSize(maxFile).String(), "is it the right file?")
	case text == "":
		l.bad(v, quote(v.shown)+" is empty", "put the URL into it")
	case strings.ContainsAny(text, "\r\n\x00"):
		l.bad(v, quote(v.shown)+" has more than one line", "put the URL into it and nothing else")
	default:
		return text, true
	}
	return "", false
}

// reason is a file error without the path, which the caller says.
func reason(err error) string {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err.Error()
	}
	return err.Error()
}

func (l *loader) schema(v value, d Database) string {
	name := l.str(v, DefaultSchema, DefaultSchema)
	switch {
	case d.Kind == SQLite && name != DefaultSchema:
		l.bad(v, "SQLite has no schemas: its tables start with postrider_", "remove the setting")
	case len(name) > 63:
		l.bad(v, "is longer than 63 bytes, which is PostgreSQL's limit", "choose a shorter name")
	case strings.HasPrefix(name, "pg_"):
		l.bad(v, quote(v.shown)+" is reserved: names with pg_ belong to PostgreSQL", "choose another name")
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '"' }):
		l.bad(v, "has a quotation mark or a control character", "choose a plain name")
	default:
		return name
	}
	return DefaultSchema
}

func (l *loader) source(v value) string {
	if v.text == "wal" && !v.broken {
		l.bad(v, "this version cannot read the write-ahead log (wal) yet", "use auto or poll, which need nothing but the tables")
		return "auto"
	}
	return l.choice(v, "auto", "auto", "poll")
}

// http returns the address, or "" for off.
func (l *loader) http(v value) string {
	const example = DefaultHTTP + ", or off"
	if v.tag == "!!bool" && v.text == "false" {
		l.bad(v, "is true or false where an address belongs", "write off")
		return DefaultHTTP
	}
	if v.tag == "!!int" {
		l.bad(v, quote(v.shown)+" is a number where an address belongs", "write the host too, such as 127.0.0.1:"+v.text)
		return DefaultHTTP
	}
	text := l.str(v, "", example)
	if text == "off" {
		return ""
	}
	if text == "" {
		return DefaultHTTP
	}
	host, port, err := net.SplitHostPort(text)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n > math.MaxUint16 || strings.ContainsAny(host, "/ @") {
		l.bad(v, quote(v.shown)+" is not an address", "write host:port, such as "+example)
		return DefaultHTTP
	}
	return text
}

// strangers are variables that were probably meant for us. Others with our
// prefix are none of our business: orchestrators make their own from names of
// services.
func (l *loader) strangers() []Problem {
	known := []string{"POSTRIDER_CONFIG", "POSTRIDER_TO"}
	for _, key := range scalars {
		known = append(known, variables(key)...)
	}
	var found problems
	for name := range l.env {
		short, ours := strings.CutPrefix(name, "POSTRIDER_")
		if !ours {
			continue
		}
		nearest, best := "", 3
		for _, k := range known {
			if d := distance(name, k); d < best {
				nearest, best = k, d
			}
		}
		if best > 0 && best <= min(2, len(short)/3) {
			found.add(origin{source: name}, "", "is not a setting", fmt.Sprintf("did you mean %s?", nearest))
		}
	}
	return found
}
