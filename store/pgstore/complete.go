package pgstore

import (
	"context"
	"errors"
	"fmt"
)

// ErrIncomplete means that something of the schema is gone, or that it was never
// made by a migration but copied by hand.
var ErrIncomplete = errors.New("the outbox tables are not all there")

const (
	// versionSQL also tells the number of shards by a type's name, in case
	// somebody has emptied meta.
	versionSQL = `SELECT
		coalesce((SELECT value::int FROM {s}.meta WHERE name = 'version'), 0),
		coalesce((SELECT value::int FROM {s}.meta WHERE name = 'compatible_from'), (SELECT value::int FROM {s}.meta WHERE name = 'version'), 0),
		coalesce((SELECT value::int FROM {s}.meta WHERE name = 'shards'), 0),
		coalesce((SELECT substring(typname::text FROM 'key_of_([0-9]+)_shards')::int FROM pg_catalog.pg_type
			WHERE typnamespace = $1::text::regnamespace AND typname::text ~ '^key_of_[0-9]+_shards$'), 0)`

	missingPartsSQL = `SELECT coalesce(string_agg(name, ', ' ORDER BY name), '') FROM (
		SELECT name FROM unnest($2::text[]) AS name WHERE to_regclass($1 || '.' || name) IS NULL
		UNION ALL SELECT name FROM unnest($3::text[]) AS name WHERE to_regproc($1 || '.' || name) IS NULL) AS missing`
)

// parts are the names of tables, sequences and views, and of functions.
func parts(shards int) (relations, functions []string) {
	relations = []string{"cursor", "gap", "mark", "parked", "parked_arrival_seq", "retention", "member", "route", "audit", "inbox", "messages"}
	for shard := range shards {
		relations = append(relations, fmt.Sprintf("log_%d", shard), fmt.Sprintf("log_%d_seq", shard))
	}
	return relations, []string{"takes_topic", "shard_of", "enqueue", "lock_keys"}
}

// readVersion reads meta.
func readVersion(ctx context.Context, db rowQuerier, schema Schema) (status Status, err error) {
	var shards int
	if err := db.QueryRow(ctx, schema.sql(versionSQL), schema.quoted()).Scan(&status.Version, &status.CompatibleFrom, &status.Shards, &shards); err != nil {
		return Status{}, fmt.Errorf("read the version of the outbox tables: %w", err)
	}
	if status.Version == 0 && status.Shards == 0 && shards > 0 {
		h, err := known()
		if err != nil {
			return Status{}, err
		}
		return Status{}, fmt.Errorf("%w: %[2]s is empty; if this version has made the schema: INSERT INTO %[2]s (name, value) VALUES ('version', '%[3]d'), ('shards', '%[4]d') ON CONFLICT (name) DO UPDATE SET value = excluded.value",
			ErrIncomplete, schema.Table("meta"), len(h), shards)
	}
	return status, nil
}

// checkComplete reports what is missing of a schema that is up to date.
func checkComplete(ctx context.Context, db rowQuerier, schema Schema, shards int) error {
	relations, functions := parts(shards)
	var missing string
	if err := db.QueryRow(ctx, missingPartsSQL, schema.quoted(), relations, functions).Scan(&missing); err != nil {
		return fmt.Errorf("look for the outbox tables: %w", err)
	}
	if missing == "" {
		return nil
	}
	return fmt.Errorf("%w: schema %s lacks %s; restore them from a backup (a schema is made by 'postrider migrate up', and copied whole by pg_dump)", ErrIncomplete, schema.Name(), missing)
}
