-- The messages of one shard, in the order of their commits. Append only.
-- AUTOINCREMENT: a number is never used twice.
CREATE TABLE postrider_log_{shard} (
	seq          INTEGER PRIMARY KEY AUTOINCREMENT,
	id           BLOB    NOT NULL,
	topic        TEXT    NOT NULL,
	key          TEXT    NOT NULL,
	type         TEXT    NOT NULL,
	payload      BLOB    NOT NULL,
	content_type TEXT    NOT NULL,
	headers      TEXT    NOT NULL, -- a JSON object
	not_before   INTEGER,
	expires      INTEGER,
	created_at   INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
) STRICT;
