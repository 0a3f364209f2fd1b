package pgstore

import (
	"context"
	"errors"
	"fmt"
)

// ErrStandby means that the server is a standby. Nothing can be written there, and
// every number that it has not replayed yet looks dead.
var ErrStandby = errors.New("the database is a standby: the relay needs the primary")

// serverSQL tells also of the first table of which the session would not see all.
const serverSQL = `SELECT pg_is_in_recovery(), (SELECT min(relname::text) FROM pg_catalog.pg_class
	WHERE relnamespace = $1::text::regnamespace AND relrowsecurity AND row_security_active(oid))`

// CheckServer reports an error if what is read there cannot be trusted: ErrStandby
// on a standby; and if a policy hides rows of any table from this role, since a
// number that is not seen counts as rolled back.
func CheckServer(ctx context.Context, db Querier, schema Schema) error {
	var standby bool
	var hidden *string
	if err := db.QueryRow(ctx, serverSQL, schema.quoted()).Scan(&standby, &hidden); err != nil {
		return fmt.Errorf("look whether the server shows everything: %w", err)
	}
	if standby {
		return ErrStandby
	}
	if hidden != nil {
		return fmt.Errorf("row level security hides rows of table %[1]s from this role, so messages can be missed: ALTER TABLE %[1]s DISABLE ROW LEVEL SECURITY, or give the role BYPASSRLS",
			schema.Table(*hidden))
	}
	return nil
}
