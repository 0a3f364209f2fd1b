// Package sqlitestore is an outbox in one SQLite file.
package sqlitestore
