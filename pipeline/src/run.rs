//! One life of the pipeline over a log: where to resume, restore, run until told to stop.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use fencepost_model::{Id, WindowId};
use fencepost_sources::log::PartitionStart;
use fencepost_sources::log::totals_chain::ChainEnd;

use crate::checkpoint::{Directory, FrameHead, WriterThread};
use crate::resume::{Resume, resume};
use crate::workers::{self, Job};
use crate::{Fingerprint, Metrics, PipelineConfig, PipelineLog};

/// How a life of the pipeline ends.
#[derive(Clone, Copy, Debug)]
pub struct Signals<'a> {
    /// Finish the windows taken, have them confirmed, and end well.
    pub stop: &'a AtomicBool,
    /// End at once and leave everything as it is, as a crash does. For tests.
    pub abort: &'a AtomicBool,
}

/// Runs the pipeline on a log until the stop signal or the first error.
///
/// # Errors
/// When there is nowhere to resume from, the checkpoint is in use or of another fingerprint, or a port or the disk
/// fails. The state is left so that the next run resumes exactly.
pub fn run_on<I: Id>(
    config: &PipelineConfig,
    log: &Arc<dyn PipelineLog<I>>,
    replay: bool,
    signals: Signals<'_>,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<()> {
    config.check()?;
    let topic = log.flips_topic().context("cannot describe the flips topic")?;
    let directory =
        Directory::open(&config.checkpoint_dir, Fingerprint::new::<I>(config.horizon_windows, topic))?;
    let lanes = log.totals_chains().context("cannot verify the totals topic")?;
    let frames = directory.heads();
    let resume = resume(&frames, &lanes, replay)?;
    let Beginning { left, starts } = beginning(config, &**log, &frames, resume)?;
    let incarnation = next_incarnation(directory.greatest_incarnation(), &lanes);
    report(resume, incarnation, &frames, &lanes);
    let (checkpoint, writer) = directory.begin(resume, left, incarnation, config, metrics)?;
    let writer = WriterThread::spawn(writer).context("cannot start the checkpoint's writer")?;
    let job = Job {
        config: config.clone(),
        log: Arc::clone(log),
        starts,
        incarnation,
        metrics: Arc::clone(metrics),
    };
    workers::execute(job, checkpoint, writer, signals)
}

/// Where reading begins.
struct Beginning {
    /// The last window that has left the horizon, when the horizon is read again from the log.
    left: WindowId,
    starts: Vec<PartitionStart>,
}

fn beginning<I: Id>(
    config: &PipelineConfig,
    log: &dyn PipelineLog<I>,
    frames: &[FrameHead],
    resume: Resume,
) -> anyhow::Result<Beginning> {
    match resume {
        Resume::Start => {
            let starts = log.first_starts().context("cannot start from the first window")?;
            Ok(Beginning { left: 0, starts })
        }
        Resume::Checkpoint { window } => {
            let head = frames
                .iter()
                .find(|head| head.window.window == window)
                .expect("the resume rule chose a frame that is held");
            let start = |(partition, offset): &(u32, i64)| PartitionStart {
                partition: *partition,
                offset: *offset,
                window,
                position: head.window.position,
            };
            Ok(Beginning { left: 0, starts: head.offsets.iter().map(start).collect() })
        }
        Resume::Rebuild { window } => {
            let start = log
                .horizon_start(window, config.horizon_windows)
                .with_context(|| format!("cannot read the horizon of window {window} again"))?;
            Ok(Beginning { left: start.left, starts: start.starts })
        }
    }
}

/// Above every incarnation that the directory or the totals log has seen.
fn next_incarnation(directory: u64, lanes: &[ChainEnd]) -> u64 {
    lanes.iter().filter_map(|lane| lane.incarnation).fold(directory, u64::max) + 1
}

fn report(resume: Resume, incarnation: u64, frames: &[FrameHead], lanes: &[ChainEnd]) {
    let totals = || lanes.iter().map(|lane| lane.end.unwrap_or(0));
    tracing::info!(
        incarnation,
        frames_first = frames.first().map(|head| head.window.window),
        frames_last = frames.last().map(|head| head.window.window),
        totals_least = totals().min(),
        totals_greatest = totals().max(),
        ?resume,
        "resuming",
    );
    for lane in lanes {
        if let Some(beyond) = lane.beyond_gap {
            tracing::warn!(
                lane = lane.lane,
                end = lane.end,
                beyond,
                "the totals log has a gap in this lane; its totals are produced again from there"
            );
        }
    }
}
