//! Without faults: the totals are those of the oracle, whoever reads.

use std::sync::atomic::Ordering;

use crate::history::{History, Shape};
use crate::life::{Life, config};
use crate::memory_log::Topics;
use crate::oracle;

fn lives_to_the_oracle(seed: u64, workers: usize, shape: Shape) {
    let dir = tempfile::tempdir().unwrap();
    let topics = Topics::new(History::draw(seed, shape));
    let config = config(dir.path());
    let (ended, metrics) = Life::whole(seed, workers).live(&topics, &config);
    ended.unwrap();
    let wanted = oracle::records(&topics.history, config.horizon_windows as usize);
    oracle::assert_same(&topics.records(), &wanted, &format!("seed {seed}, {workers} workers"));
    assert!(metrics.known_by_identity.load(Ordering::Relaxed) > 0, "the history has no replays");
}

#[test]
fn any_number_of_workers_makes_the_oracles_records() {
    for workers in 1..=4 {
        for seed in 0..6 {
            lives_to_the_oracle(seed, workers, Shape::SMALL);
        }
    }
}

#[test]
fn more_workers_than_partitions() {
    lives_to_the_oracle(1, 4, Shape { partitions: 2, ..Shape::SMALL });
}

#[test]
fn a_transaction_over_many_windows_moves_no_horizon() {
    lives_to_the_oracle(2, 2, Shape { partial_percent: 90, ..Shape::SMALL });
}

/// Everything that has left the horizon leaves memory, too.
#[test]
fn memory_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let shape = Shape { windows: 60, partitions: 4, events_max: 2_000, partial_percent: 0 };
    let mut history = History::draw(3, shape);
    let events: usize = history.windows.iter().flatten().map(|slice| slice.flips.len()).sum();
    // Traffic ends, windows go on.
    for slices in &mut history.windows[30..] {
        for slice in slices {
            slice.flips.clear();
            slice.corrections.clear();
        }
    }
    let topics = Topics::new(history);
    let (ended, metrics) = Life::whole(3, 2).live(&topics, &config(dir.path()));
    ended.unwrap();
    let rows = metrics.remembered_rows.load(Ordering::Relaxed);
    assert!(events > 20_000, "the history holds {events} flips");
    assert!(rows < 2_000, "{rows} rows are remembered of {events}");
}
