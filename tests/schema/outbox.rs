//! The outbox: what it takes, and that there is always a partition to take it.

use std::thread;

use super::database::{Database, set_like};

#[test]
fn a_row_is_a_flip_or_a_correction_that_the_relay_can_read() {
    let database = Database::migrated("outbox_shape");
    let mut client = database.client();
    let columns = "at, item_id, user_id, op, was, liked, correction_id, store, amount, cut";
    for (row, is_taken) in [
        ("1, 7, 1, false, true, NULL, NULL, NULL, NULL", true),
        ("1, NULL, NULL, NULL, NULL, 5, 'redis', -1, 100", true),
        ("1, NULL, NULL, NULL, NULL, 5, NULL, -1, 100", true),
        ("1, 7, 1, NULL, true, NULL, NULL, NULL, NULL", false),
        ("1, 7, 1, false, true, 5, NULL, NULL, NULL", false),
        ("1, 7, 1, false, true, NULL, 'redis', NULL, NULL", false),
        ("1, NULL, NULL, NULL, NULL, 5, 'redis', NULL, 100", false),
        ("1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL", false),
        ("1, NULL, NULL, NULL, NULL, 5, '', -1, 100", false),
        ("1, NULL, NULL, NULL, NULL, 5, repeat('x', 101), -1, 100", false),
        ("1, NULL, NULL, NULL, NULL, 5, 'redis', -1, 1::bigint << 52", false),
        ("1, NULL, NULL, NULL, NULL, 5, 'redis', 1::bigint << 53, 100", false),
        ("1, 7, 0, false, true, NULL, NULL, NULL, NULL", false),
        ("1, 7, 1::bigint << 60, false, true, NULL, NULL, NULL, NULL", false),
        ("NULL, 7, 1, false, true, NULL, NULL, NULL, NULL", false),
    ] {
        let insert = format!("INSERT INTO fencepost.outbox ({columns}) VALUES (clock_timestamp(), {row})");
        assert_eq!(client.batch_execute(&insert).is_ok(), is_taken, "{row}");
    }
}

#[test]
fn partitions_are_made_once_while_others_write_and_others_make_them() {
    let database = Database::migrated("outbox_partitions");
    let make = |client: &mut postgres::Client, days: i32| -> i32 {
        client.query_one("SELECT fencepost.make_outbox_partitions($1)", &[&days]).unwrap().get(0)
    };
    let mut client = database.client();
    // Midnight may have passed since the schema was made.
    assert!(make(&mut client, fencepost_schema::OUTBOX_DAYS_AHEAD) <= 1);

    let mut writer = database.client();
    let mut held = writer.transaction().unwrap();
    assert!(set_like(&mut held, 42, 7, true).changed);
    let made: i32 = thread::scope(|threads| {
        let makers: Vec<_> = (0..4)
            .map(|_| {
                threads.spawn(|| {
                    let mut client = database.client();
                    client.batch_execute("SET lock_timeout = '30s'").unwrap();
                    make(&mut client, fencepost_schema::OUTBOX_DAYS_AHEAD + 10)
                })
            })
            .collect();
        makers.into_iter().map(|maker| maker.join().unwrap()).sum()
    });
    assert!((10..=11).contains(&made), "{made}");
    held.commit().unwrap();

    client
        .batch_execute(
            "INSERT INTO fencepost.outbox (at, item_id, user_id, op, was, liked)
            SELECT date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' + day * interval '1 day',
                1, day, day + 1, false, true
            FROM generate_series(0, 24) AS day",
        )
        .unwrap();
    let default: i64 = client
        .query_one(
            "SELECT count(*) FROM pg_partitioned_table WHERE partrelid = 'fencepost.outbox'::regclass
            AND partdefid <> 0",
            &[],
        )
        .unwrap()
        .get(0);
    assert_eq!(default, 0, "a default partition forbids to detach concurrently");
}
