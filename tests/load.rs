//! The load generator, on a real Postgres.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fencepost_bench::load::{self, LoadOptions};

use crate::schema::Database;

#[test]
fn a_load_whose_connections_are_cut_ends_exact() {
    let database = Database::migrated("load_cut");
    let done = AtomicBool::new(false);
    let options = LoadOptions {
        flips: Some(4_000),
        items: 50,
        users: 200,
        unlike_share: 0.3,
        retry_share: 0.1,
        ..LoadOptions::default()
    };
    let summary = thread::scope(|threads| {
        let cutter = threads.spawn(|| {
            let mut client = database.client();
            let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'fencepost load'
                    AND state = 'active' AND random() < 0.05";
            let mut cuts = 0;
            while !done.load(Ordering::Relaxed) {
                cuts += client.query_one(cut, &[]).unwrap().get::<_, i64>(0);
            }
            cuts
        });
        let summary = load::run(database.url(), &options, &AtomicBool::new(false), |_| ());
        done.store(true, Ordering::Relaxed);
        assert!(cutter.join().unwrap() > 0, "no connection was cut");
        summary.unwrap()
    });
    assert!(summary.errors > 0, "{summary}");
    assert!(summary.flips >= 4_000, "{summary}");
    assert!(summary.no_ops > 0, "{summary}");
    database.assert_outbox_equals_edges();
}

#[test]
fn every_edge_of_a_bulk_call_is_accounted_for() {
    let database = Database::migrated("load_bulk");
    let options =
        LoadOptions { bulk: 100, flips: Some(5_000), items: 50, users: 500, ..LoadOptions::default() };
    let summary = load::run(database.url(), &options, &AtomicBool::new(false), |_| ()).unwrap();
    assert_eq!((summary.calls * 100, summary.errors), (summary.flips + summary.no_ops, 0), "{summary}");
    let count = "SELECT count(*) FROM fencepost.outbox";
    let flips: i64 = database.client().query_one(count, &[]).unwrap().get(0);
    assert_eq!(u64::try_from(flips).unwrap(), summary.flips, "{summary}");
    database.assert_outbox_equals_edges();
}

#[test]
fn a_load_without_a_schema_fails_and_says_what_to_run() {
    let database = Database::empty("load_no_schema");
    let failure = load::run(database.url(), &LoadOptions::default(), &AtomicBool::new(false), |_| ());
    let failure = format!("{:#}", failure.unwrap_err());
    assert!(failure.contains("run fencepost migrate"), "{failure}");
}

#[test]
fn a_stopped_load_ends() {
    let database = Database::migrated("load_stopped");
    let stop = AtomicBool::new(false);
    let options = LoadOptions { rate: Some(200.0), ..LoadOptions::default() };
    let summary = load::run(database.url(), &options, &stop, |progress| {
        stop.store(progress.flips > 20, Ordering::Relaxed);
    })
    .unwrap();
    assert!(summary.flips > 20, "{summary}");
    assert!(summary.flips_per_s() < 250.0, "{summary}");
    database.assert_outbox_equals_edges();
}
