package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/postrider/postrider/admin"
)

// Members returns the relays that showed a sign of life lately. It works with
// tables that lack migrations, too.
func Members(ctx context.Context, db *sql.DB) (members []admin.RelayStatus, err error) {
	err = eachRow(ctx, db, sqlMembers, nil, func(scan func(...any) error) error {
		m, routes, err := scanMember(scan)
		if err != nil {
			return err
		}
		if json.Unmarshal([]byte(routes), &m.Routes) != nil {
			m.Routes = nil // somebody has changed them by hand
		}
		members = append(members, m)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: read which relays are at work: %w", err)
	}
	return members, nil
}

// scanMember reads a row of sqlMembers, and its routes as they are written.
func scanMember(scan func(...any) error) (m admin.RelayStatus, routes string, err error) {
	var joined, expires int64
	err = scan(&m.Owner, &routes, &joined, &expires)
	m.JoinedAt, m.Expires = time.UnixMicro(joined).UTC(), time.UnixMicro(expires).UTC()
	return m, routes, err
}
