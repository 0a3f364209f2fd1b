// Package sqlitestore is an outbox in one SQLite file, for applications whose
// database is such a file: the same contract as on PostgreSQL, without a server.
//
// # What the application's connections need
//
// Messages are enqueued in the application's own *sql.Tx, in the same file as
// its tables. [DSN] names such a file with everything that is needed, and
// [Store.DB] is a pool that was opened so:
//
//   - journal_mode=WAL, so that reading messages and writing orders do not wait
//     for each other;
//   - synchronous=FULL, so that a commit survives a power failure (with NORMAL
//     the newest commits can be lost, messages and orders together);
//   - busy_timeout, since SQLite has one writer at a time and the others wait;
//   - _txlock=immediate, so that a transaction waits for its turn where it
//     begins. One that begins as a reader and then writes fails at once, with
//     SQLITE_BUSY, if somebody else has written in between;
//   - foreign_keys=ON, which Postrider does not need but most applications want.
//
// Keep transactions short: while one writes, nobody else does, and the relay
// cannot renew its leases. The file must be on a local disk.
//
// # How it works
//
// There is one writer, so the order of numbers is the order of commits and no
// number can turn up late. Each shard has a log table of its own, append only,
// with AUTOINCREMENT so that no number is ever used twice. A route's cursor on a
// shard is one row: how far it has read, which numbers up to there have no
// outcome yet, and the lease with its fencing token. Settling begins by updating
// that row under the token. Messages that must wait or were given up are in
// postrider_parked. All times are by the database's clock, in microseconds.
//
// A relay waits by asking for PRAGMA data_version every 2 to 25 ms, which
// notices commits of other processes too, and costs the same however many
// leases wait.
//
// Settles do not wait for the disk (synchronous=NORMAL): after a power failure
// the newest may be gone, and their messages are sent again. Taking a lease and
// giving it up do wait, so after a clean stop nothing is sent again. A killed
// process loses no settle.
//
// # Which driver
//
// modernc.org/sqlite and github.com/ncruces/go-sqlite3 both build without a C
// compiler, statically, with SQLite 3.54.1. Measured in turns in one run, on two
// cores that others kept busy, 200-byte payloads; medians of 5 rounds (range),
// and the processor time for each, which the others disturb less:
//
//	cd bench && go run ./sqlite -rounds 5 -span 400ms
//
//	                                     modernc                      ncruces
//	enqueue tx/s, 1 connection, FULL     707 (535–837), 445 µs        644 (467–1582), 400 µs
//	enqueue tx/s, 8 connections, FULL    804 (696–1227), 423 µs       954 (436–1364), 629 µs
//	rows/s in pages of 500               213k (134–316k), 2.5 µs      174k (106–307k), 3.1 µs
//	settle tx/s, FULL                    983 (343–1357), 336 µs       1633 (642–1858), 255 µs
//	settle tx/s, NORMAL                  6874 (5087–10264), 92 µs     8654 (7101–13414), 93 µs
//	idle polls/s                         69k, 7.8 µs                  50k, 7.7 µs
//	binary, stripped                     +5.0 MB                      +6.0 MB
//	memory of 16 connections             +3.6 MB                      +8.1 MB
//
// An earlier run with less beside it gave 2437 and 2035 tx/s with one
// connection, 2267 and 2901 with eight, 396k and 327k rows/s, 12.1k and 13.4k
// settles/s. So neither is faster for what we do. modernc it is: it reads a
// little faster and takes less memory, and its waits for a lock end with their
// context, so a relay that is told to stop does.
//
// The same runs compared one log table for all shards, with an index on shard
// and number: 97k rows/s where a table per shard gave 213k (268k and 396k in the
// earlier one), and no difference for writers beyond the noise. Numbers that are
// dense within a shard also keep the set of unsettled ones short.
package sqlitestore
