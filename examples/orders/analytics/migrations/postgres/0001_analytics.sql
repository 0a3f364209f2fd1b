-- Without parameters PostgreSQL runs this script as one transaction. The lock
-- makes services that start at the same time wait for each other.
SELECT pg_advisory_xact_lock(hashtext('postrider example: analytics'));

-- Revenue is cents_high * 2^32 + cents_low, so that no sum of amounts of 64 bits
-- can overflow.
CREATE TABLE IF NOT EXISTS analytics_minutes (
    minute     text COLLATE "C" PRIMARY KEY, -- ISO 8601, UTC, to the minute
    orders     bigint NOT NULL,
    cents_high bigint NOT NULL,
    cents_low  bigint NOT NULL
);

CREATE TABLE IF NOT EXISTS analytics_customers (
    customer_id text COLLATE "C" PRIMARY KEY,
    orders      bigint NOT NULL,
    cents_high  bigint NOT NULL,
    cents_low   bigint NOT NULL
);
