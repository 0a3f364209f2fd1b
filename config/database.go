package config

import (
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Kinds of databases.
const (
	Postgres = "postgres"
	SQLite   = "sqlite"
)

// Database says where the messages rest. Printed or logged it shows no password.
type Database struct {
	Kind string // Postgres or SQLite; empty: none was named
	// URL is what pgx takes; with Postgres only.
	URL Secret
	// Path of the database file; with SQLite only.
	Path string

	shown string
}

// String shows kind, user, host, port and name, and nothing else.
func (d Database) String() string { return d.shown }

// LogValue is String.
func (d Database) LogValue() slog.Value { return slog.StringValue(d.shown) }

const databaseForms = "postgres://user@host:5432/name or sqlite:PATH"

// mendURL: what is wrong with a URL is not said in more detail, because every
// detail of a URL that is cut at the wrong place may be part of the password.
const mendURL = "write postgres://user@host:5432/name, encode special characters in user and password " +
	"(@ is %40, / is %2F, : is %3A, # is %23, ? is %3F), or leave the password to PGPASSWORD, ~/.pgpass or --db-file"

// ParseDatabase reads the URL of a database. The error says what is wrong and
// how to mend it, and quotes nothing but the scheme.
func ParseDatabase(text string) (Database, error) {
	d, what, mend := parseDatabase(text)
	if what != "" {
		return Database{}, &Error{Problems: []Problem{{Setting: "database", What: what, Mend: mend}}}
	}
	return d, nil
}

func parseDatabase(text string) (d Database, what, mend string) {
	scheme, rest, found := strings.Cut(text, ":")
	switch {
	case found && (scheme == "postgres" || scheme == "postgresql"):
		return parsePostgres(text, rest)
	case found && scheme == "sqlite":
		return parseSQLite(rest)
	case found && word(scheme) && strings.HasPrefix(rest, "//"):
		if n := closest(scheme, []string{"postgres", "postgresql", "sqlite"}); n != "" {
			return d, "unknown scheme " + quote(scheme), "did you mean " + n + "? Write " + databaseForms
		}
		return d, "unknown scheme " + quote(scheme), "write " + databaseForms
	case strings.Contains(text, "host=") || strings.Contains(text, "dbname="):
		return d, "is not a URL", "write its parts as " + databaseForms
	default:
		return d, "is not the URL of a database", "write " + databaseForms
	}
}

func parsePostgres(text, rest string) (d Database, what, mend string) {
	const broken = "is not a valid PostgreSQL URL"
	if !strings.HasPrefix(rest, "//") {
		return d, broken, mendURL
	}
	parsed, err := url.Parse(text)
	authority, tail := rest[2:], ""
	if i := strings.IndexAny(authority, "/?#"); i >= 0 {
		authority, tail = authority[:i], authority[i:]
	}
	// A raw / ? or # inside a password ends the host early and leaves the rest
	// of the password, and then the @, in what looks like the name.
	if err != nil || strings.Contains(text, "#") || strings.Contains(tail, "@") || strings.Count(authority, "@") > 1 {
		return d, broken, mendURL
	}
	pool, err := pgxpool.ParseConfig(text)
	if err != nil {
		return d, broken + ": " + scrub(err.Error(), text, parsed), "see the form " + databaseForms
	}
	at := pool.ConnConfig
	shown := url.URL{Scheme: "postgres", Host: net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port))), Path: "/" + at.Database}
	if at.User != "" {
		shown.User = url.User(at.User)
	}
	if strings.HasPrefix(at.Host, "/") {
		shown.Host, shown.RawQuery = "", "host="+at.Host
	}
	return Database{Kind: Postgres, URL: NewSecret(text), shown: shown.String()}, "", ""
}

// scrub shortens pgx's complaint about a URL that has a sound structure to its
// reason, without the URL, the password, and what its parameters hold.
func scrub(complaint, text string, parsed *url.URL) string {
	if i := strings.LastIndex(complaint, "`: "); i >= 0 {
		complaint = complaint[i+len("`: "):]
	}
	secrets := []string{text}
	if parsed.User != nil {
		secrets = append(secrets, parsed.User.String())
		if password, ok := parsed.User.Password(); ok {
			secrets = append(secrets, password, url.QueryEscape(password), url.PathEscape(password))
		}
	}
	for name, values := range parsed.Query() {
		if strings.Contains(strings.ToLower(name), "pass") {
			secrets = append(secrets, values...)
		}
	}
	for _, s := range secrets {
		if s != "" {
			complaint = strings.ReplaceAll(complaint, s, redacted)
		}
	}
	return Redact(complaint)
}

func parseSQLite(rest string) (d Database, what, mend string) {
	path := rest
	if strings.HasPrefix(rest, "//") {
		path = rest[2:]
		if !strings.HasPrefix(path, "/") {
			return d, "has a host where the path of a file belongs", "write sqlite:PATH or sqlite:///absolute/path"
		}
	}
	switch {
	case path == "" || strings.HasSuffix(path, "/"):
		return d, "names no file", "write sqlite:PATH or sqlite:///absolute/path"
	case strings.HasPrefix(path, ":") || strings.ContainsAny(path, "?#\x00"):
		return d, "has parameters or is not a plain file", "write sqlite:PATH: a file that other processes can open too"
	}
	path = filepath.Clean(path)
	return Database{Kind: SQLite, Path: path, shown: "sqlite:" + path}, "", ""
}

// word reports whether s looks like the scheme of a URL.
func word(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20
		if (c < 'a' || c > 'z') && (i == 0 || !strings.ContainsRune("0123456789+-.", rune(s[i]))) {
			return false
		}
	}
	return s != "" && len(s) <= 20
}
