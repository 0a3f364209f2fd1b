package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/admin"
)

// ErrNoSchema means that the tables are missing, or not all there.
var ErrNoSchema = errors.New("the outbox tables are missing: create them with 'postrider migrate up'")

// ErrNewerSchema means that a later version has migrated the schema, and that
// its tables are not for this version any more.
var ErrNewerSchema = errors.New("the outbox tables were migrated by a later version: use that version of postrider")

// Status is what a schema has and lacks.
type Status struct {
	Version int // of the last migration applied; 0: none
	Known   int // the version that this program knows
	// CompatibleFrom is the version that a program must know at least to use the
	// tables, Version itself where the tables do not say; 0: there are none.
	CompatibleFrom int
	Shards         int      // 0: none
	Pending        []string // names of the migrations that are missing
}

// ReadStatus says what the schema has and lacks; an absent schema lacks
// everything. ErrNewerSchema, with the Status, if a later version has migrated it
// and says that this one cannot use it.
func ReadStatus(ctx context.Context, db rowQuerier, schema Schema) (Status, error) {
	h, err := known()
	if err != nil {
		return Status{}, err
	}
	return h.status(ctx, db, schema)
}

func (h history) status(ctx context.Context, db rowQuerier, schema Schema) (Status, error) {
	status := Status{Known: len(h)}
	var exists bool
	var s session
	err := db.QueryRow(ctx, sessionSQL, schema.Table("meta")).Scan(&exists, &s.path, &s.server, &s.client)
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return status, fmt.Errorf("look for the outbox tables: %w", err)
	}
	if exists {
		read, err := readVersion(ctx, db, schema)
		if err != nil {
			return status, err
		}
		status.Version, status.CompatibleFrom, status.Shards = read.Version, read.CompatibleFrom, read.Shards
	}
	status.Pending = h.names(status.Version)
	if status.CompatibleFrom > len(h) {
		return status, fmt.Errorf("%w (schema %s has version %d, this one knows %d)", ErrNewerSchema, schema.Name(), status.Version, len(h))
	}
	if status.Version > 0 && len(status.Pending) == 0 {
		err = checkComplete(ctx, db, schema, status.Shards)
	}
	return status, err
}

// checkCompatible is the same with only what the tables say of it at hand.
func checkCompatible(compatibleFrom string) error {
	h, err := known()
	if err != nil {
		return err
	}
	from, err := strconv.Atoi(compatibleFrom)
	if err != nil {
		return fmt.Errorf("compatible_from of the outbox tables: %w", err)
	}
	if from > len(h) {
		return fmt.Errorf("%w (they are for version %d and later, this one knows %d)", ErrNewerSchema, from, len(h))
	}
	return nil
}

// CheckSchema reports why this program cannot use the tables: ErrNoSchema if
// they are missing or lack a migration, ErrNewerSchema if they have one that it
// does not know and that leaves it out. A program that was running while the
// tables were migrated finds out by it.
func CheckSchema(ctx context.Context, db Querier, schema Schema) (Status, error) {
	status, err := ReadStatus(ctx, db, schema)
	if err == nil && len(status.Pending) > 0 {
		err = fmt.Errorf("%w (schema %s lacks %v)", ErrNoSchema, schema.Name(), status.Pending)
	}
	return status, err
}

// Members returns the relays that showed a sign of life lately.
func Members(ctx context.Context, db Querier, schema Schema) ([]admin.RelayStatus, error) {
	rows, err := db.Query(ctx, schema.sql(membersSQL))
	if err == nil {
		var members []admin.RelayStatus
		if members, err = pgx.CollectRows(rows, pgx.RowToStructByPos[admin.RelayStatus]); err == nil {
			return members, nil
		}
	}
	return nil, fmt.Errorf("read which relays are at work: %w", err)
}
