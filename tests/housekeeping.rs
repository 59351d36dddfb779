//! The relay keeps the outbox in partitions: it makes those of the days ahead, and drops those that are done with.

use postgres::Client;

use crate::harness::{Deployment, Process, Roles, wait_until};

const LOAD: &[&str] =
    &["load", "--rate", "500", "--bulk", "10", "--clients", "2", "--items", "500", "--users", "5000"];

/// While someone holds the advisory lock 7, a `DROP TABLE` waits.
const HOLD_DROPS: &str = "
    CREATE FUNCTION hold_drops() RETURNS event_trigger LANGUAGE plpgsql
        AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); END $$;
    CREATE EVENT TRIGGER hold_drops ON ddl_command_start WHEN TAG IN ('DROP TABLE') EXECUTE FUNCTION hold_drops()";

/// A deployment that drops partitions a day after theirs has ended.
fn deployment(name: &str) -> Deployment {
    let mut deployment = Deployment::migrated(name);
    deployment.set("relay.outbox_retention_days", 1);
    deployment
}

/// Makes partitions for each of the days from `first` to `last` ago, as if time had passed.
fn make_old_partitions(sql: &mut Client, first: i32, last: i32) {
    for day in first..=last {
        let make = format!(
            "SET timezone = 'UTC';
            DO $$ DECLARE day date := (clock_timestamp() AT TIME ZONE 'UTC')::date - {day}; BEGIN
                EXECUTE format('CREATE TABLE fencepost.%I PARTITION OF fencepost.outbox FOR VALUES FROM (%L) TO (%L)',
                    'outbox_' || to_char(day, 'YYYYMMDD'), day::timestamptz, (day + 1)::timestamptz);
            END $$"
        );
        sql.batch_execute(&make).unwrap();
    }
}

/// The name of the partition of a day, counted from today.
fn partition(sql: &mut Client, day: i32) -> String {
    let name =
        "SELECT 'outbox_' || to_char((clock_timestamp() AT TIME ZONE 'UTC')::date + $1::integer, 'YYYYMMDD')";
    sql.query_one(name, &[&day]).unwrap().get(0)
}

/// Whether the partition exists, as a table of any kind.
fn exists(sql: &mut Client, day: i32) -> bool {
    let name = format!("fencepost.{}", partition(sql, day));
    sql.query_one("SELECT to_regclass($1) IS NOT NULL", &[&name]).unwrap().get(0)
}

/// Whether someone has begun to detach the partition; `None` when it is no partition any more.
fn detaching(sql: &mut Client, day: i32) -> Option<bool> {
    let name = partition(sql, day);
    sql.query_opt(
        "SELECT inhdetachpending FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
        WHERE inhparent = 'fencepost.outbox'::regclass AND relname = $1",
        &[&name],
    )
    .unwrap()
    .map(|row| row.get(0))
}

/// Kills the relay while its housekeeping waits for a lock.
fn kill_while_it_waits(relay: &mut Process, sql: &mut Client) {
    const WAITING: &str = "FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'fencepost housekeeping'
            AND wait_event_type = 'Lock'";
    wait_until("housekeeping waits for a lock", || {
        sql.query_opt(&format!("SELECT {WAITING} LIMIT 1"), &[]).unwrap().is_some()
    });
    relay.kill9();
    // The server would not notice before the statement ends.
    sql.execute(&format!("SELECT pg_terminate_backend(pid, 10000) {WAITING}"), &[]).unwrap();
}

#[test]
fn old_partitions_are_dropped_and_new_ones_made_while_likes_go_on() {
    let deployment = deployment("partitions_kept");
    let mut sql = deployment.sql();
    make_old_partitions(&mut sql, 2, 4);
    for day in [13, 14] {
        let name = partition(&mut sql, day);
        sql.batch_execute(&format!("DROP TABLE fencepost.{name}")).unwrap();
    }
    // A table that someone has detached, and wants to keep.
    let kept = partition(&mut sql, -3);
    sql.batch_execute(&format!("ALTER TABLE fencepost.outbox DETACH PARTITION fencepost.{kept}")).unwrap();

    let mut load = deployment.spawn(LOAD);
    let roles = Roles::spawn(&deployment);
    wait_until("old partitions are dropped", || !exists(&mut sql, -2) && !exists(&mut sql, -4));
    assert!(exists(&mut sql, 13) && exists(&mut sql, 14), "those of the days ahead are made");
    assert!(exists(&mut sql, -1), "yesterday's is kept: the clock may step back");
    assert!(exists(&mut sql, -3), "what someone else detached is kept");
    deployment.wait_for_windows(2);
    assert!(load.is_running(), "likes went on: {}", load.logs());
    drop(load);
    deployment.audit();
    assert!(!roles.relay.logs().contains("ERROR"), "{}", roles.relay.logs());
}

