//! Any role is killed at any moment, whatever its checkpoint looks like then; counts and totals are as if nothing had
//! happened.

use std::fs;
use std::path::Path;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::{Deployment, Process, Roles, TotalsLog, copy_folder, wait_until};

const KILLS: usize = 20;

#[test]
fn twenty_kills_at_random_moments_change_nothing() {
    let seed = std::env::var("FENCEPOST_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(rand::random);
    eprintln!("FENCEPOST_TEST_SEED={seed} repeats the kills");
    let mut random = StdRng::seed_from_u64(seed);
    let mut deployment = Deployment::new("kills");
    deployment.set("relay.window_ms", 250);
    deployment.set("pipeline.horizon_windows", 40);
    deployment.set("pipeline.segment_windows_max", 7);
    deployment.migrate();
    let mut roles = Roles::spawn(&deployment);
    let mut load = load(&deployment, "2000");
    let (mut torn, mut lost) = (0, 0);
    for kill in 0..KILLS {
        let windows = random.random_range(0..6);
        deployment.wait_for_windows(windows);
        match random.random_range(0..4) {
            0 => roles.restart_relay(&deployment),
            1 => roles.restart_pipeline(&deployment, || match kill % 4 {
                0 => {}
                1 => {
                    fs::remove_dir_all(deployment.checkpoint_dir()).unwrap();
                    lost += 1;
                }
                _ => torn += u64::from(tear(&deployment.checkpoint_dir(), &mut random)),
            }),
            2 => roles.restart_applier(&deployment),
            _ => roles.restart_all(&deployment),
        }
    }
    assert!(load.is_running(), "the load went on all the while");
    assert_eq!(load.terminate().code(), Some(0));
    eprintln!("checkpoints torn {torn}, lost {lost}");
    deployment.audit();
    assert_same_as_without_faults(&deployment);
}

#[test]
fn a_torn_checkpoint_is_cut_off_and_read_again() {
    let deployment = deployment("torn");
    let mut roles = Roles::spawn(&deployment);
    let _load = load(&deployment, "2000");
    let mut random = StdRng::seed_from_u64(7);
    for _ in 0..4 {
        deployment.wait_for_windows(3);
        roles.restart_pipeline(&deployment, || {
            assert!(tear(&deployment.checkpoint_dir(), &mut random), "there was something to tear");
        });
    }
    drop(_load);
    deployment.audit();
    assert_same_as_without_faults(&deployment);
}

#[test]
fn totals_go_on_from_their_end_when_the_checkpoint_is_lost() {
    let deployment = deployment("lost");
    let mut roles = Roles::spawn(&deployment);
    let load = load(&deployment, "2000");
    // Longer than the horizon, so that what is read again does not start at the start of the log.
    deployment.wait_for_windows(30);
    roles.restart_pipeline(&deployment, || fs::remove_dir_all(deployment.checkpoint_dir()).unwrap());
    deployment.wait_for_windows(5);
    drop(load);
    deployment.audit();
    assert_same_as_without_faults(&deployment);
}

#[test]
fn a_checkpoint_behind_the_totals_catches_up_with_them() {
    let deployment = deployment("behind");
    let mut roles = Roles::spawn(&deployment);
    let load = load(&deployment, "2000");
    deployment.wait_for_windows(5);
    let old = deployment.checkpoint_dir().with_extension("old");
    roles.restart_pipeline(&deployment, || copy_folder(&deployment.checkpoint_dir(), &old));
    deployment.wait_for_windows(8);
    roles.restart_pipeline(&deployment, || {
        fs::remove_dir_all(deployment.checkpoint_dir()).unwrap();
        fs::rename(&old, deployment.checkpoint_dir()).unwrap();
    });
    deployment.wait_for_windows(5);
    drop(load);
    deployment.audit();
    let log = assert_same_as_without_faults(&deployment);
    assert!(log.repeats > 0, "the totals of the windows between were written again");
}

#[test]
fn a_checkpoint_ahead_of_the_totals_goes_back_to_them() {
    let mut deployment = deployment("ahead");
    let mut roles = Roles::spawn(&deployment);
    let load = load(&deployment, "2000");
    deployment.wait_for_windows(4);
    // Frames are synced, and their totals linger in the producer until it is killed.
    deployment.set_kafka_property("linger.ms", "50000");
    roles.restart_pipeline(&deployment, || {});
    let synced = deployment.checkpoint_bytes();
    wait_until("frames are synced", || {
        assert!(roles.pipeline.is_running(), "{}", roles.pipeline.logs());
        deployment.checkpoint_bytes() > synced + 10_000
    });
    deployment.set_kafka_property("linger.ms", "1");
    roles.restart_pipeline(&deployment, || {});
    deployment.wait_for_windows(5);
    let resumed = roles.pipeline.logs();
    let value = |field: &str| -> u64 {
        let text = resumed.split(field).nth(1).unwrap_or_else(|| panic!("no {field} in {resumed}"));
        text.chars()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(char::is_ascii_digit)
            .collect::<String>()
            .parse()
            .unwrap()
    };
    assert!(value("frames_last=") > value("totals_least="), "{resumed}");
    drop(load);
    deployment.audit();
    assert_same_as_without_faults(&deployment);
}

#[test]
fn a_totals_log_that_was_made_anew_is_refused_until_it_is_filled_again() {
    let mut deployment = deployment("anew");
    let mut roles = Roles::spawn(&deployment);
    deployment.run(&["load", "--flips", "20000", "--bulk", "20", "--items", "500"]).success();
    deployment.audit();
    deployment.wait_for_windows(2);
    let whole = TotalsLog::read(&deployment.kafka());
    roles.kill_pipeline();
    let kafka = deployment.beside("totals-made-anew");
    let refused = deployment.run(&["pipeline"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stderr.contains("--replay"), "{}", refused.stderr);
    let _pipeline = deployment.spawn(&["pipeline", "--replay"]);
    wait_until("the new totals log has caught up", || TotalsLog::read(&kafka).end() >= whole.end());
    assert_eq!(TotalsLog::read(&kafka).until(whole.end()), whole.until(whole.end()));
}

/// A second pipeline reads the same flips, without faults, into another totals log: record for record the same.
pub(crate) fn assert_same_as_without_faults(deployment: &Deployment) -> TotalsLog {
    let log = TotalsLog::read(&deployment.kafka());
    let (kafka, mut reference) = deployment.spawn_reference();
    wait_until("the second pipeline has caught up", || {
        assert!(reference.is_running(), "the second pipeline stopped");
        TotalsLog::read(&kafka).end() >= log.end()
    });
    reference.kill9();
    let clean = TotalsLog::read(&kafka);
    assert!(log.end() > 0);
    assert_eq!(log.until(log.end()), clean.until(log.end()));
    log
}

fn deployment(name: &str) -> Deployment {
    let mut deployment = Deployment::new(name);
    deployment.set("relay.window_ms", 250);
    deployment.set("pipeline.horizon_windows", 20);
    deployment.set("pipeline.segment_windows_max", 4);
    deployment.migrate();
    deployment
}

fn load(deployment: &Deployment, rate: &str) -> Process {
    deployment.spawn(&[
        "load",
        "--rate",
        rate,
        "--bulk",
        "10",
        "--clients",
        "4",
        "--items",
        "2000",
        "--users",
        "5000",
        "--retry-share",
        "0.1",
        "--unlike-share",
        "0.3",
    ])
}

/// Cuts the newest file of the checkpoint at a random byte. Whether there was one.
fn tear(checkpoint: &Path, random: &mut StdRng) -> bool {
    let files = fs::read_dir(checkpoint).unwrap().map(|entry| entry.unwrap().path());
    let segments = files.filter(|path| path.extension().is_some_and(|extension| extension == "frames"));
    let Some(newest) = segments.max_by_key(|path| path.metadata().unwrap().modified().unwrap()) else {
        return false;
    };
    let length = newest.metadata().unwrap().len();
    if length == 0 {
        return false;
    }
    fs::File::options().write(true).open(newest).unwrap().set_len(random.random_range(0..length)).unwrap();
    true
}
