//! One edge at a time.

use std::thread;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::database::{Answer, Database, set_like};

#[test]
fn a_call_that_changes_nothing_writes_nothing() {
    let database = Database::migrated("set_like_idempotent");
    let mut client = database.client();
    for liked in [true, false, true] {
        let op_before = database.last_op();
        let first = set_like(&mut client, 42, 7, liked);
        assert_eq!((first.changed, first.liked), (true, liked));
        assert!(first.op > Some(op_before));
        let op_after = database.last_op();
        assert_eq!(set_like(&mut client, 42, 7, liked), Answer { changed: false, ..first });
        assert_eq!(database.last_op(), op_after, "a call that changes nothing draws no op");
    }
    assert_eq!(database.amounts(42), [1, -1, 1]);
    database.assert_outbox_equals_edges();
}

#[test]
fn an_unlike_of_what_was_never_liked_leaves_no_trace() {
    let database = Database::migrated("set_like_absent");
    let mut client = database.client();
    assert_eq!(set_like(&mut client, 42, 7, false), Answer { changed: false, liked: false, op: None });
    let rows: i64 = client
        .query_one(
            "SELECT (SELECT count(*) FROM fencepost.edges) + (SELECT count(*) FROM fencepost.outbox)",
            &[],
        )
        .unwrap()
        .get(0);
    assert_eq!((rows, database.last_op()), (0, 0));
}

#[test]
fn of_two_calls_at_once_exactly_one_changes_the_edge() {
    let database = Database::migrated("set_like_race");
    // Of a new edge, then of one that is there.
    for (liked, amounts) in [(true, vec![1]), (false, vec![1, -1]), (true, vec![1, -1, 1])] {
        let mut first = database.client();
        let mut transaction = first.transaction().unwrap();
        let changed = set_like(&mut transaction, 42, 7, liked);
        assert!(changed.changed);
        thread::scope(|threads| {
            let second = threads.spawn(|| set_like(&mut database.client(), 42, 7, liked));
            database.wait_for_waiters(1);
            transaction.commit().unwrap();
            assert_eq!(second.join().unwrap(), Answer { changed: false, ..changed });
        });
        assert_eq!(database.amounts(42), amounts);
        database.assert_outbox_equals_edges();
    }
}

#[test]
fn a_rollback_leaves_nothing_and_whoever_waited_changes_the_edge() {
    let database = Database::migrated("set_like_rollback");
    for (liked, amounts) in [(true, vec![1]), (false, vec![1, -1])] {
        let mut first = database.client();
        let mut transaction = first.transaction().unwrap();
        assert!(set_like(&mut transaction, 42, 7, liked).changed);
        thread::scope(|threads| {
            let second = threads.spawn(|| set_like(&mut database.client(), 42, 7, liked));
            database.wait_for_waiters(1);
            transaction.rollback().unwrap();
            assert!(second.join().unwrap().changed);
        });
        assert_eq!(database.amounts(42), amounts);
        database.assert_outbox_equals_edges();
    }
}

#[test]
fn a_transaction_held_open_delays_nobody_elses_flips() {
    let database = Database::migrated("set_like_held_open");
    let mut first = database.client();
    let mut held = first.transaction().unwrap();
    let early = set_like(&mut held, 42, 7, true);
    let late = set_like(&mut database.client(), 42, 8, true);
    assert!(early.op < late.op);
    assert_eq!(database.amounts(42), [1]);
    held.commit().unwrap();
    assert_eq!(database.amounts(42), [1, 1]);
    database.assert_outbox_equals_edges();
}

#[test]
fn an_edge_that_was_removed_by_hand_counts_again() {
    let database = Database::migrated("set_like_removed");
    let mut client = database.client();
    for liked in [true, false] {
        assert!(set_like(&mut client, 42, 7, liked).changed);
    }
    assert_eq!(client.execute("DELETE FROM fencepost.edges", &[]).unwrap(), 1);
    assert!(set_like(&mut client, 42, 7, true).changed);
    assert_eq!(database.amounts(42), [1, -1, 1]);
    database.assert_outbox_equals_edges();
}

#[test]
fn an_edge_that_is_removed_while_it_is_unliked_is_no_flip() {
    let database = Database::migrated("set_like_removed_meanwhile");
    let mut client = database.client();
    assert!(set_like(&mut client, 42, 7, true).changed);
    let mut removal = client.transaction().unwrap();
    assert_eq!(removal.execute("DELETE FROM fencepost.edges", &[]).unwrap(), 1);
    thread::scope(|threads| {
        let unlike = threads.spawn(|| set_like(&mut database.client(), 42, 7, false));
        database.wait_for_waiters(1);
        removal.commit().unwrap();
        assert_eq!(unlike.join().unwrap(), Answer { changed: false, liked: false, op: Some(0) });
    });
    assert_eq!(database.amounts(42), [1]);
    let again = set_like(&mut client, 42, 7, true);
    assert!(again.changed);
    assert_eq!(database.amounts(42), [1, 1]);
}

#[test]
fn flips_tell_each_edges_history_whoever_writes() {
    let database = Database::migrated("set_like_random");
    thread::scope(|threads| {
        for number in 0..8 {
            let database = &database;
            threads.spawn(move || {
                let mut random = StdRng::seed_from_u64(number);
                let mut client = database.client();
                for _ in 0..300 {
                    if random.random_bool(0.7) {
                        set_like(
                            &mut client,
                            random.random_range(1..4),
                            random.random_range(1..4),
                            random.random(),
                        );
                    } else {
                        let n = random.random_range(1..10);
                        let (items, users): (Vec<i64>, Vec<i64>) =
                            (0..n).map(|_| (random.random_range(1..4), random.random_range(1..4))).unzip();
                        let likes: Vec<bool> = (0..n).map(|_| random.random()).collect();
                        client
                            .execute("SELECT fencepost.set_likes($1, $2, $3)", &[&items, &users, &likes])
                            .unwrap();
                    }
                }
            });
        }
    });
    assert!(database.last_op() > 500, "the calls hardly changed anything");
    database.assert_outbox_equals_edges();
}
