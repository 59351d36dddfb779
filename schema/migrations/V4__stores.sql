-- The stores there are, and the life of each: a store that is registered but empty has lost its counters.
CREATE TABLE fencepost.stores (
    name text PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 100),
    generation bigint NOT NULL CHECK (generation > 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Why a counter was changed by something else than a flip.
CREATE TABLE fencepost.corrections (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item_id bigint NOT NULL,
    store text CHECK (octet_length(store) BETWEEN 1 AND 100),
    amount bigint NOT NULL CHECK (amount BETWEEN -9007199254740991 AND 9007199254740991),
    cut bigint NOT NULL CHECK (cut BETWEEN 0 AND 4503599627370495),
    reason text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);

COMMENT ON COLUMN fencepost.corrections.store IS 'The store to correct; null for every store';
COMMENT ON COLUMN fencepost.corrections.cut IS 'The window whose cut the amount was computed at';
