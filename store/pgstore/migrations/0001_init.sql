-- postrider:compatible_from 1

-- What the log takes. Domains, because a table's own CHECK costs several times
-- as much: the server reads its expression anew for every INSERT. A refusal
-- shows the constraint's name, which says what is wrong.
CREATE DOMAIN {{.Schema}}.message_time    AS timestamptz CONSTRAINT "a time is finite" CHECK (pg_catalog.isfinite(value));
CREATE DOMAIN {{.Schema}}.message_topic   AS text  CONSTRAINT "a topic has 1 to 255 bytes" CHECK (value <> '' AND pg_catalog.octet_length(value) <= 255);
CREATE DOMAIN {{.Schema}}.message_type    AS text  CONSTRAINT "a type or content type has at most 255 bytes" CHECK (pg_catalog.octet_length(value) <= 255);
CREATE DOMAIN {{.Schema}}.message_headers AS json  CONSTRAINT "headers are one JSON object" CHECK (pg_catalog.json_typeof(value) = 'object');
CREATE DOMAIN {{.Schema}}.message_payload AS bytea CONSTRAINT "a payload has at most 16777216 bytes" CHECK (pg_catalog.octet_length(value) <= 16777216);
-- A program that works a key's shard out itself names this type when it
-- inserts: where the number of shards is another one, there is no such type.
CREATE DOMAIN {{.Schema}}.key_of_{{len .Shards}}_shards AS text CONSTRAINT "a key has at most 1024 bytes" CHECK (pg_catalog.octet_length(value) <= 1024);

-- The log: one append-only table for each shard. Nothing in it is updated, and
-- its only index is the primary key, so that enqueueing stays cheap.
--
-- A row's number must be drawn after its transaction has an id: readers rely on
-- it to tell when a missing number can no longer appear. The default of seq
-- makes that a data dependency, which holds for every form of INSERT and for
-- COPY, whatever order the server computes defaults in.
--
-- xid is the row's top-level transaction, with which a reader that needs
-- several statements for one pass tells what the first of them could see.
--
-- When old messages have been deleted, vacuum gives no room back to the system,
-- for which it would lock inserts out for a moment, and queries on standbys: the
-- next messages take it. How often it comes is as everywhere else, since other
-- settings measured no better.
{{range .Shards}}
CREATE SEQUENCE {{$.Schema}}.log_{{.}}_seq AS bigint INCREMENT 1 MINVALUE 1 START 1 CACHE 1 NO CYCLE;

