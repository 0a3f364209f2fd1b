-- Roles for the schema {{.Schema}}, which is Postrider's alone. Nobody logs in with
-- them: grant them to the roles that do, such as GRANT {{.Writer}} TO shop.
--
-- For a superuser, or who may create roles and owns the schema. Safe to run again,
-- and to be run again after every migration: it takes away what is not needed.
BEGIN;
{{.OwnNames}};
SET LOCAL lock_timeout = '500ms'; -- changing an owner must keep nobody waiting: if it fails, run it again

DO $roles$
DECLARE
	role text;
	one  record;
BEGIN
	IF to_regtype('{{.KeyType}}') IS NULL THEN
		RAISE 'schema % has no tables, or not {{len .Logs}} shards: print this with --shards', '{{.SchemaLiteral}}';
	END IF;
	FOREACH role IN ARRAY ARRAY[{{range $i, $r := .Literals}}{{if $i}}, {{end}}{{$r}}{{end}}] LOOP
		IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
			EXECUTE format('CREATE ROLE %I NOLOGIN', role);
		END IF;
	END LOOP;
	-- Everything is the owner's, so that its default privileges hold for all.
	role := {{index .Literals 0}};
	IF NOT pg_has_role(role, 'MEMBER') THEN
		EXECUTE format('GRANT %I TO %I', role, current_user);
	END IF;
	FOR one IN
		SELECT 'SCHEMA' AS kind, oid::regnamespace::text AS name FROM pg_namespace WHERE oid = '{{.SchemaLiteral}}'::regnamespace AND nspowner <> quote_ident(role)::regrole
		UNION ALL SELECT 'TABLE', oid::regclass::text FROM pg_class -- a column's sequence goes with it
			WHERE relnamespace = '{{.SchemaLiteral}}'::regnamespace AND relkind IN ('r', 'p', 'v') AND relowner <> quote_ident(role)::regrole
		UNION ALL SELECT 'ROUTINE', oid::regprocedure::text FROM pg_proc WHERE pronamespace = '{{.SchemaLiteral}}'::regnamespace AND proowner <> quote_ident(role)::regrole
		UNION ALL SELECT 'DOMAIN', oid::regtype::text FROM pg_type WHERE typnamespace = '{{.SchemaLiteral}}'::regnamespace AND typtype = 'd' AND typowner <> quote_ident(role)::regrole
	LOOP
		EXECUTE format('ALTER %s %s OWNER TO %I', one.kind, one.name, role);
	END LOOP;
END
$roles$;

REVOKE ALL ON SCHEMA {{.Schema}} FROM PUBLIC, {{.All}};
REVOKE ALL ON ALL TABLES IN SCHEMA {{.Schema}} FROM PUBLIC, {{.All}};
REVOKE ALL ON ALL SEQUENCES IN SCHEMA {{.Schema}} FROM PUBLIC, {{.All}};
REVOKE ALL ON ALL ROUTINES IN SCHEMA {{.Schema}} FROM PUBLIC, {{.All}};
GRANT USAGE ON SCHEMA {{.Schema}} TO {{.All}};

-- An application enqueues. It reads no message and chooses no number.
GRANT EXECUTE ON FUNCTION {{.Schema}}.enqueue, {{.Schema}}.lock_keys, {{.Schema}}.shard_of TO {{.Writer}};
GRANT INSERT (id, topic, key, type, payload, content_type, headers, not_before, expires) ON {{.LogList}} TO {{.Writer}};
GRANT USAGE ON SEQUENCE {{.SequenceList}} TO {{.Writer}};

-- A relay reads the log, keeps its own state, and deletes what is old.
GRANT SELECT, DELETE ON {{.LogList}} TO {{.Relay}};
GRANT SELECT, INSERT, UPDATE ON {{.Schema}}.cursor, {{.Schema}}.retention TO {{.Relay}};
GRANT SELECT, INSERT, UPDATE, DELETE ON {{.Schema}}.gap, {{.Schema}}.mark, {{.Schema}}.parked, {{.Schema}}.member TO {{.Relay}};
GRANT SELECT ON {{.Schema}}.meta, {{.Schema}}.route TO {{.Relay}};
GRANT SELECT ON SEQUENCE {{.SequenceList}} TO {{.Relay}};
GRANT USAGE ON SEQUENCE {{.Schema}}.parked_arrival_seq TO {{.Relay}};
GRANT EXECUTE ON FUNCTION {{.Schema}}.takes_topic TO {{.Relay}};

-- A viewer looks at everything: status, list, show, audit, and the tables.
GRANT SELECT ON ALL TABLES IN SCHEMA {{.Schema}} TO {{.Viewer}}, {{.Operator}};
GRANT SELECT ON ALL SEQUENCES IN SCHEMA {{.Schema}} TO {{.Viewer}}, {{.Operator}};
GRANT EXECUTE ON FUNCTION {{.Schema}}.takes_topic, {{.Schema}}.shard_of TO {{.Viewer}}, {{.Operator}};

-- An operator also acts on messages and routes, each time with a record of it.
GRANT INSERT, UPDATE (state, due_at, attempts, expires, changed_at, headers, payload), DELETE ON {{.Schema}}.parked TO {{.Operator}};
GRANT USAGE ON SEQUENCE {{.Schema}}.parked_arrival_seq TO {{.Operator}};
GRANT INSERT, UPDATE, DELETE ON {{.Schema}}.route TO {{.Operator}};
GRANT UPDATE (token, lease_until), DELETE ON {{.Schema}}.cursor TO {{.Operator}};
GRANT DELETE ON {{.Schema}}.gap, {{.Schema}}.mark TO {{.Operator}};
GRANT INSERT (who, action, route, filter, count, note), UPDATE (count) ON {{.Schema}}.audit TO {{.Operator}};

-- A consumer that keeps its inbox here.
GRANT SELECT, INSERT, DELETE ON {{.Schema}}.inbox TO {{.Consumer}};

-- What a later migration adds can be read until this is run again.
ALTER DEFAULT PRIVILEGES FOR ROLE {{.Owner}} IN SCHEMA {{.Schema}} GRANT SELECT ON TABLES TO {{.Relay}}, {{.Viewer}}, {{.Operator}};
ALTER DEFAULT PRIVILEGES FOR ROLE {{.Owner}} IN SCHEMA {{.Schema}} GRANT SELECT ON SEQUENCES TO {{.Relay}}, {{.Viewer}}, {{.Operator}};
ALTER DEFAULT PRIVILEGES FOR ROLE {{.Owner}} REVOKE ALL ON ROUTINES FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE {{.Owner}} REVOKE ALL ON TYPES FROM PUBLIC;
COMMIT;
