-- What changes a count, in the transaction that changed it. Read from the write-ahead log alone, so it has no index.
CREATE TABLE fencepost.outbox (
    at timestamptz NOT NULL,
    item_id bigint NOT NULL,
    user_id bigint,
    op bigint,
    was boolean,
    liked boolean,
    correction_id bigint,
    store text,
    amount bigint,
    cut bigint,
    -- Logged rows cannot be taken back: one that the relay cannot read would have to be quarantined.
    CONSTRAINT flip_or_correction CHECK (
        (row(user_id, op, was, liked) IS NOT NULL AND row(correction_id, store, amount, cut) IS NULL)
        OR (row(correction_id, amount, cut) IS NOT NULL AND row(user_id, op, was, liked) IS NULL)
    ),
    CONSTRAINT op_in_range CHECK (op BETWEEN 1 AND 1152921504606846975),
    CONSTRAINT amount_in_range CHECK (amount BETWEEN -9007199254740991 AND 9007199254740991),
    CONSTRAINT cut_in_range CHECK (cut BETWEEN 0 AND 4503599627370495),
    CONSTRAINT store_name_length CHECK (octet_length(store) BETWEEN 1 AND 100)
) PARTITION BY RANGE (at);

COMMENT ON COLUMN fencepost.outbox.at IS 'When the row was written, by the database''s clock. A label';
COMMENT ON COLUMN fencepost.outbox.store IS 'The store to correct; null for every store';
COMMENT ON COLUMN fencepost.outbox.cut IS 'The window whose cut a correction was computed at';

-- Makes the partitions that are missing from yesterday to so many days ahead, days in UTC, and returns how many it made.
-- Yesterday's, since the clock may step back over midnight.
--
-- There is no default partition, since it would forbid to detach concurrently. A partition is made beside the table and
-- attached: made in place it would lock out writers. The lock lets writers pass, and callers one at a time.
CREATE FUNCTION fencepost.make_outbox_partitions(days integer) RETURNS integer
    -- Bounds are written as text and read back, which some zones' abbreviations do not survive.
    LANGUAGE plpgsql SET timezone = 'UTC' SET datestyle = 'ISO' AS $$
DECLARE
    today CONSTANT date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    made integer := 0;
    partition text;
BEGIN
    LOCK TABLE fencepost.outbox IN SHARE UPDATE EXCLUSIVE MODE;
    FOR day IN -1..days LOOP
        partition := format('outbox_%s', to_char(today + day, 'YYYYMMDD'));
        CONTINUE WHEN EXISTS (
            SELECT FROM pg_inherits
            JOIN pg_class ON pg_class.oid = inhrelid
            WHERE inhparent = 'fencepost.outbox'::regclass AND relname = partition
        );
        EXECUTE format('CREATE TABLE fencepost.%I (LIKE fencepost.outbox INCLUDING ALL)', partition);
        EXECUTE format(
            'ALTER TABLE fencepost.outbox ATTACH PARTITION fencepost.%I FOR VALUES FROM (%L) TO (%L)',
            partition,
            (today + day)::timestamp AT TIME ZONE 'UTC',
            (today + day + 1)::timestamp AT TIME ZONE 'UTC'
        );
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;
