-- A store of counters, in the schema that the search path names. Nothing but appliers writes to it.

-- Pages keep room for the next versions of their rows, and `sum` is in no index: an update stays in its page and
-- touches no index (HOT).
CREATE TABLE counts (
    item_id bigint PRIMARY KEY,
    sum bigint NOT NULL CONSTRAINT counts_sum_in_range CHECK (sum BETWEEN -9007199254740991 AND 9007199254740991),
    count bigint NOT NULL GENERATED ALWAYS AS (greatest(sum, 0)) STORED
) WITH (fillfactor = 70);

COMMENT ON COLUMN counts.count IS 'What readers see; exact as of the fence of the item''s lane. An item without a row counts 0';
COMMENT ON COLUMN counts.sum IS 'What the totals add up to; below zero it is a debt, and the count is 0';

-- The fence of each lane, moved in the transaction that adds the lane's totals.
CREATE TABLE lanes (
    lane smallint PRIMARY KEY CHECK (lane BETWEEN 0 AND 63),
    generation bigint NOT NULL CHECK (generation > 0),
    epoch bigint NOT NULL CHECK (epoch >= 0),
    window_id bigint NOT NULL CHECK (window_id >= 0),
    as_of bigint NOT NULL,
    kind text NOT NULL CHECK (kind IN ('whole', 'partial', 'incomplete')),
    base_cut bigint NOT NULL CHECK (base_cut >= 0)
) WITH (fillfactor = 10);

COMMENT ON COLUMN lanes.as_of IS 'As of when the lane''s counts are exact, in microseconds since 1970';

-- What stood in a counter that would have gone beyond 2^53; it was counted on from zero.
CREATE TABLE aside (
    item_id bigint,
    window_id bigint,
    sum bigint NOT NULL,
    PRIMARY KEY (item_id, window_id)
);
