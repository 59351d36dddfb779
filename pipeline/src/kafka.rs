//! The pipeline on Kafka.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBuilder};
use fencepost_model::{Id, WindowId};
use fencepost_sources::log::totals_chain::{self, ChainEnd};
use fencepost_sources::log::{
    FlipsReader, KafkaConfig, KafkaFlipsReader, KafkaTotalsWriter, LogError, PartitionStart, TotalsWriter,
    Waker, WindowSlice, topic_id, topics, windows,
};

use crate::{FlipsTopic, HorizonStart, Metrics, PipelineConfig, PipelineLog, Signals, run_on};

/// Between two lives after an error that passes.
const RETRY_MIN: Duration = Duration::from_millis(200);
/// Between two lives after many such errors.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// While waiting, the stop signal is looked at this often.
const LOOK_FOR_STOP: Duration = Duration::from_millis(50);

/// Runs the pipeline on Kafka until the stop signal or an error that does not pass by itself.
///
/// # Errors
/// See [`run_on`]. After an error that passes, the pipeline resumes from what is in the checkpoint and the totals log.
pub fn run<I: Id>(
    config: &PipelineConfig,
    kafka: &KafkaConfig,
    replay: bool,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    run_measured::<I>(config, kafka, replay, stop, &Arc::default())
}

/// [`run`], counting in `metrics`.
///
/// # Errors
/// As there.
pub fn run_measured<I: Id>(
    config: &PipelineConfig,
    kafka: &KafkaConfig,
    replay: bool,
    stop: &AtomicBool,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<()> {
    let never = AtomicBool::new(false);
    let signals = Signals { stop, abort: &never };
    let log: Arc<dyn PipelineLog<I>> =
        Arc::new(KafkaLog { kafka: kafka.clone(), metrics: Arc::clone(metrics) });
    let backoff = ExponentialBuilder::default()
        .with_min_delay(RETRY_MIN)
        .with_max_delay(RETRY_MAX)
        .without_max_times()
        .with_jitter();
    // A frontier of 1 has no window below it.
    let (mut delays, mut confirmed, mut replay) = (backoff.build(), 1, replay);
    loop {
        let error = match run_on(config, &log, replay, signals, metrics) {
            Err(error) if passes(&error) && !stop.load(Ordering::Acquire) => error,
            end => return end,
        };
        let progress = metrics.frontier.load(Ordering::Relaxed);
        if progress > confirmed {
            // What a replay has produced so far is in the totals log, and the life went well for a while.
            (confirmed, replay, delays) = (progress, false, backoff.build());
        }
        let delay = delays.next().unwrap_or(RETRY_MAX);
        tracing::warn!(error = format!("{error:#}"), ?delay, "the log is away; resuming after a while");
        wait(delay, stop);
    }
}

fn passes(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(LogError::Transient(_)))
}

fn wait(delay: Duration, stop: &AtomicBool) {
    let end = Instant::now() + delay;
    while Instant::now() < end && !stop.load(Ordering::Acquire) {
        std::thread::sleep(LOOK_FOR_STOP.min(end.saturating_duration_since(Instant::now())));
    }
}

struct KafkaLog {
    kafka: KafkaConfig,
    metrics: Arc<Metrics>,
}

impl<I: Id> PipelineLog<I> for KafkaLog {
    fn flips_topic(&self) -> Result<FlipsTopic, LogError> {
        let partitions = topics::verify(&self.kafka)?;
        let id = topic_id::topic_id(&self.kafka, &self.kafka.flips_topic())?;
        Ok(FlipsTopic { id, partitions })
    }

    fn totals_chains(&self) -> Result<Vec<ChainEnd>, LogError> {
        totals_chain::verify(&self.kafka)
    }

    fn first_starts(&self) -> Result<Vec<PartitionStart>, LogError> {
        windows::first_starts(&self.kafka)
    }

    fn horizon_start(&self, window: WindowId, horizon_windows: u32) -> Result<HorizonStart, LogError> {
        let record = windows::at(&self.kafka, window)?.ok_or_else(|| {
            LogError::Refused(format!(
                "window {window}, the last of the totals topic, is not in topic {}: the two do not belong together",
                self.kafka.windows_topic()
            ))
        })?;
        // A window that does not end at a commit counts with the whole one before it.
        let whole = u64::from(horizon_windows) + u64::from(!record.kind.ends_at_commit());
        match windows::before(&self.kafka, window, whole)? {
            Some(left) => {
                Ok(HorizonStart { left: left.window, starts: windows::partition_starts(&self.kafka, &left)? })
            }
            None => Ok(HorizonStart { left: 0, starts: windows::first_starts(&self.kafka)? }),
        }
    }

    fn flips(&self, starts: &[PartitionStart], waker: Waker) -> Result<Box<dyn FlipsReader<I>>, LogError> {
        let reader = KafkaFlipsReader::open(&self.kafka, starts, waker)?;
        Ok(Box::new(CommittingReader { reader, metrics: Arc::clone(&self.metrics), read: VecDeque::new() }))
    }

    fn totals(&self, incarnation: u64, waker: Waker) -> Result<Box<dyn TotalsWriter>, LogError> {
        Ok(Box::new(KafkaTotalsWriter::open(&self.kafka, incarnation, waker)?))
    }
}

/// Commits the offsets of confirmed windows to the consumer group: nothing is resumed from them, but tools that show
/// lag see it.
struct CommittingReader<I> {
    reader: KafkaFlipsReader<I>,
    metrics: Arc<Metrics>,
    /// (window, partition, next offset) of slices that are not confirmed.
    read: VecDeque<(WindowId, u32, i64)>,
}

impl<I: Id> FlipsReader<I> for CommittingReader<I> {
    fn poll(&mut self) -> Result<Option<WindowSlice<I>>, LogError> {
        let frontier = self.metrics.frontier.load(Ordering::Relaxed);
        let mut offsets = Vec::new();
        while let Some((_, partition, offset)) = self.read.front().copied().filter(|read| read.0 < frontier) {
            offsets.push((partition, offset));
            self.read.pop_front();
        }
        if !offsets.is_empty() {
            self.reader.commit(&offsets);
        }
        let slice = self.reader.poll()?;
        self.read.extend(slice.iter().map(|slice| (slice.marker.window, slice.partition, slice.next_offset)));
        Ok(slice)
    }
}
