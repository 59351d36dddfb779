//! The worker threads: steps the dataflow, watches for the end.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use crossbeam_channel::{RecvTimeoutError, TryRecvError};
use fencepost_model::{Id, WindowId};
use fencepost_sources::log::{FlipsReader, LogError, PartitionStart, Waker, WindowSlice};
use timely::scheduling::SyncActivator;
use timely::worker::Worker;

use crate::checkpoint::{Checkpoint, WriterThread};
use crate::dataflow::{self, Dataflow};
use crate::failure::Failure;
use crate::intake::Intake;
use crate::stages::slices::SourceParts;
use crate::{Metrics, PipelineConfig, PipelineLog, Signals};

/// The ports are asked again after this long, whoever forgot to wake the worker.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// How often the stop signal is looked at.
const LOOK_FOR_STOP: Duration = Duration::from_millis(20);

/// Told to stop, the log has so long to confirm another window; what it has not is made again by the next pipeline.
const FINISH_PATIENCE: Duration = Duration::from_secs(10);

/// How often progress is logged.
const REPORT: Duration = Duration::from_secs(10);

/// What every worker is given.
pub(crate) struct Job<I> {
    pub(crate) config: PipelineConfig,
    pub(crate) log: Arc<dyn PipelineLog<I>>,
    pub(crate) starts: Vec<PartitionStart>,
    pub(crate) incarnation: u64,
    pub(crate) metrics: Arc<Metrics>,
}

/// Runs the workers until the stop signal or the first error.
pub(crate) fn execute<I: Id>(
    job: Job<I>,
    checkpoint: Checkpoint<I>,
    writer: WriterThread,
    signals: Signals<'_>,
) -> anyhow::Result<()> {
    let intake = Arc::new(Intake::new(checkpoint.restored().window));
    let failure = Failure::default();
    let (config, metrics) = (timely_config(&job.config), Arc::clone(&job.metrics));
    let (finished, ends) = crossbeam_channel::bounded::<()>(0);
    // Rows of a life before have gone with its workers.
    metrics.remembered_rows.store(0, Ordering::Relaxed);
    let shared = WorkerShared {
        _finished: finished,
        job,
        checkpoint: Mutex::new(checkpoint),
        intake: Arc::clone(&intake),
        failure: failure.clone(),
    };
    let guards = timely::execute(config, move |worker| run_worker(worker, &shared))
        .map_err(|error| anyhow::anyhow!("cannot start the dataflow's workers: {error}"))?;
    watch(&ends, &writer, &intake, &failure, &metrics, signals);
    let mut panicked = false;
    for guard in guards.join() {
        panicked |= guard.is_err();
    }
    let written = writer.join();
    if let Some(error) = failure.take() {
        return Err(written.err().unwrap_or(error));
    }
    anyhow::ensure!(!panicked, "a worker of the dataflow panicked; its message is above");
    written
}

fn timely_config(config: &PipelineConfig) -> timely::Config {
    let mut timely = match config.workers() {
        1 => timely::Config::thread(),
        workers => timely::Config::process(workers),
    };
    let effort = isize::try_from(config.idle_merge_effort).unwrap_or(isize::MAX);
    let differential = differential_dataflow::Config::default().idle_merge_effort(Some(effort));
    differential_dataflow::configure(&mut timely.worker, &differential);
    timely
}

/// Waits for the workers; passes on the stop signal, reports progress, and notices when the writer has failed.
fn watch(
    ends: &crossbeam_channel::Receiver<()>,
    writer: &WriterThread,
    intake: &Intake,
    failure: &Failure,
    metrics: &Metrics,
    signals: Signals<'_>,
) {
    let mut reported = Instant::now();
    let mut patience = Patience::default();
    let mut flips = metrics.flips.load(Ordering::Relaxed);
    while ends.recv_timeout(LOOK_FOR_STOP) == Err(RecvTimeoutError::Timeout) {
        if signals.stop.load(Ordering::Acquire) && intake.last().is_none() {
            intake.stop();
            tracing::info!(last_window = intake.last(), "stopping: finishing the windows taken");
        }
        if let Some(last) = intake.last()
            && patience.is_over(metrics.frontier.load(Ordering::Relaxed), Instant::now())
        {
            failure.set(anyhow::anyhow!(
                "told to stop, but no window was confirmed for {} s, and window {last} is not: the brokers may be away; the \
                 next start makes again what is missing",
                FINISH_PATIENCE.as_secs()
            ));
        }
        if signals.abort.load(Ordering::Acquire) {
            failure.set(anyhow::anyhow!("aborted"));
        }
        // The writer also ends when the last worker has gone, but then the workers have hung up before.
        if writer.has_ended() && ends.try_recv() == Err(TryRecvError::Empty) && !failure.is_set() {
            failure.set(anyhow::anyhow!("the checkpoint's writer has stopped"));
        }
        if reported.elapsed() >= REPORT {
            let seconds = reported.elapsed().as_secs_f64();
            let now = metrics.flips.load(Ordering::Relaxed);
            tracing::info!(
                taken = metrics.taken.load(Ordering::Relaxed),
                confirmed_below = metrics.frontier.load(Ordering::Relaxed),
                flips_per_second = ((now - flips) as f64 / seconds).round(),
                remembered_rows = metrics.remembered_rows.load(Ordering::Relaxed),
                "progress",
            );
            (reported, flips) = (Instant::now(), now);
        }
    }
}

