-- The messages of one shard, in the order of their commits. Append only.
-- AUTOINCREMENT: a number is never used twice. The checks refuse, whoever
-- writes, what could not be delivered; times are in the years 1 to 9999.
CREATE TABLE postrider_log_{shard} (
	seq          INTEGER PRIMARY KEY AUTOINCREMENT,
	id           BLOB    NOT NULL CHECK (length(id) = 16), -- a UUID
	topic        TEXT    NOT NULL CHECK (length(CAST(topic AS BLOB)) BETWEEN 1 AND 255 AND instr(topic, char(0)) = 0),
	key          TEXT    NOT NULL CHECK (length(CAST(key AS BLOB)) <= 1024 AND instr(key, char(0)) = 0),
	type         TEXT    NOT NULL CHECK (length(CAST(type AS BLOB)) <= 255 AND instr(type, char(0)) = 0),
	payload      BLOB    NOT NULL CHECK (length(payload) <= 16777216),
	content_type TEXT    NOT NULL CHECK (length(CAST(content_type AS BLOB)) <= 255 AND instr(content_type, char(0)) = 0),
	headers      TEXT    NOT NULL CHECK (CASE WHEN json_valid(headers) THEN json_type(headers) = 'object' ELSE 0 END),
	not_before   INTEGER CHECK (not_before BETWEEN -62135596800000000 AND 253402300799999999),
	expires      INTEGER CHECK (expires BETWEEN -62135596800000000 AND 253402300799999999),
	created_at   INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
		CHECK (created_at BETWEEN -62135596800000000 AND 253402300799999999)
) STRICT;
