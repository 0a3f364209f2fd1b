-- postrider:compatible_from 1

-- Times are microseconds since 1970 by this database's clock. The defaults are
-- computed by whichever SQLite inserts, so they use what every one has:
-- unixepoch('subsec') is NULL before 3.42.

-- How far each route has read each shard, and who may read on.
CREATE TABLE postrider_cursor (
	route     TEXT    NOT NULL,
	shard     INTEGER NOT NULL,
	token     INTEGER NOT NULL, -- rises with every lease; settling names it
	owner     TEXT    NOT NULL, -- for people
	expires   INTEGER NOT NULL, -- end of the lease; 0: given up
	started   INTEGER NOT NULL, -- the route has nothing to do with numbers up to this
	pos       INTEGER NOT NULL CHECK (pos >= 0), -- numbers up to this were read
	unsettled TEXT    NOT NULL, -- of those, the ones without an outcome: [[first,last],…]
	deaths    INTEGER NOT NULL DEFAULT 0 CHECK (deaths >= 0), -- leases in a row that ended neither by a close nor after they had proved well
	topics      TEXT    NOT NULL DEFAULT '["**"]', -- the route's patterns, as a JSON array
	topics_from INTEGER NOT NULL DEFAULT 0,        -- the number above which topics holds
	PRIMARY KEY (route, shard)
) STRICT, WITHOUT ROWID;

-- What must wait or was given up. Blocked messages that were never tried have
-- no copy: they are read from the log (id is NULL then).
--
-- closes: the message stands in its key's way, and the relay that holds the
-- shard counts it so. When an operator discards it, or releases its key, that
-- stays as it is until the relay has heard of it, for which the row is due; so a
-- failed or discarded one that is due is in nobody's way.
CREATE TABLE postrider_parked (
	arrival      INTEGER PRIMARY KEY, -- order within a key
	route        TEXT    NOT NULL,
	shard        INTEGER NOT NULL,
	seq          INTEGER NOT NULL,
	key          TEXT    NOT NULL,
	state        TEXT    NOT NULL CHECK (state IN ('pending', 'retrying', 'blocked', 'scheduled', 'failed', 'expired', 'discarded')),
	closes       INTEGER NOT NULL DEFAULT 0 CHECK (closes = 0 OR closes = 1 AND key <> '' AND state NOT IN ('scheduled', 'expired')),
	due          INTEGER              -- handed out from then on; NULL: not by itself
		CHECK (CASE WHEN state IN ('pending', 'retrying', 'scheduled') THEN due IS NOT NULL
			WHEN state = 'blocked' THEN due IS NOT NULL OR closes
			ELSE due IS NULL OR closes END),
	replay       INTEGER NOT NULL DEFAULT 0, -- not 0: it is sent again, under this number
	attempts     INTEGER NOT NULL CHECK (attempts >= 0),
	error        TEXT    NOT NULL,
	changed_at   INTEGER NOT NULL,
	id           BLOB,
	topic        TEXT,
	type         TEXT,
	payload      BLOB,
	content_type TEXT,
	headers      TEXT,
	not_before   INTEGER,
	expires      INTEGER,
	created_at   INTEGER
) STRICT;
CREATE UNIQUE INDEX postrider_parked_seq ON postrider_parked (route, shard, seq);
CREATE INDEX postrider_parked_blocked ON postrider_parked (route, shard, key) WHERE state = 'blocked';
CREATE INDEX postrider_parked_closing ON postrider_parked (route, shard, key, state) WHERE closes AND state <> 'blocked';
CREATE INDEX postrider_parked_due ON postrider_parked (route, shard, due) WHERE due IS NOT NULL;
-- For operators: how many there are of each state, and which; and by the message's id.
CREATE INDEX postrider_parked_state ON postrider_parked (route, state, shard, seq);
CREATE INDEX postrider_parked_id ON postrider_parked (id) WHERE id IS NOT NULL;

-- The relays at work, so that they can divide the shards among them.
CREATE TABLE postrider_member (
	owner   TEXT    NOT NULL PRIMARY KEY,
	routes  TEXT    NOT NULL, -- their names, as a JSON array
	joined  INTEGER NOT NULL,
	expires INTEGER NOT NULL  -- without a sign of life until then it is gone
) STRICT, WITHOUT ROWID;

-- What an operator has said of a route. A route without a row is not paused.
CREATE TABLE postrider_route (
	name        TEXT    NOT NULL PRIMARY KEY,
	paused_at   INTEGER, -- NULL: it is not paused
	paused_by   TEXT    NOT NULL DEFAULT '',
	paused_note TEXT    NOT NULL DEFAULT '',
	updated_at  INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
) STRICT, WITHOUT ROWID;

-- What operators did, each written in the transaction that did it.
CREATE TABLE postrider_audit (
	id     INTEGER PRIMARY KEY AUTOINCREMENT,
	at     INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
	who    TEXT    NOT NULL,
	action TEXT    NOT NULL,
	route  TEXT    NOT NULL, -- empty: several
	filter TEXT,             -- of the messages that were meant, as JSON
	count  INTEGER NOT NULL, -- messages changed
	note   TEXT    NOT NULL DEFAULT ''
) STRICT;

-- Which messages each consumer has handled.
CREATE TABLE postrider_inbox (
	consumer   TEXT    NOT NULL,
	id         BLOB    NOT NULL,
	handled_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
	PRIMARY KEY (consumer, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX postrider_inbox_handled ON postrider_inbox (consumer, handled_at);
