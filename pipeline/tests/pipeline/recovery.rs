//! Crashes: what the totals log holds in the end does not show them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fencepost_model::LaneTotals;
use fencepost_pipeline::PipelineConfig;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::history::{History, Shape};
use crate::life::{Life, config};
use crate::memory_log::{Fault, Topics};
use crate::oracle;

/// What happens to what a pipeline has left behind.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Nothing,
    /// The newest segment is cut or changed at a random byte.
    TornSegment,
    CheckpointLost,
    /// The totals log loses some lanes' last records, confirmed ones included.
    TotalsLoseTails,
}

const DAMAGES: [Damage; 4] =
    [Damage::Nothing, Damage::TornSegment, Damage::CheckpointLost, Damage::TotalsLoseTails];

impl Damage {
    fn strike(self, random: &mut StdRng, topics: &Topics, config: &PipelineConfig) {
        match self {
            Damage::Nothing => {}
            Damage::TornSegment => tear_newest_segment(random, &config.checkpoint_dir),
            Damage::CheckpointLost => std::fs::remove_dir_all(&config.checkpoint_dir).unwrap(),
            Damage::TotalsLoseTails => topics.lose_tails(random, 4),
        }
    }
}

fn tear_newest_segment(random: &mut StdRng, dir: &Path) {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let Some(newest) = names.filter(|path| path.extension().is_some_and(|end| end == "frames")).max() else {
        return;
    };
    let mut bytes = std::fs::read(&newest).unwrap();
    let at = random.random_range(0..bytes.len());
    if random.random_bool(0.5) {
        bytes.truncate(at);
    } else {
        bytes[at] ^= random.random_range(1..=255);
    }
    std::fs::write(&newest, bytes).unwrap();
}

/// Crashes at a random part, then the damage; again and again, each life with another number of workers.
fn survives(seed: u64, damages: &[Damage]) -> Arc<Topics> {
    let dir = tempfile::tempdir().unwrap();
    let topics = Topics::new(History::draw(seed, Shape::SMALL));
    let config = config(dir.path());
    let mut random = StdRng::seed_from_u64(seed);
    for life in 0..5 {
        let crashing = Life {
            crash_after_parts: Some(random.random_range(1..800)),
            ..Life::whole(random.random(), random.random_range(1..=3))
        };
        let (ended, metrics) = crashing.live(&topics, &config);
        if ended.is_ok() {
            break;
        }
        let error = format!("{:#}", ended.unwrap_err());
        assert_eq!(error, "aborted", "life {life} of seed {seed}");
        if metrics.frontier.load(Ordering::Relaxed) > 1 {
            damages[random.random_range(0..damages.len())].strike(&mut random, &topics, &config);
        }
    }
    let (ended, _) = Life::whole(seed, 2).live(&topics, &config);
    ended.unwrap();
    let wanted = oracle::records(&topics.history, config.horizon_windows as usize);
    oracle::assert_same(&topics.records(), &wanted, &format!("seed {seed}"));
    topics
}

#[test]
fn crashes_at_any_point() {
    for seed in 0..12 {
        survives(seed, &[Damage::Nothing]);
    }
}

#[test]
fn a_torn_segment() {
    for seed in 100..112 {
        survives(seed, &[Damage::TornSegment]);
    }
}

#[test]
fn a_lost_checkpoint_is_made_again_from_the_log() {
    let rebuilds: usize = (200..208)
        .map(|seed| survives(seed, &[Damage::CheckpointLost]).rebuilds.load(Ordering::Relaxed))
        .sum();
    assert!(rebuilds >= 8, "only {rebuilds} lives read a horizon again");
}

#[test]
fn totals_that_lost_their_tails_are_produced_again() {
    for seed in 300..310 {
        survives(seed, &[Damage::TotalsLoseTails]);
    }
}

#[test]
fn anything_after_anything() {
    for seed in 400..424 {
        survives(seed, &DAMAGES);
    }
}

/// A pipeline that was stopped well after all windows, its topics, and what they must hold.
struct Finished {
    _dir: tempfile::TempDir,
    topics: Arc<Topics>,
    config: PipelineConfig,
    wanted: Vec<Vec<LaneTotals<i64>>>,
}

