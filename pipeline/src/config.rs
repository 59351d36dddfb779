use std::path::PathBuf;

use documented::DocumentedFields;
use serde::{Deserialize, Serialize};

/// How the pipeline runs.
#[derive(Clone, Debug, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct PipelineConfig {
    /// Threads that the dataflow runs on; 0 is one a core.
    pub workers: usize,
    /// Whole windows that an identity is remembered for. Fixed for the life of a checkpoint.
    pub horizon_windows: u32,
    /// Windows taken from the log that the totals log has not confirmed, at most. Below `horizon_windows`.
    pub windows_in_flight: u32,
    /// Where the checkpoint lives; one pipeline at a time.
    pub checkpoint_dir: PathBuf,
    /// Windows in a segment of the checkpoint, at most.
    pub segment_windows_max: u32,
    /// A segment of the checkpoint is closed once it exceeds this many bytes.
    pub segment_bytes_max: u64,
    /// Effort of a worker with nothing to do to merge what it remembers, so that memory of windows that have left
    /// comes back; in rows at a time.
    pub idle_merge_effort: u32,
}

impl Default for PipelineConfig {
    fn default() -> Self {
        Self {
            workers: 0,
            horizon_windows: 300,
            windows_in_flight: 8,
            checkpoint_dir: PathBuf::from("fencepost-checkpoint"),
            segment_windows_max: 60,
            segment_bytes_max: 64 * 1024 * 1024,
            idle_merge_effort: 10_000,
        }
    }
}

impl PipelineConfig {
    /// The number of worker threads.
    pub fn workers(&self) -> usize {
        match self.workers {
            0 => cores(),
            workers => workers,
        }
    }

    /// Refuses what cannot work, and warns of what works badly.
    ///
    /// # Errors
    /// Names the setting, and what it may be.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.windows_in_flight >= 1, "pipeline.windows_in_flight must be at least 1");
        anyhow::ensure!(
            self.horizon_windows > self.windows_in_flight,
            "pipeline.horizon_windows ({}) must exceed pipeline.windows_in_flight ({}): what leaves the horizon is read \
             back from frames that are synced",
            self.horizon_windows,
            self.windows_in_flight,
        );
        anyhow::ensure!(self.segment_windows_max >= 1, "pipeline.segment_windows_max must be at least 1");
        if self.workers() > cores() {
            tracing::warn!(
                workers = self.workers(),
                cores = cores(),
                "pipeline.workers exceeds the cores: the workers will wait for one another"
            );
        }
        Ok(())
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
