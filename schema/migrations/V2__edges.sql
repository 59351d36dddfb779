-- The truth: one row per (item, user).

-- Versions of edges. Cached values would let a session draw a lower op later than another drew a higher one, and the
-- ops of an edge must rise in commit order.
CREATE SEQUENCE fencepost.op MAXVALUE 1152921504606846975 CACHE 1;

-- Columns lie widest first, so that a row has no padding.
CREATE TABLE fencepost.edges (
    item_id bigint NOT NULL,
    user_id bigint NOT NULL,
    op bigint NOT NULL CHECK (op >= 0),
    at timestamptz NOT NULL,
    bucket smallint NOT NULL CHECK (bucket = fencepost.bucket(user_id)),
    liked boolean NOT NULL,
    PRIMARY KEY (item_id, bucket, user_id)
) PARTITION BY HASH (item_id, bucket);

COMMENT ON COLUMN fencepost.edges.op IS 'Version: of its last flip, or 0 when it has had none';
COMMENT ON COLUMN fencepost.edges.at IS 'When it last changed, by the database''s clock. A label';

-- The bucket is in the partition key so that a viral item's writes spread over all leaves. Replica identity does not
-- descend from the parent, and who reads the table by logical replication needs the row as it was.
DO $$
BEGIN
    FOR leaf IN 0..15 LOOP
        EXECUTE format(
            'CREATE TABLE fencepost.edges_%s PARTITION OF fencepost.edges FOR VALUES WITH (MODULUS 16, REMAINDER %s)',
            leaf, leaf
        );
        EXECUTE format('ALTER TABLE fencepost.edges_%s REPLICA IDENTITY FULL', leaf);
    END LOOP;
END
$$;
