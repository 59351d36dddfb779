//! One life of a pipeline on topics in memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fencepost_pipeline::{Metrics, PipelineConfig, PipelineLog, Signals, run_on};

use crate::memory_log::{Fault, MemoryLog, Topics};

/// A life that takes this long is stuck.
const STUCK: Duration = Duration::from_secs(60);

/// How a life goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    /// It crashes once it has appended so many parts to the totals log.
    pub(crate) crash_after_parts: Option<usize>,
    pub(crate) replay: bool,
    pub(crate) fault: Option<(Fault, usize)>,
}

impl Life {
    pub(crate) fn whole(seed: u64, workers: usize) -> Self {
        Self { seed, workers, crash_after_parts: None, replay: false, fault: None }
    }

    /// Lives until the totals log is complete, or the crash.
    pub(crate) fn live(
        self,
        topics: &Arc<Topics>,
        config: &PipelineConfig,
    ) -> (anyhow::Result<()>, Arc<Metrics>) {
        let (stop, crash) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
        let log: Arc<dyn PipelineLog<i64>> = Arc::new(MemoryLog {
            topics: Arc::clone(topics),
            seed: self.seed,
            fault: self.fault,
            parts_left: Arc::new(AtomicUsize::new(self.crash_after_parts.unwrap_or(usize::MAX))),
            crash: Arc::clone(&crash),
        });
        let config = PipelineConfig { workers: self.workers, ..config.clone() };
        let metrics = Arc::new(Metrics::default());
        let signals = Signals { stop: &stop, abort: &crash };
        let ended = std::thread::scope(|scope| {
            let life = scope.spawn(|| run_on(&config, &log, self.replay, signals, &metrics));
            let began = Instant::now();
            while !life.is_finished() {
                // A replay over a complete log has its end told by the number of parts.
                let counts_parts = self.replay && self.crash_after_parts.is_some();
                if !counts_parts && topics.complete.load(Ordering::Acquire) {
                    stop.store(true, Ordering::Release);
                }
                if began.elapsed() > STUCK {
                    crash.store(true, Ordering::Release);
                    life.join().unwrap().expect("the life was stuck");
                    panic!("a life was stuck: {self:?}");
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            life.join().unwrap()
        });
        (ended, metrics)
    }
}

/// A small horizon and small segments, so that much leaves, and files come and go.
pub(crate) fn config(dir: &Path) -> PipelineConfig {
    PipelineConfig {
        horizon_windows: 5,
        windows_in_flight: 3,
        checkpoint_dir: dir.join("checkpoint"),
        segment_windows_max: 4,
        idle_merge_effort: 1_000,
        ..PipelineConfig::default()
    }
}
