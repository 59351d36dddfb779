use std::collections::{BTreeMap, BTreeSet};

use fencepost_model::placement::LANES;
use fencepost_model::{LaneTotals, WindowId};
use fencepost_sources::log::{KafkaConfig, KafkaTotalsReader, Totals, TotalsReader};

use super::wait::wait_until;

/// The totals log as a reader sees it who removes repeats: one record a lane and window.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TotalsLog {
    records: BTreeMap<(u8, WindowId), LaneTotals<i64>>,
    /// Records that stood in the log once more, with the same content.
    pub(crate) repeats: u64,
}

impl TotalsLog {
    /// Reads the whole totals topic.
    ///
    /// # Panics
    /// When two records of a lane and window differ.
    pub(crate) fn read(config: &KafkaConfig) -> Self {
        let lanes: Vec<u8> = (0..LANES).collect();
        let mut reader = KafkaTotalsReader::<i64>::open(config, Box::new(|| {})).expect("a totals topic");
        for lane in &lanes {
            reader.seek(*lane, 0).expect("a totals topic");
        }
        // A lane that goes on is at its end more than once.
        let (mut log, mut ended) = (Self::default(), BTreeSet::new());
        wait_until("the totals log is read", || {
            while let Some(found) = reader.poll().expect("totals of our own") {
                match found {
                    Totals::Record(record) => log.push(record),
                    Totals::End { lane } => drop(ended.insert(lane)),
                }
            }
            ended.len() == lanes.len()
        });
        log
    }

    fn push(&mut self, record: LaneTotals<i64>) {
        match self.records.get(&(record.lane, record.window)) {
            Some(known) => {
                assert_eq!(known, &record, "a repeat has another content");
                self.repeats += 1;
            }
            None => drop(self.records.insert((record.lane, record.window), record)),
        }
    }

    /// The record of each lane and window up to this one.
    pub(crate) fn until(&self, window: WindowId) -> BTreeMap<(u8, WindowId), LaneTotals<i64>> {
        let within = self.records.iter().filter(|((_, found), _)| *found <= window);
        within.map(|(key, record)| (*key, record.clone())).collect()
    }

    /// The last window that every lane has.
    pub(crate) fn end(&self) -> WindowId {
        let of_lane = |lane| {
            self.records.range((lane, 0)..(lane + 1, 0)).next_back().map_or(0, |((_, window), _)| *window)
        };
        (0..LANES).map(of_lane).min().expect("there are lanes")
    }
}
