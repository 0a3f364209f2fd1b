-- Without parameters PostgreSQL runs this script as one transaction. The lock
-- makes services that start at the same time wait for each other.
SELECT pg_advisory_xact_lock(hashtext('postrider example: orders'));

CREATE TABLE IF NOT EXISTS orders (
    id              uuid        PRIMARY KEY,
    customer_id     text        NOT NULL,
    amount_cents    bigint      NOT NULL CHECK (amount_cents > 0),
    created_at      timestamptz NOT NULL,
    -- what the client called its request; NULL for none
    idempotency_key text        UNIQUE
);
