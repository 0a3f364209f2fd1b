CREATE TABLE IF NOT EXISTS orders (
    id              TEXT    PRIMARY KEY,
    customer_id     TEXT    NOT NULL,
    amount_cents    INTEGER NOT NULL CHECK (amount_cents > 0),
    created_at      TEXT    NOT NULL, -- ISO 8601, UTC
    -- what the client called its request; NULL for none
    idempotency_key TEXT    UNIQUE
) STRICT;
