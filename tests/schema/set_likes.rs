//! Many edges at a time.

use std::thread;

use super::database::{Database, set_like};

type Flip = (i64, i64, bool, i64);

fn set_likes(client: &mut postgres::Client, wanted: &[(i64, i64, bool)]) -> Vec<Flip> {
    let items: Vec<i64> = wanted.iter().map(|edge| edge.0).collect();
    let users: Vec<i64> = wanted.iter().map(|edge| edge.1).collect();
    let likes: Vec<bool> = wanted.iter().map(|edge| edge.2).collect();
    let flips =
        client.query("SELECT * FROM fencepost.set_likes($1, $2, $3)", &[&items, &users, &likes]).unwrap();
    let mut flips: Vec<_> = flips
        .iter()
        .map(|row| (row.get("item_id"), row.get("user_id"), row.get("liked"), row.get("op")))
        .collect();
    flips.sort_unstable();
    flips
}

#[test]
fn the_edges_that_changed_are_returned_and_no_others() {
    let database = Database::migrated("set_likes_changed");
    let mut client = database.client();
    set_like(&mut client, 1, 1, true);
    set_like(&mut client, 1, 2, true);
    // Liked already; to be unliked; absent and unliked; new.
    let flips = set_likes(&mut client, &[(1, 1, true), (1, 2, false), (1, 3, false), (2, 1, true)]);
    let edges: Vec<_> = flips.iter().map(|(item, user, liked, _)| (*item, *user, *liked)).collect();
    assert_eq!(edges, [(1, 2, false), (2, 1, true)]);
    assert_eq!(database.last_op(), 4, "edges that do not change draw no op");
    assert!(set_likes(&mut client, &[]).is_empty());
    database.assert_outbox_equals_edges();
}

#[test]
fn of_an_edge_named_twice_the_last_state_counts() {
    let database = Database::migrated("set_likes_twice");
    let mut client = database.client();
    let flips = set_likes(
        &mut client,
        &[(1, 1, true), (1, 1, false), (1, 2, false), (1, 2, true), (1, 3, true), (1, 3, true)],
    );
    let users: Vec<_> = flips.iter().map(|(_, user, liked, _)| (*user, *liked)).collect();
    assert_eq!(users, [(2, true), (3, true)]);
    assert_eq!(database.amounts(1), [1, 1]);
    database.assert_outbox_equals_edges();
}

#[test]
fn arrays_of_different_length_or_with_nulls_are_refused() {
    let database = Database::migrated("set_likes_refused");
    let mut client = database.client();
    for (arrays, reason) in [
        ("'{1,2}', '{1}', '{t,t}'", "arrays of one length"),
        ("'{1}', '{1}', '{}'", "arrays of one length"),
        ("'{1}', NULL, '{t}'", "arrays of one length"),
        ("'{1}', '{NULL}', '{t}'", "not-null"),
        ("'{1}', '{1}', '{NULL}'", "not-null"),
    ] {
        let refusal = client.batch_execute(&format!("SELECT fencepost.set_likes({arrays})")).unwrap_err();
        let message = refusal.as_db_error().unwrap().message();
        assert!(message.contains(reason), "{arrays}: {message}");
    }
}

/// Old edges and new ones, in opposite order: neither batch may lock an edge that the other waits behind.
#[test]
fn batches_in_opposite_order_wait_for_each_other_and_never_deadlock() {
    let database = Database::migrated("set_likes_order");
    thread::scope(|threads| {
        for is_reversed in [false, true] {
            let database = &database;
            threads.spawn(move || {
                let mut client = database.client();
                for round in 0..200_i64 {
                    let mut wanted: Vec<_> = (1..=100)
                        .map(|item| (item, if item % 2 == 0 { 1 } else { round }, (round + item) % 3 > 0))
                        .collect();
                    if is_reversed {
                        wanted.reverse();
                    }
                    set_likes(&mut client, &wanted);
                }
            });
        }
    });
    assert!(database.last_op() > 10_000, "the batches hardly changed anything");
    database.assert_outbox_equals_edges();
}