fn finished(seed: u64) -> Finished {
    let dir = tempfile::tempdir().unwrap();
    let topics = Topics::new(History::draw(seed, Shape::SMALL));
    let config = config(dir.path());
    Life::whole(seed, 2).live(&topics, &config).0.unwrap();
    let wanted = oracle::records(&topics.history, config.horizon_windows as usize);
    Finished { _dir: dir, topics, config, wanted }
}

#[test]
fn a_hole_in_the_totals_is_mended_at_the_next_start() {
    let Finished { topics, config, wanted, .. } = &finished(1);
    topics.lose_middle(17);
    assert!(topics.records()[17].len() < wanted[17].len(), "the hole stops whoever follows the lane");
    Life::whole(2, 3).live(topics, config).0.unwrap();
    oracle::assert_same(&topics.records(), wanted, "mended");
}

#[test]
fn a_replay_repeats_every_record_behind_what_is_there() {
    let Finished { topics, config, wanted, .. } = &finished(2);
    let records = wanted.iter().map(Vec::len).sum();
    let replay = Life { replay: true, crash_after_parts: Some(records), ..Life::whole(9, 3) };
    replay.live(topics, config).0.unwrap_err();
    oracle::assert_same(&topics.records(), wanted, "replayed");
    let raw: usize = topics.raw().iter().map(Vec::len).sum();
    assert!(raw >= 2 * records, "{raw} records of {records} repeated");
}

#[test]
fn totals_emptied_by_retention_go_on_from_what_was_confirmed() {
    let Finished { topics, config, wanted, .. } = &finished(3);
    topics.empty_totals(true);
    Life::whole(3, 1).live(topics, config).0.unwrap();
    let found = topics.raw();
    for (found, wanted) in found.iter().zip(wanted) {
        let again: Vec<_> = found.iter().map(|(_, record)| record.clone()).collect();
        assert!(!again.is_empty() && again.len() < 10, "{} records were made again", again.len());
        assert_eq!(again, wanted[wanted.len() - again.len()..]);
    }
}

#[test]
fn totals_that_were_made_anew_are_filled_only_when_asked() {
    let Finished { topics, config, wanted, .. } = &finished(4);
    topics.empty_totals(false);
    let error = Life::whole(4, 1).live(topics, config).0.unwrap_err().to_string();
    assert!(error.contains("--replay"), "{error}");
    Life { replay: true, ..Life::whole(4, 1) }.live(topics, config).0.unwrap();
    oracle::assert_same(&topics.records(), wanted, "filled again");
}

/// Frames of a horizon that is only half read again are not resumed from.
#[test]
fn a_rebuild_that_is_broken_off_begins_again() {
    let dir = tempfile::tempdir().unwrap();
    let topics = Topics::new(History::draw(6, Shape::SMALL));
    let config = config(dir.path());
    Life { crash_after_parts: Some(1_200), ..Life::whole(6, 2) }.live(&topics, &config).0.unwrap_err();
    std::fs::remove_dir_all(&config.checkpoint_dir).unwrap();
    for workers in 1..=2 {
        let broken_off = Life { fault: Some((Fault::Away, 12)), ..Life::whole(6, workers) };
        broken_off.live(&topics, &config).0.unwrap_err();
    }
    Life::whole(6, 2).live(&topics, &config).0.unwrap();
    assert_eq!(topics.rebuilds.load(Ordering::Relaxed), 3);
    let wanted = oracle::records(&topics.history, config.horizon_windows as usize);
    oracle::assert_same(&topics.records(), &wanted, "rebuilt");
}

/// Nothing that a restart can need is removed, and nothing else stays.
#[test]
fn segments_go_when_they_have_left_the_horizon() {
    let Finished { topics, config, .. } = &finished(5);
    let segments = std::fs::read_dir(&config.checkpoint_dir)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|end| end == "frames"))
        .count();
    let written = topics.history.windows.len() / config.segment_windows_max as usize;
    assert!(segments > 1 && segments < written / 2, "{segments} of {written} segments are left");
}