CREATE TABLE {{$.Schema}}.log_{{.}} (
	seq          bigint NOT NULL PRIMARY KEY
		DEFAULT nextval(CASE WHEN pg_catalog.pg_current_xact_id() IS NOT NULL THEN '{{$.SchemaLiteral}}.log_{{.}}_seq'::pg_catalog.regclass END),
	xid          xid8   NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
	id           uuid   NOT NULL,
	created_at   {{$.Schema}}.message_time    NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	not_before   {{$.Schema}}.message_time,
	expires      {{$.Schema}}.message_time,
	topic        {{$.Schema}}.message_topic   NOT NULL,
	key          {{$.Schema}}.key_of_{{len $.Shards}}_shards NOT NULL DEFAULT '',
	type         {{$.Schema}}.message_type    NOT NULL DEFAULT '',
	content_type {{$.Schema}}.message_type    NOT NULL DEFAULT 'application/json',
	headers      {{$.Schema}}.message_headers,
	payload      {{$.Schema}}.message_payload NOT NULL
) WITH (vacuum_truncate = off, toast.vacuum_truncate = off);
ALTER SEQUENCE {{$.Schema}}.log_{{.}}_seq OWNED BY {{$.Schema}}.log_{{.}}.seq;
{{end}}
-- How far each route has read each shard. token fences: whoever settles must
-- still find its own. unsettled is what at or below pos has no outcome yet:
-- numbers handed out, and numbers that were missing when their turn came.
CREATE TABLE {{.Schema}}.cursor (
	route       text           NOT NULL,
	shard       integer        NOT NULL,
	pos         bigint         NOT NULL CHECK (pos >= 0),
	unsettled   int8multirange NOT NULL DEFAULT '{}',
	token       uuid           NOT NULL,
	owner       text           NOT NULL,
	lease_until timestamptz    NOT NULL,
	topics      text[]         NOT NULL,
	topics_from bigint         NOT NULL, -- the number above which topics holds
	started     bigint         NOT NULL, -- the number above which the route began
	deaths      integer        NOT NULL DEFAULT 0 CHECK (deaths >= 0), -- leases in a row that ended neither by a close nor after they had proved well
	seen        xid8           NOT NULL DEFAULT '0', -- transactions from here on were not seen when pos was written
	checked     bigint         NOT NULL DEFAULT 0, -- no transaction from checked_xid on was given a number up to this one
	checked_xid xid8           NOT NULL DEFAULT '0',
	restored    bigint         NOT NULL DEFAULT 0, -- rows up to here came with a dump: their xid is another cluster's
	created_at  timestamptz    NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	PRIMARY KEY (route, shard)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Missing numbers that stay missing for long (a transaction that stays open),
-- apart from cursor so that its row stays small. Written when they change.
CREATE TABLE {{.Schema}}.gap (
	route   text           NOT NULL,
	shard   integer        NOT NULL,
	id      bigint         NOT NULL, -- names a group found at one time
	numbers int8multirange NOT NULL,
	PRIMARY KEY (route, shard, id)
);

-- One row for each lease that is loaded. A crash empties an unlogged table, so
-- a relay whose row is gone knows that the database may have lost commits that
-- it has already read.
CREATE UNLOGGED TABLE {{.Schema}}.mark (
	route text    NOT NULL,
	shard integer NOT NULL,
	token uuid    NOT NULL,
	PRIMARY KEY (route, shard)
);

-- Messages that wait or have ended otherwise than sent. arrival orders the
-- messages of a key. A blocked one keeps only its number and is read from the
-- log when its turn comes; the others carry a copy of the message. due_at is
-- when a row is to be handed out: -infinity at once, null not by the clock.
--
-- closes: the message stands in its key's way, and the relay that holds the
-- shard counts it so. When an operator discards it, or releases its key, that
-- stays as it is until the relay has heard of it, for which the row is due; so a
-- failed or discarded one that is due is in nobody's way. Whoever changes rows
-- locks the cursor's row first.
CREATE SEQUENCE {{.Schema}}.parked_arrival_seq AS bigint;
CREATE TABLE {{.Schema}}.parked (
	route        text        NOT NULL,
	shard        integer     NOT NULL CHECK (shard BETWEEN 0 AND {{len .Shards}} - 1),
	seq          bigint      NOT NULL,
	arrival      bigint      NOT NULL DEFAULT nextval('{{.SchemaLiteral}}.parked_arrival_seq'::pg_catalog.regclass),
	state        text        NOT NULL CHECK (state IN ('pending', 'retrying', 'blocked', 'scheduled', 'failed', 'expired', 'discarded')),
	closes       boolean     NOT NULL DEFAULT false CHECK (NOT closes OR key <> '' AND state NOT IN ('scheduled', 'expired')),
	due_at       timestamptz CHECK (CASE
		WHEN state IN ('pending', 'retrying', 'scheduled') THEN due_at IS NOT NULL
		WHEN state = 'blocked' THEN due_at IS NULL AND closes OR due_at IS NOT NULL AND due_at = '-infinity'
		ELSE due_at IS NULL OR due_at = '-infinity' AND closes END),
	replay       bigint      NOT NULL DEFAULT 0, -- not 0: it is sent again, under this number
	attempts     integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
	error        text        NOT NULL DEFAULT '',
	parked_at    timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	changed_at   timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	key          text        NOT NULL,
	id           uuid        NOT NULL,
	created_at   {{.Schema}}.message_time NOT NULL,
	not_before   {{.Schema}}.message_time,
	expires      {{.Schema}}.message_time,
	topic        text        NOT NULL,
	type         text        NOT NULL,
	content_type text        NOT NULL,
	headers      json,
	payload      bytea,
	PRIMARY KEY (route, shard, seq)
);
ALTER SEQUENCE {{.Schema}}.parked_arrival_seq OWNED BY {{.Schema}}.parked.arrival;
CREATE INDEX parked_due ON {{.Schema}}.parked (route, shard, due_at, arrival) WHERE due_at IS NOT NULL;
CREATE INDEX parked_blocked ON {{.Schema}}.parked (route, shard, key, arrival) WHERE state = 'blocked';
CREATE INDEX parked_closing ON {{.Schema}}.parked (route, shard, key) WHERE closes AND state <> 'blocked';
-- For operators: how many there are of each state, and which; and by the message's id.
CREATE INDEX parked_state ON {{.Schema}}.parked (route, state, shard, seq);
CREATE INDEX parked_id ON {{.Schema}}.parked (id);

-- How far each shard's log was cleaned. No message is left at or below low, nor
-- will one appear there; between low and done only what was too young, or what
-- some route still needed, when it was looked at. A shard without a row was
-- never cleaned.
CREATE TABLE {{.Schema}}.retention (
	shard      integer     NOT NULL PRIMARY KEY,
	low        bigint      NOT NULL CHECK (low >= 0),
	done       bigint      NOT NULL CHECK (done >= low),
	changed_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
) WITH (fillfactor = 10);

-- The relays at work, so that they can divide the shards among them. A relay
-- that shows no sign of life is gone at expires. Nothing depends on a row but
-- who takes what: a crash empties the table, and each relay writes its own again.
CREATE UNLOGGED TABLE {{.Schema}}.member (
	owner     text        NOT NULL PRIMARY KEY,
	routes    text[]      NOT NULL,
	joined_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	expires   timestamptz NOT NULL
) WITH (fillfactor = 50);

-- What an operator has said of a route. A route without a row is not paused.
CREATE TABLE {{.Schema}}.route (
	name        text        NOT NULL PRIMARY KEY,
	paused_at   timestamptz, -- null: it is not paused
	paused_by   text        NOT NULL DEFAULT '',
	paused_note text        NOT NULL DEFAULT '',
	updated_at  timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);

-- What operators did, each written in the transaction that did it.
CREATE TABLE {{.Schema}}.audit (
	id     bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	at     timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	who    text        NOT NULL,
	action text        NOT NULL,
	route  text        NOT NULL, -- empty: several
	filter json,                 -- of the messages that were meant
	count  bigint      NOT NULL, -- messages changed
	note   text        NOT NULL DEFAULT ''
);

-- What consumers have handled.
CREATE TABLE {{.Schema}}.inbox (
	consumer   text        NOT NULL,
	id         uuid        NOT NULL,
	handled_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	PRIMARY KEY (consumer, id)
);
CREATE INDEX inbox_handled ON {{.Schema}}.inbox (consumer, handled_at);

-- Whether a route with these patterns takes the topic: "*" matches within one
-- dot-separated part, "**" any rest, everything else itself.
CREATE FUNCTION {{.Schema}}.takes_topic(patterns text[], topic text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '**' = ANY (patterns) OR topic = ANY (patterns) OR EXISTS (
	SELECT FROM pg_catalog.unnest(patterns) AS p
	WHERE pg_catalog.strpos(p, '*') > 0 AND topic ~ ('^(?:' || pg_catalog.replace(pg_catalog.replace(
		pg_catalog.regexp_replace(p, '([][\\.+?(){}|^$])', '\\\1', 'g'), '**', '.{0,}'), '*', '[^.]{0,}') || ')$'));

-- How each message stands on each route that takes it, for people and SQL
-- clients. Name route, shard and a range of seq where the log is large. A
-- message is sent if its number was read, has an outcome, and is not parked. Of
-- numbers up to topics_from it is unknown whether the route took the topic then.
CREATE VIEW {{.Schema}}.messages AS
{{- range $i, $shard := .Shards}}{{if $i}}
UNION ALL{{end}}
SELECT c.route, c.shard, l.seq,
	CASE WHEN p.state IS NOT NULL THEN p.state
		WHEN l.seq > c.pos OR c.unsettled @> l.seq
			OR EXISTS (SELECT FROM {{$.Schema}}.gap AS g WHERE g.route = c.route AND g.shard = c.shard AND g.numbers @> l.seq) THEN 'pending'
		WHEN l.seq > c.topics_from THEN 'sent'
		ELSE 'unknown' END AS state,
	coalesce(p.attempts, 0) AS attempts, coalesce(p.error, '') AS error, p.due_at, p.changed_at,
	l.id, l.topic, l.key, l.type, l.content_type, l.created_at, l.not_before, l.expires, l.headers, l.payload
FROM {{$.Schema}}.cursor AS c
JOIN {{$.Schema}}.log_{{$shard}} AS l ON l.seq > c.started
LEFT JOIN {{$.Schema}}.parked AS p ON p.route = c.route AND p.shard = c.shard AND p.seq = l.seq
WHERE c.shard = {{$shard}} AND (p.state IS NOT NULL OR {{$.Schema}}.takes_topic(c.topics, l.topic))
UNION ALL
SELECT p.route, p.shard, p.seq, p.state, p.attempts, p.error, p.due_at, p.changed_at,
	p.id, p.topic, p.key, p.type, p.content_type, p.created_at, p.not_before, p.expires, p.headers, p.payload
FROM {{$.Schema}}.parked AS p
WHERE p.shard = {{$shard}} AND NOT EXISTS (SELECT FROM {{$.Schema}}.log_{{$shard}} AS l WHERE l.seq = p.seq)
{{- end}};

-- The shard of a key, for ever. Any language can compute it: the first four
-- bytes of SHA-256 of the key in UTF-8, without the sign bit, modulo the number
-- of shards. An empty key promises no order and takes any shard.
--
-- In this and the next functions every type and operator has its schema: the
-- caller's search_path may have others of the same names. (A SET clause would
-- do it too, at a cost for every call.)
CREATE FUNCTION {{.Schema}}.shard_of(key text) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $shard$ -- in SQL it would take ten times as long
DECLARE
	h pg_catalog.bytea;
BEGIN
	IF key OPERATOR(pg_catalog.=) '' THEN
		RETURN pg_catalog.floor(pg_catalog.random() OPERATOR(pg_catalog.*) {{len .Shards}}::pg_catalog.float8);
	END IF;
	h := pg_catalog.sha256(pg_catalog.convert_to(key, 'UTF8'));
	RETURN pg_catalog.int4mod(
		pg_catalog.int4shl(pg_catalog.int4and(pg_catalog.get_byte(h, 0), 127), 24) OPERATOR(pg_catalog.|) pg_catalog.int4shl(pg_catalog.get_byte(h, 1), 16)
			OPERATOR(pg_catalog.|) pg_catalog.int4shl(pg_catalog.get_byte(h, 2), 8) OPERATOR(pg_catalog.|) pg_catalog.get_byte(h, 3),
		{{len .Shards}});
END
$shard$;

-- Enqueues one message in the caller's transaction and returns its id.
CREATE FUNCTION {{.Schema}}.enqueue(
	topic        text,
	payload      bytea,
	key          text        DEFAULT '',
	type         text        DEFAULT '',
	headers      json        DEFAULT NULL,
	content_type text        DEFAULT 'application/json',
	not_before   timestamptz DEFAULT NULL,
	expires      timestamptz DEFAULT NULL,
	id           uuid        DEFAULT pg_catalog.gen_random_uuid()
) RETURNS uuid LANGUAGE plpgsql VOLATILE AS $enqueue$
#variable_conflict use_variable
DECLARE
	shard pg_catalog.int4 := {{.Schema}}.shard_of(coalesce(key, ''));
BEGIN
	CASE
{{- range .Shards}}
	WHEN shard OPERATOR(pg_catalog.=) {{.}} THEN
		INSERT INTO {{$.Schema}}.log_{{.}} (id, topic, key, type, payload, content_type, headers, not_before, expires)
		VALUES (id, topic, key, type, payload, content_type, headers, not_before, expires);
{{- end}}
	END CASE;
	RETURN id;
END
$enqueue$;

-- Serialises the transactions that enqueue under the same keys, until they end.
-- The locks are taken in one order by everybody, so they cannot deadlock among
-- themselves.
CREATE FUNCTION {{.Schema}}.lock_keys(VARIADIC keys text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $lock$
DECLARE
	lock pg_catalog.int8;
BEGIN
	FOR lock IN
		SELECT DISTINCT pg_catalog.concat('x', pg_catalog.substr(pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(
			pg_catalog.concat({{.SchemaText}}, '/', k), 'UTF8')), 'hex'), 1, 16))::bit(64)::pg_catalog.int8 AS h
		FROM pg_catalog.unnest(keys) AS k ORDER BY h
	LOOP
		PERFORM pg_catalog.pg_advisory_xact_lock(lock);
	END LOOP;
END
$lock$;

-- Functions and types are for everybody unless it is said otherwise.
REVOKE ALL ON FUNCTION {{.Schema}}.enqueue, {{.Schema}}.lock_keys, {{.Schema}}.shard_of, {{.Schema}}.takes_topic FROM PUBLIC;
REVOKE ALL ON TYPE {{.Schema}}.message_time, {{.Schema}}.message_topic, {{.Schema}}.message_type, {{.Schema}}.message_headers,
	{{.Schema}}.message_payload, {{.Schema}}.key_of_{{len .Shards}}_shards FROM PUBLIC;
