//! The main job: what is committed in Postgres is counted in Redis, soon and exactly.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fencepost_model::{CutKind, placement};

use crate::harness::{Deployment, Roles, wait_until};

#[test]
fn flips_of_eight_clients_are_counted_exactly_and_soon() {
    let deployment = Deployment::new("counts");
    deployment.migrate();
    let mut up = deployment.spawn(&["up"]);
    let flips = "200000";
    let mut load = deployment.spawn(&[
        "load",
        "--flips",
        flips,
        "--clients",
        "8",
        "--items",
        "20000",
        "--retry-share",
        "0.1",
        "--unlike-share",
        "0.1",
    ]);
    let mut staleness_ms = Vec::new();
    wait_until("the load ends", || {
        let as_of = deployment.as_of();
        if as_of > 0 {
            staleness_ms.push((now_us() - as_of) / 1_000);
        }
        !load.is_running()
    });
    let summary = load.finish().success().stdout;
    assert!(deployment.audit() > 10_000, "most of the items were liked");
    staleness_ms.sort_unstable();
    let at = |share: usize| staleness_ms[(staleness_ms.len() - 1) * share / 100];
    // Past the test runner, which shows what a test prints only when it fails.
    writeln!(
        io::stderr(),
        "{summary}\nstaleness at the store, ms: p50 {} p99 {} max {}",
        at(50),
        at(99),
        at(100)
    )
    .unwrap();
    assert!(staleness_ms.len() > 20, "the store was fresh while likes went on");
    assert_eq!(up.terminate().code(), Some(0));
}

#[test]
fn as_of_goes_on_while_nothing_happens() {
    let deployment = Deployment::migrated("idle");
    let _roles = Roles::spawn(&deployment);
    deployment.wait_for_windows(3);
    let before = deployment.as_of();
    deployment.wait_for_windows(8);
    assert!(deployment.as_of() > before);
    assert_eq!(deployment.audit(), 0);
}

#[test]
fn traffic_on_one_partition_waits_for_no_other() {
    let deployment = Deployment::migrated("one_partition");
    let _roles = Roles::spawn(&deployment);
    let edges: Vec<(i64, i64)> = (1..2_000)
        .flat_map(|item| (1..40).map(move |user| (item, user)))
        .filter(|(item, user)| placement::partition(*item, placement::bucket(*user), 8) == 3)
        .take(5_000)
        .collect();
    assert_eq!(edges.len(), 5_000);
    let mut sql = deployment.sql();
    for chunk in edges.chunks(100) {
        let (items, users): (Vec<_>, Vec<_>) = chunk.iter().copied().unzip();
        sql.execute("SELECT fencepost.set_likes($1, $2, $3)", &[&items, &users, &vec![true; chunk.len()]])
            .unwrap();
    }
    assert!(deployment.audit() > 0);
    let busy: Vec<_> = deployment.event_counts().into_iter().enumerate().filter(|(_, n)| *n > 0).collect();
    assert_eq!(busy, [(3, 5_000)]);
}

#[test]
fn a_viral_item_with_half_of_the_traffic_is_exact() {
    let deployment = Deployment::migrated("viral");
    let _roles = Roles::spawn(&deployment);
    deployment
        .run(&["load", "--flips", "50000", "--bulk", "50", "--viral-share", "0.5", "--items", "1000"])
        .success();
    deployment.audit();
    let viral: i64 = deployment
        .sql()
        .query_one("SELECT max(n) FROM (SELECT count(*) FILTER (WHERE liked) n FROM fencepost.edges GROUP BY item_id) items", &[])
        .unwrap()
        .get(0);
    assert!(viral > 15_000, "one item has a large share: {viral}");
}

#[test]
fn a_transaction_of_a_million_flips_spans_many_windows() {
    let mut deployment = Deployment::new("million");
    deployment.set("relay.window_events_max", 50_000);
    deployment.migrate();
    let _roles = Roles::spawn(&deployment);
    let mut sql = deployment.sql();
    let mut transaction = sql.transaction().unwrap();
    for chunk in 0..10_i64 {
        let rows = transaction
            .execute(
                "SELECT fencepost.set_likes(
                     array_agg(n % 20011), array_agg(n), array_agg(true)
                 ) FROM generate_series($1::bigint, $1::bigint + 99999) n",
                &[&(1 + chunk * 100_000)],
            )
            .unwrap();
        assert_eq!(rows, 100_000);
    }
    transaction.commit().unwrap();
    assert_eq!(deployment.audit(), 20_011);
    let windows = deployment.windows();
    let partial = windows.iter().filter(|window| window.kind == CutKind::Partial).count();
    assert!(partial >= 19, "{partial} windows end within the transaction");
    assert!(windows.iter().all(|window| window.events() <= 50_000));
    assert_eq!(windows.iter().map(|window| window.events()).sum::<u64>(), 1_000_000);
}

#[test]
fn a_transaction_held_open_is_counted_when_it_commits_and_a_rollback_never() {
    let deployment = Deployment::migrated("held_open");
    let _roles = Roles::spawn(&deployment);
    let like = "SELECT changed FROM fencepost.set_like($1, $2, true)";
    let (mut held_client, mut rolled_client, mut client) =
        (deployment.sql(), deployment.sql(), deployment.sql());
    let mut held = held_client.transaction().unwrap();
    held.execute(like, &[&1_i64, &1_i64]).unwrap();
    let mut rolled = rolled_client.transaction().unwrap();
    rolled.execute(like, &[&1_i64, &2_i64]).unwrap();
    for user in 3..103_i64 {
        client.execute(like, &[&1_i64, &user]).unwrap();
    }
    deployment.audit();
    assert_eq!(deployment.count(1), 100);
    rolled.rollback().unwrap();
    held.commit().unwrap();
    deployment.audit();
    assert_eq!(deployment.count(1), 101);
}

fn now_us() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(now.as_micros()).expect("the clock is right")
}
