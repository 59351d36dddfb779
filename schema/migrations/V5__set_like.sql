-- Sets an edge to liked or not. Idempotent: a call that changes nothing writes nothing. Returns whether it changed
-- the edge, the edge's state, and its op (null when there is no such edge).
--
-- A flip is written in the same transaction, and only if the edge changed. Its `was` is exact whoever else writes:
-- the update's condition is checked on the newest row, under its lock, so it was the opposite; and a like that
-- inserts found no edge, which is not liked. An unlike inserts only where its edge was removed since the first look;
-- that is no flip, and op 0 tells it. The op of an update is drawn under the lock: ops rise in commit order.
--
-- A generic plan, since planning for one of the edges' leaves takes longer than finding the leaf at run time.
CREATE FUNCTION fencepost.set_like(
    item_id bigint, user_id bigint, OUT changed boolean, INOUT liked boolean, OUT op bigint
)
    LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    now_liked boolean;
BEGIN
    SELECT edge.liked, edge.op INTO now_liked, set_like.op
    FROM fencepost.edges AS edge
    WHERE edge.item_id = set_like.item_id
        AND edge.bucket = fencepost.bucket(set_like.user_id)
        AND edge.user_id = set_like.user_id;
    changed := coalesce(now_liked, false) IS DISTINCT FROM set_like.liked;
    IF NOT changed THEN
        RETURN;
    END IF;

    WITH flip AS (
        INSERT INTO fencepost.edges AS edge (item_id, bucket, user_id, liked, op, at)
        VALUES (
            set_like.item_id, fencepost.bucket(set_like.user_id), set_like.user_id, set_like.liked,
            CASE WHEN set_like.liked THEN nextval('fencepost.op') ELSE 0 END, clock_timestamp()
        )
        ON CONFLICT (item_id, bucket, user_id) DO UPDATE
        SET liked = excluded.liked, op = nextval('fencepost.op'), at = clock_timestamp()
        WHERE edge.liked <> excluded.liked
        RETURNING edge.*
    )
    INSERT INTO fencepost.outbox (at, item_id, user_id, op, was, liked)
    SELECT at, item_id, user_id, op, NOT liked, liked FROM flip WHERE op > 0
    RETURNING op INTO set_like.op;
    changed := found;
    IF NOT changed THEN
        SELECT edge.op INTO set_like.op
        FROM fencepost.edges AS edge
        WHERE edge.item_id = set_like.item_id
            AND edge.bucket = fencepost.bucket(set_like.user_id)
            AND edge.user_id = set_like.user_id;
    END IF;
END
$$;
