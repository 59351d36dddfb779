-- Where things go. The same rule as fencepost-model's placement, frozen by its vectors: a bucket decides which
-- Kafka partition sees an edge's flips, a lane which counters move together.

-- Folds the id to 32 bits, multiplies, keeps the top 6 of the low 32 bits. The product stays below 2^63.
CREATE FUNCTION fencepost.hash6(id bigint) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((((id & 4294967295) # ((id >> 32) & 4294967295)) * 1640531527 & 4294967295) >> 26)::smallint;

CREATE FUNCTION fencepost.bucket(user_id bigint) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN fencepost.hash6(user_id);

COMMENT ON FUNCTION fencepost.bucket IS 'The bucket of a user, 0..63: an item''s edges are spread over 64 buckets';

CREATE FUNCTION fencepost.lane(item_id bigint) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN fencepost.hash6(item_id);

COMMENT ON FUNCTION fencepost.lane IS 'The lane of an item, 0..63: the counters that move together';
