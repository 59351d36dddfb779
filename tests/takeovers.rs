//! Two of a role at once, one of them perhaps a zombie: the log and the store tell who is in charge.

use crate::crashes::assert_same_as_without_faults;
use crate::harness::{Copier, Deployment, Roles, copy_folder, wait_until};

const LOAD: &[&str] =
    &["load", "--rate", "1000", "--bulk", "10", "--clients", "4", "--items", "1000", "--users", "5000"];

#[test]
fn a_second_relay_says_who_holds_the_lock_and_disturbs_nobody() {
    let deployment = Deployment::migrated("two_relays");
    let mut roles = Roles::spawn(&deployment);
    let load = deployment.spawn(LOAD);
    deployment.wait_for_windows(2);
    let second = deployment.run(&["relay"]);
    assert_eq!(second.status.code(), Some(1));
    let holder: i32 = deployment
        .sql()
        .query_one("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())", &[])
        .unwrap()
        .get(0);
    assert!(
        second.stderr.contains(&holder.to_string()),
        "it names the holder's backend {holder}: {}",
        second.stderr
    );
    assert!(second.stderr.contains("fencepost relay"), "it names the holder: {}", second.stderr);
    deployment.wait_for_windows(4);
    assert!(roles.relay.is_running());
    drop(load);
    deployment.audit();
}

#[test]
fn what_a_killed_relay_left_in_an_open_transaction_is_sent_again() {
    let mut deployment = Deployment::migrated("open_transaction");
    // Long enough to be killed in; should one close just before, the next may do.
    deployment.set("relay.window_ms", 10_000);
    let mut roles = Roles::spawn(&deployment);
    for seed in 1.. {
        deployment
            .run(&["load", "--flips", "5000", "--bulk", "20", "--items", "1000", "--seed", &seed.to_string()])
            .success();
        wait_until("a window is open", || deployment.records_in_no_window() > 1_000);
        roles.relay.kill9();
        if deployment.records_in_no_window() > 1_000 {
            break;
        }
        assert!(seed < 10, "every window closed before the relay was killed");
        roles.relay = deployment.spawn(&["relay"]);
    }
    deployment.set("relay.window_ms", 250);
    roles.relay = deployment.spawn(&["relay"]);
    deployment.audit();
    assert!(deployment.records_in_no_window() > 1_000, "the first one's records were aborted");
}

#[test]
fn a_zombie_relay_is_fenced_and_says_so() {
    let deployment = Deployment::migrated("zombie_relay");
    let mut roles = Roles::spawn(&deployment);
    let load = deployment.spawn(LOAD);
    deployment.wait_for_windows(3);
    roles.relay.freeze();
    // A frozen process keeps its session, and with it lock and slot, until the server gives it up.
    deployment
        .sql()
        .execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'fencepost relay%'", &[])
        .unwrap();
    let mut successor = deployment.spawn(&["relay"]);
    deployment.wait_for_windows(4);
    roles.relay.thaw();
    assert_eq!(roles.relay.wait_exit().code(), Some(1));
    let last_words = roles.relay.logs();
    assert!(last_words.contains("another relay") || last_words.contains("holds the lock"), "{last_words}");
    deployment.wait_for_windows(4);
    assert!(successor.is_running());
    drop(load);
    deployment.audit();
    assert_same_as_without_faults(&deployment);
}

#[test]
fn a_zombie_pipeline_repeats_what_its_successor_writes() {
    let mut deployment = Deployment::migrated("zombie_pipeline");
    let mut roles = Roles::spawn(&deployment);
    let load = deployment.spawn(LOAD);
    deployment.wait_for_windows(3);
    roles.pipeline.freeze();
    // Its lock on the directory is kept: the successor has a copy, as on another machine.
    let copy = deployment.checkpoint_dir().with_extension("copy");
    copy_folder(&deployment.checkpoint_dir(), &copy);
    deployment.set("pipeline.checkpoint_dir", copy.display().to_string());
    let mut successor = deployment.spawn(&["pipeline"]);
    deployment.wait_for_windows(6);
    roles.pipeline.thaw();
    deployment.wait_for_windows(8);
    assert!(successor.is_running());
    drop(load);
    deployment.audit();
    let log = assert_same_as_without_faults(&deployment);
    assert!(log.repeats > 0, "both wrote the same totals");
}