/// How long the frontier has stood still since the stop.
#[derive(Default)]
struct Patience(Option<(WindowId, Instant)>);

impl Patience {
    fn is_over(&mut self, frontier: WindowId, now: Instant) -> bool {
        let since = match self.0 {
            Some((seen, since)) if seen == frontier => since,
            _ => now,
        };
        self.0 = Some((frontier, since));
        now.duration_since(since) >= FINISH_PATIENCE
    }
}

/// What the workers' closures share; `ends` of the watcher hang up when the last of them has gone.
struct WorkerShared<I> {
    /// Dropped first: whoever sees the writer end for want of workers also sees that these have ended.
    _finished: crossbeam_channel::Sender<()>,
    job: Job<I>,
    checkpoint: Mutex<Checkpoint<I>>,
    intake: Arc<Intake>,
    failure: Failure,
}

/// Reports a worker that unwinds, so that the others do not wait for it.
struct Unwinding<'a>(&'a Failure);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set(anyhow::anyhow!("a worker of the dataflow panicked; its message is above"));
        }
    }
}

fn run_worker<I: Id>(worker: &mut Worker, shared: &WorkerShared<I>) {
    let _unwinding = Unwinding(&shared.failure);
    let checkpoint = shared.checkpoint.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut dataflow = match open(worker, shared, checkpoint.clone()) {
        Ok(dataflow) => dataflow,
        Err(error) => return shared.failure.set(error),
    };
    let mut asked = Instant::now();
    while !shared.failure.is_set() && !finished(&shared.intake, dataflow.frontier()) {
        worker.step_or_park(Some(ASK_AGAIN));
        if dataflow.advance() {
            checkpoint.confirm(dataflow.frontier());
        }
        if asked.elapsed() >= ASK_AGAIN {
            dataflow.activate();
            asked = Instant::now();
        }
    }
    dataflow.drop_from(worker);
}

/// Whether every window that was begun before the stop is confirmed.
fn finished(intake: &Intake, frontier: WindowId) -> bool {
    intake.last().is_some_and(|last| frontier > last)
}

fn open<I: Id>(
    worker: &mut Worker,
    shared: &WorkerShared<I>,
    checkpoint: Checkpoint<I>,
) -> anyhow::Result<Dataflow<I>> {
    let WorkerShared { job, intake, failure, .. } = shared;
    let (index, peers) = (worker.index(), worker.peers());
    let is_own = |start: &&PartitionStart| start.partition as usize % peers == index;
    let starts: Vec<_> = job.starts.iter().filter(is_own).copied().collect();
    let (wake_source, wake_totals) = (LateWaker::default(), LateWaker::default());
    let reader: Box<dyn FlipsReader<I>> = if starts.is_empty() {
        Box::new(NoPartitions)
    } else {
        job.log.flips(&starts, wake_source.waker()).context("cannot open the flips topic")?
    };
    let writer =
        job.log.totals(job.incarnation, wake_totals.waker()).context("cannot open the totals topic")?;
    let parts = SourceParts {
        partitions: starts.iter().map(|start| start.partition).collect(),
        reader,
        checkpoint: checkpoint.clone(),
        intake: Arc::clone(intake),
        windows_in_flight: job.config.windows_in_flight as usize,
        metrics: Arc::clone(&job.metrics),
    };
    let dataflow = dataflow::build(worker, parts, writer, failure);
    wake_source.set(dataflow.source.clone());
    wake_totals.set(dataflow.totals.clone());
    checkpoint.wake(wake_source.waker());
    Ok(dataflow)
}

/// For workers beyond the number of partitions: they only total lanes.
struct NoPartitions;

impl<I> FlipsReader<I> for NoPartitions {
    fn poll(&mut self) -> Result<Option<WindowSlice<I>>, LogError> {
        Ok(None)
    }
}

/// Wakes an operator that does not exist yet when the ports are opened.
#[derive(Clone, Default)]
struct LateWaker(Arc<Mutex<Option<SyncActivator>>>);

impl LateWaker {
    fn set(&self, activator: SyncActivator) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(activator);
    }

    fn waker(&self) -> Waker {
        let activator = Arc::clone(&self.0);
        Box::new(move || {
            // A worker that has gone needs no waking.
            if let Some(activator) = &*activator.lock().unwrap_or_else(PoisonError::into_inner) {
                let _ = activator.activate();
            }
        })
    }
}