#[test]
fn a_partition_with_rows_of_an_open_transaction_waits_for_it_and_for_the_log() {
    let deployment = deployment("partitions_in_use");
    let mut sql = deployment.sql();
    make_old_partitions(&mut sql, 2, 2);
    let mut writer = deployment.sql();
    let mut held = writer.transaction().unwrap();
    // A like whose transaction was left open for days, in an outbox row of then.
    held.batch_execute(
        "SELECT fencepost.set_like(1, 1, true);
        UPDATE fencepost.outbox SET at = at - interval '2 days' WHERE item_id = 1",
    )
    .unwrap();
    let mut roles = Roles::spawn(&deployment);
    roles.relay.wait_for_log("outbox partitions are made");
    deployment.wait_for_windows(3);
    assert_eq!(detaching(&mut sql, -2), Some(false), "it holds what is not yet committed");
    held.commit().unwrap();
    deployment.audit();
    assert_eq!(deployment.count(1), 1);
    roles.restart_relay(&deployment);
    wait_until("the partition is dropped", || !exists(&mut sql, -2));
    deployment.audit();
    assert_eq!(deployment.count(1), 1);
}

#[test]
fn a_relay_killed_between_detaching_and_dropping_is_taken_up_by_the_next() {
    let deployment = deployment("partitions_resumed");
    let mut sql = deployment.sql();
    make_old_partitions(&mut sql, 2, 3);
    sql.batch_execute(HOLD_DROPS).unwrap();
    sql.batch_execute("SELECT pg_advisory_lock(7)").unwrap();
    let mut load = deployment.spawn(LOAD);
    let mut roles = Roles::spawn(&deployment);
    kill_while_it_waits(&mut roles.relay, &mut sql);
    for day in [-2, -3] {
        assert_eq!(detaching(&mut sql, day), None, "it is detached");
        assert!(exists(&mut sql, day), "and not dropped");
    }
    sql.batch_execute("SELECT pg_advisory_unlock(7)").unwrap();
    roles.relay = deployment.spawn(&["relay"]);
    wait_until("the partitions are dropped", || !exists(&mut sql, -2) && !exists(&mut sql, -3));
    deployment.wait_for_windows(2);
    assert!(load.is_running(), "likes went on: {}", load.logs());
    drop(load);
    deployment.audit();
}

#[test]
fn a_relay_killed_while_it_detaches_is_taken_up_by_the_next() {
    let deployment = deployment("partitions_pending");
    let mut sql = deployment.sql();
    make_old_partitions(&mut sql, 2, 3);
    let mut writer = deployment.sql();
    let mut held = writer.transaction().unwrap();
    held.batch_execute("SELECT fencepost.set_like(1, 1, true)").unwrap();
    let mut roles = Roles::spawn(&deployment);
    kill_while_it_waits(&mut roles.relay, &mut sql);
    assert_eq!(detaching(&mut sql, -3), Some(true), "it is half detached");
    held.commit().unwrap();
    roles.relay = deployment.spawn(&["relay"]);
    wait_until("the partitions are dropped", || !exists(&mut sql, -2) && !exists(&mut sql, -3));
    deployment.audit();
    assert_eq!(deployment.count(1), 1);
}

#[test]
fn partitions_that_run_out_and_cannot_be_made_are_an_error_that_says_how_many_days_are_left() {
    let deployment = deployment("partitions_run_out");
    let mut sql = deployment.sql();
    for day in 4..=14 {
        let name = partition(&mut sql, day);
        sql.batch_execute(&format!("DROP TABLE fencepost.{name}")).unwrap();
    }
    let in_the_way = partition(&mut sql, 9);
    sql.batch_execute(&format!("CREATE TABLE fencepost.{in_the_way} ()")).unwrap();
    let mut roles = Roles::spawn(&deployment);
    roles.relay.wait_for_log("outbox partitions run out");
    let logs = roles.relay.logs();
    let error = logs.lines().find(|line| line.contains("run out")).unwrap();
    for part in ["ERROR", "days_left=3", &in_the_way, "fencepost migrate"] {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
    deployment.wait_for_windows(2);
    sql.batch_execute(&format!("DROP TABLE fencepost.{in_the_way}")).unwrap();
    roles.restart_relay(&deployment);
    wait_until("partitions are made", || (4..=14).all(|day| exists(&mut sql, day)));
    assert_eq!(deployment.audit(), 0);
}