#[test]
fn two_pipelines_on_one_checkpoint_are_refused() {
    let deployment = Deployment::migrated("two_pipelines");
    let mut roles = Roles::spawn(&deployment);
    deployment.wait_for_windows(2);
    let second = deployment.run(&["pipeline"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(second.stderr.contains("is in use by"), "{}", second.stderr);
    deployment.wait_for_windows(2);
    assert!(roles.pipeline.is_running());
}

#[test]
fn a_zombie_applier_and_its_successor_do_no_harm() {
    let deployment = Deployment::migrated("zombie_applier");
    let mut roles = Roles::spawn(&deployment);
    let load = deployment.spawn(LOAD);
    deployment.wait_for_windows(3);
    roles.applier.freeze();
    let mut successor = deployment.spawn(&["apply", "--store", "redis"]);
    deployment.wait_for_windows(6);
    roles.applier.thaw();
    wait_until("a fence has refused one of the two", || {
        [&roles.applier, &successor].iter().any(|applier| applier.logs().contains("refused by the fence"))
    });
    deployment.wait_for_windows(8);
    assert!(successor.is_running() && roles.applier.is_running());
    drop(load);
    deployment.audit();
}

#[test]
fn the_whole_topic_written_again_while_likes_go_on_counts_nothing_twice() {
    let deployment = Deployment::migrated("copied");
    let _roles = Roles::spawn(&deployment);
    let load = deployment.spawn(LOAD);
    deployment.wait_for_windows(8);
    let copier = Copier::start(&deployment.kafka());
    wait_until("what was there is copied", || copier.copied() > 2_000);
    deployment.wait_for_windows(12);
    drop(load);
    deployment.audit();
    drop(copier);
    deployment.audit();
    assert_same_as_without_faults(&deployment);
}

#[test]
fn the_same_flips_twice_in_a_window_count_once() {
    let deployment = Deployment::migrated("twice");
    let _roles = Roles::spawn(&deployment);
    let mut sql = deployment.sql();
    let mut transaction = sql.transaction().unwrap();
    transaction
        .execute("SELECT fencepost.set_likes(array_agg(n % 500), array_agg(n), array_agg(true)) FROM generate_series(1, 5000::bigint) n", &[])
        .unwrap();
    // An outbox that repeats its rows: the same identities at other positions, in this window and in a later one.
    let again = "INSERT INTO fencepost.outbox SELECT * FROM fencepost.outbox WHERE op <= 5000";
    assert_eq!(transaction.execute(again, &[]).unwrap(), 5_000);
    transaction.commit().unwrap();
    deployment.audit();
    assert_eq!(sql.execute(again, &[]).unwrap(), 10_000);
    deployment.audit();
    assert_eq!(deployment.event_counts().iter().sum::<u64>(), 20_000);
}

#[test]
fn a_replay_of_the_whole_log_writes_the_same_totals_again() {
    let deployment = Deployment::migrated("replay");
    let mut roles = Roles::spawn(&deployment);
    deployment.run(&["load", "--flips", "20000", "--bulk", "20", "--items", "500"]).success();
    deployment.audit();
    roles.kill_pipeline();
    let mut replay = deployment.spawn(&["pipeline", "--replay"]);
    deployment.run(&["load", "--flips", "5000", "--bulk", "20", "--items", "500", "--seed", "2"]).success();
    deployment.audit();
    assert!(replay.is_running());
    let log = assert_same_as_without_faults(&deployment);
    assert!(log.repeats > 64, "every lane was written again: {}", log.repeats);
}
