package poll_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/testsize"
)

// replace plants a mistake by changing part of a statement.
func replace(old, new string) func(string) string {
	return func(sql string) string { return strings.ReplaceAll(sql, old, new) }
}

// Each rule of the protocol is there because leaving it out loses messages or
// turns their order around. These tests leave one out at a time, and the random
// writers have to notice.
func TestRandomWritersNoticeMistakes(t *testing.T) {
	for _, mistake := range []struct {
		name    string
		prepare []string // on the database
		inline  int
		rewrite func(sql string) string
	}{
		{
			// The fence is the id that the settle before this one had: taken
			// before the read, so an owner may have a greater one.
			name: "the fence taken before the read",
			prepare: []string{
				`CREATE TABLE early (xid xid8)`,
				`INSERT INTO early SELECT pg_current_xact_id()`,
				`CREATE FUNCTION early() RETURNS xid8 LANGUAGE plpgsql AS $$
				DECLARE before xid8;
				BEGIN
					SELECT xid INTO before FROM early;
					UPDATE early SET xid = pg_current_xact_id();
					RETURN before;
				END $$`,
			},
			rewrite: replace(`RETURNING ctid::text, pg_current_xact_id()::text`, `RETURNING ctid::text, public.early()::text`),
		},
		{
			name: "a restart at the bare position",
			rewrite: func(sql string) string {
				sql = strings.ReplaceAll(sql, `RETURNING ctid::text, pos, unsettled::text`, `RETURNING ctid::text, pos, '{}'`)
				if strings.HasPrefix(sql, `SELECT id, numbers::text FROM`) {
					sql += ` AND false`
				}
				return sql
			},
		},
		{
			// The session's snapshot before this one decides what is looked for.
			name:   "gaps looked for by an older snapshot",
			inline: 1,
			rewrite: replace(`SELECT 0::bigint, pg_current_snapshot()::text,`,
				`SELECT 0::bigint, coalesce(nullif(current_setting('test.seen', true), ''), pg_current_snapshot()::text)
					|| left(set_config('test.seen', pg_current_snapshot()::text, false), 0),`),
		},
	} {
		t.Run(mistake.name, func(t *testing.T) {
			const tries = 20
			for range tries {
				w := newWorld(t)
				for _, sql := range mistake.prepare {
					w.exec(sql)
				}
				if mistake.inline != 0 {
					w.inline = mistake.inline
				}
				w.rewrite = mistake.rewrite
				if err := w.run(testsize.Pick(60, 200)); err != nil {
					t.Logf("noticed: %v", err)
					return
				}
			}
			t.Fatalf("%d runs did not notice", tries)
		})
	}
}
