-- Revenue is cents_high * 2^32 + cents_low, so that no sum of amounts of 64 bits
-- can overflow.
CREATE TABLE IF NOT EXISTS analytics_minutes (
    minute     TEXT    PRIMARY KEY, -- ISO 8601, UTC, to the minute
    orders     INTEGER NOT NULL,
    cents_high INTEGER NOT NULL,
    cents_low  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS analytics_customers (
    customer_id TEXT    PRIMARY KEY,
    orders      INTEGER NOT NULL,
    cents_high  INTEGER NOT NULL,
    cents_low   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
