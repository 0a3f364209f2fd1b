// Package pgserver runs real PostgreSQL servers for tests, benchmarks and demos.
//
// Start finds the server programs of this machine, makes a cluster in a folder of
// its own, runs it on a free loopback port under an unprivileged user, and checks
// that the server which answers is the one it started. A server can be stopped,
// crashed and started again on the same port with the same data, and it does not
// outlive the process that started it, however that process ends.
//
// Where the programs are missing, Start installs Debian's package when it runs as
// root on Debian, or else runs a container when an engine answers, or else says
// what is missing.
package pgserver

import (
	"os"
	"time"
)

// Version18 is the major version that Start fetches where it is asked for and
// missing.
const Version18 = "18"

// EnvVersion names the variable with the major version of the servers that
// tests start: 18 for Version18. Unset: the newest of this machine.
const EnvVersion = "POSTRIDER_TEST_PG_VERSION"

// VersionForTests is what EnvVersion says, for Options.Version.
func VersionForTests() string { return os.Getenv(EnvVersion) }

// Options say how a server runs. The zero value is a throw-away server.
type Options struct {
	// Version is the major version of the server programs, such as "15".
	// Default: that of the cluster in Dir, or else the newest of this machine.
	// Version18 is fetched from npm if the machine lacks it, into a folder for
	// caches; any other version has to be there.
	Version string

	// Dir is the folder of the server; it is created if missing and kept. A cluster
	// that an earlier server left in it is used again, by programs of the cluster's
	// own version. Default: a temporary folder, removed by Close, or when the
	// process ends.
	Dir string

	// Settings are given to the server on its command line, over the defaults:
	// wal_level=logical, max_prepared_transactions=20, and fsync as PostgreSQL has
	// it (on). The time zone is the machine's unless set here. The address, the
	// port and the data folder cannot be set.
	Settings map[string]string

	// LogTo is the file that the server's log is appended to. Default: Dir/server.log.
	LogTo string

	// Fresh makes the cluster by initdb instead of copying the machine's template.
	// Copies share one system identifier; a test that tells two servers apart by
	// it needs fresh ones. It takes seconds instead of tenths of one.
	Fresh bool
}

const (
	superuser = "postgres"

	// startTimeout bounds one start besides the caller's context. Recovery after a
	// crash of a busy server is the slowest part of one.
	startTimeout = 2 * time.Minute

	// portTries bounds how often a start that lost its port to somebody else is
	// repeated: with another port for a new server, with the same for a restart.
	portTries = 8
)

// defaults are the settings that Options.Settings may override.
var defaults = map[string]string{
	"wal_level":                 "logical",
	"max_prepared_transactions": "20",
	"log_line_prefix":           "%m [%p] %q%a@%d ",
}

// ForTests returns settings for a server that many tests share: room for their
// connections, and no waiting for the disk, since nobody crashes it.
func ForTests() map[string]string {
	return map[string]string{
		"max_connections":       "500",
		"max_wal_senders":       "50",
		"max_replication_slots": "50",
		"fsync":                 "off",
		"full_page_writes":      "off",
	}
}
