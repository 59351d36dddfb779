//! The totals log in memory: it holds any sequence of records, and shows a growing part of it.

use std::sync::{Arc, Mutex};

use fencepost_model::placement::LANES;
use fencepost_model::{LaneTotals, WindowId};
use fencepost_sources::log::{LogError, Totals, TotalsReader};

/// The records of each lane, in log order.
#[derive(Clone, Default)]
pub(crate) struct TotalsLog(Arc<Mutex<Vec<Vec<LaneTotals<i64>>>>>);

impl TotalsLog {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(vec![Vec::new(); usize::from(LANES)])))
    }

    pub(crate) fn append(&self, record: LaneTotals<i64>) {
        self.0.lock().expect("no panic holds it")[usize::from(record.lane)].push(record);
    }

    /// A reader that tells the end of a lane once after each seek, or whenever it has caught up again.
    pub(crate) fn reader(&self, tells_end_again: bool) -> MemoryReader {
        let cursors = vec![None; usize::from(LANES)];
        MemoryReader { log: self.clone(), cursors, next_lane: 0, tells_end_again }
    }
}

pub(crate) struct MemoryReader {
    log: TotalsLog,
    cursors: Vec<Option<Cursor>>,
    next_lane: usize,
    tells_end_again: bool,
}

#[derive(Clone, Copy)]
struct Cursor {
    next: usize,
    end: usize,
    end_is_due: bool,
}

impl TotalsReader<i64> for MemoryReader {
    /// By time, as Kafka does: to the first record whose window is above.
    fn seek(&mut self, lane: u8, window: WindowId) -> Result<(), LogError> {
        let log = self.log.0.lock().expect("no panic holds it");
        let records = &log[usize::from(lane)];
        let next = records.iter().position(|record| record.window > window).unwrap_or(records.len());
        self.cursors[usize::from(lane)] = Some(Cursor { next, end: records.len(), end_is_due: true });
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Totals<i64>>, LogError> {
        let log = self.log.0.lock().expect("no panic holds it");
        for _ in 0..self.cursors.len() {
            let lane = self.next_lane;
            self.next_lane = (lane + 1) % self.cursors.len();
            let Some(cursor) = &mut self.cursors[lane] else { continue };
            if cursor.end_is_due && cursor.next >= cursor.end {
                cursor.end_is_due = false;
                return Ok(Some(Totals::End { lane: u8::try_from(lane).expect("few lanes") }));
            }
            if let Some(record) = log[lane].get(cursor.next) {
                cursor.next += 1;
                if self.tells_end_again && !cursor.end_is_due {
                    cursor.end_is_due = true;
                    cursor.end = log[lane].len();
                }
                return Ok(Some(Totals::Record(record.clone())));
            }
        }
        Ok(None)
    }
}
