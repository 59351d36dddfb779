-- Sets many edges, as `set_like` does each, and returns those that changed. The three arrays are of one length. Where
-- an edge is named more than once, its last state counts: it changes once or not at all.
--
-- Edges are locked one by one in the order of their key, those that are there and those that are new alike, so that
-- calls that run at once wait for each other and never deadlock.
CREATE FUNCTION fencepost.set_likes(items bigint[], users bigint[], likes boolean[])
    RETURNS TABLE (item_id bigint, user_id bigint, liked boolean, op bigint)
    LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    IF cardinality(items) IS DISTINCT FROM cardinality(users)
        OR cardinality(items) IS DISTINCT FROM cardinality(likes) THEN
        RAISE EXCEPTION 'set_likes: % items, % users and % likes; pass arrays of one length',
            cardinality(items), cardinality(users), cardinality(likes)
            USING ERRCODE = 'array_subscript_error';
    END IF;

    RETURN QUERY
    WITH wanted AS MATERIALIZED (
        SELECT DISTINCT ON (item_id, bucket, user_id) item_id, bucket, user_id, liked
        FROM unnest(items, users, likes) WITH ORDINALITY AS call (item_id, user_id, liked, nth),
            fencepost.bucket(user_id) AS bucket
        ORDER BY item_id, bucket, user_id, nth DESC
    ), changing AS MATERIALIZED (
        SELECT wanted.*
        FROM wanted
        LEFT JOIN fencepost.edges AS edge USING (item_id, bucket, user_id)
        WHERE coalesce(edge.liked, false) IS DISTINCT FROM wanted.liked
        ORDER BY item_id, bucket, user_id
    ), flip AS (
        INSERT INTO fencepost.edges AS edge (item_id, bucket, user_id, liked, op, at)
        SELECT
            item_id, bucket, user_id, liked,
            CASE WHEN liked THEN nextval('fencepost.op') ELSE 0 END, clock_timestamp()
        FROM changing
        ON CONFLICT (item_id, bucket, user_id) DO UPDATE
        SET liked = excluded.liked, op = nextval('fencepost.op'), at = clock_timestamp()
        WHERE edge.liked <> excluded.liked
        RETURNING edge.*
    ), sent AS (
        INSERT INTO fencepost.outbox (at, item_id, user_id, op, was, liked)
        SELECT at, item_id, user_id, op, NOT liked, liked FROM flip WHERE op > 0
    )
    SELECT item_id, user_id, liked, op FROM flip WHERE op > 0;
END
$$;
