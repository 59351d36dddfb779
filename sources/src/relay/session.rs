use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use backon::{BackoffBuilder, ExponentialBuilder};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::control::Control;
use super::housekeeping::Housekeeper;
use super::stream::Stream;
use super::{Failure, Log, Relay, RelayConfig, RelayMetrics, check};
use crate::log::windows::{self, History};
use crate::log::{KafkaConfig, KafkaWindowLog, LogError, topic_id, topics};

/// The longest pause between two attempts to start.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How long to wait for changes before looking whether a window is due, and whether to stop.
const POLL: Duration = Duration::from_millis(5);

/// At the end, the open window has so long to reach a commit; otherwise it is aborted, and the next relay sends it again.
const FINISH_PATIENCE: Duration = Duration::from_secs(10);

/// An open Kafka transaction must not wait for a silent stream until the brokers abort it.
const OPEN_SILENCE_MAX: Duration = Duration::from_secs(20);

/// Silence is waited for at most this long.
const SILENCE_MAX: Duration = Duration::from_secs(3_600);

/// Relays until `stop` is set: then the open window is finished. Whatever passes is waited for and tried again. What it
/// does is counted in `metrics`.
///
/// # Errors
/// When another relay is at work or has taken over, when database, slot or topics are not what the log says they
/// are, or when the configuration is out of its ranges. The message says what to run next.
pub fn run(
    postgres_url: &str,
    config: &RelayConfig,
    kafka: &KafkaConfig,
    stop: &AtomicBool,
    metrics: &RelayMetrics,
) -> anyhow::Result<()> {
    config.pace()?;
    let postgres: postgres::Config = postgres_url.parse().context("cannot read postgres.url")?;
    let backoff = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(PAUSE_MAX)
        .with_jitter()
        .without_max_times();
    let mut delays = backoff.build();
    let mut silence = Duration::from_millis(config.silence_ms);
    while !stop.load(Ordering::Relaxed) {
        let mut session = Session { postgres: &postgres, config, kafka, stop, metrics, silence, windows: 0 };
        match session.run() {
            Ok(()) => break,
            Err(Ended::Silent) => {
                silence = (silence * 2).min(SILENCE_MAX);
                tracing::warn!(
                    next_patience_ms = silence.as_millis(),
                    "replication stream is silent: reconnecting"
                );
            }
            Err(Ended::Failed(Failure::Transient(reason))) => {
                tracing::warn!(reason, windows = session.windows, "relay session ended: starting again");
            }
            Err(Ended::Failed(failure)) => {
                tracing::error!(reason = %failure, "relay stops");
                return Err(failure.into());
            }
        }
        if session.windows > 0 {
            delays = backoff.build();
            silence = Duration::from_millis(config.silence_ms);
        }
        pause(delays.next().unwrap_or(PAUSE_MAX), stop);
    }
    tracing::info!("relay finished");
    Ok(())
}

/// Waits, but not once `stop` is set.
fn pause(delay: Duration, stop: &AtomicBool) {
    let until = Instant::now() + delay;
    while !stop.load(Ordering::Relaxed) && Instant::now() < until {
        thread::sleep(POLL.min(until.saturating_duration_since(Instant::now())));
    }
}

/// Why a session ended early.
enum Ended {
    Failed(Failure),
    Silent,
}

impl<E: Into<Failure>> From<E> for Ended {
    fn from(error: E) -> Self {
        Ended::Failed(error.into())
    }
}

/// One run of the start protocol, and the relaying that follows until something fails.
struct Session<'a> {
    postgres: &'a postgres::Config,
    config: &'a RelayConfig,
    kafka: &'a KafkaConfig,
    stop: &'a AtomicBool,
    metrics: &'a RelayMetrics,
    silence: Duration,
    /// Windows closed so far.
    windows: u64,
}

impl Session<'_> {
    fn run(&mut self) -> Result<(), Ended> {
        let mut control = Control::lock(self.postgres, &self.config.slot)?;
        let source = control.source(self.config)?;
        let refuse = |refusal: super::Refusal| Failure::Refused(refusal.to_string());
        let history = History::open(self.kafka)?;
        let mut found = self.log(&history)?;
        check(self.config, &source, &found).map_err(refuse)?;

        let id = self.config.transactional_id(&self.kafka.topic_prefix);
        let mut log = KafkaWindowLog::take_over(self.kafka, &id, found.partitions)?;
        found.last = match found.last {
            Some(known) => Some(history.last_from(known)?),
            None => history.last()?,
        };
        drop(history);
        let origin = check(self.config, &source, &found).map_err(refuse)?;

        let pace = self.config.pace().map_err(|error| Failure::Refused(error.to_string()))?;
        let relay = Relay::resume(pace, origin, found.last.as_ref(), now_ms());
        let stream = Stream::start(self.postgres, self.config, relay.acknowledged())?;
        self.metrics.took_over();
        let position = found.last.as_ref().map(|last| last.position);
        tracing::info!(
            window = found.last.as_ref().map_or(0, |last| last.window),
            epoch = position.map(|position| position.epoch),
            lsn = position.map(|position| super::change::lsn(position.lsn)),
            index = position.map(|position| position.index),
            slot = self.config.slot,
            partitions = found.partitions,
            "relay resumed"
        );

        let housekeeper = Housekeeper::start(self.postgres, self.config)?;
        let period = Duration::from_millis(self.config.heartbeat_ms());
        let (end, ended) = bounded::<()>(0);
        let (fail, failed) = bounded(1);
        let heart = thread::Builder::new()
            .name("heartbeat".to_owned())
            .spawn(move || beat(control, period, &ended, &fail))
            .map_err(|error| Failure::Transient(format!("cannot start the heartbeat thread: {error}")))?;
        let outcome = self.relay(relay, &mut log, &stream, &failed);
        drop((end, stream, log, housekeeper));
        // The lock is given up before anything else begins: it bounds this wait by its own time-outs.
        if heart.join().is_err() {
            return Err(Failure::Transient("heartbeat thread panicked".to_owned()).into());
        }
        outcome
    }

    fn log(&self, history: &History) -> Result<Log, LogError> {
        let partitions = topics::verify(self.kafka)?;
        let flips_topic = topic_id::topic_id(self.kafka, &self.kafka.flips_topic())?;
        let last = history.last()?;
        let history_is_lost = last.is_none() && windows::flips_hold_windows(self.kafka)?;
        Ok(Log { flips_topic, partitions, last, history_is_lost })
    }

    fn relay(
        &mut self,
        mut relay: Relay,
        log: &mut KafkaWindowLog,
        stream: &Stream,
        failed: &Receiver<Failure>,
    ) -> Result<(), Ended> {
        let mut heard = Instant::now();
        let mut finish_by = None;
        loop {
            if finish_by.is_none() && self.stop.load(Ordering::Relaxed) {
                relay.finish();
                finish_by = Some(Instant::now() + FINISH_PATIENCE);
            }
            if let Ok(failure) = failed.try_recv() {
                return Err(failure.into());
            }
            match stream.batches.recv_timeout(POLL) {
                Ok(batch) => {
                    for change in batch? {
                        self.step(&mut relay, log, stream, |relay, log, now| relay.apply(change, now, log))?;
                        if finish_by.is_some() && relay.is_at_rest() {
                            return Ok(());
                        }
                    }
                    heard = Instant::now();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::Transient("replication thread ended".to_owned()).into());
                }
            }
            self.step(&mut relay, log, stream, |relay, log, now| relay.tick(now, log))?;
            log.poll()?;
            if let Some(finish_by) = finish_by
                && (relay.is_at_rest() || Instant::now() >= finish_by)
            {
                if !relay.is_at_rest() {
                    tracing::warn!(
                        "open window reached no commit in time: aborted, the next relay sends it again"
                    );
                }
                return Ok(());
            }
            let patience =
                if relay.holds_window_open() { self.silence.min(OPEN_SILENCE_MAX) } else { self.silence };
            if heard.elapsed() >= patience {
                return Err(Ended::Silent);
            }
        }
    }

    /// Lets the relay act, and tells what came of it.
    fn step(
        &mut self,
        relay: &mut Relay,
        log: &mut KafkaWindowLog,
        stream: &Stream,
        act: impl FnOnce(&mut Relay, &mut KafkaWindowLog, u64) -> Result<Option<super::Closed>, LogError>,
    ) -> Result<(), Ended> {
        if let Some(closed) = act(relay, log, now_ms())? {
            self.windows += 1;
            self.metrics.closed(&closed);
            stream.acknowledge(relay.acknowledged());
            tracing::debug!(
                window = closed.window,
                events = closed.events,
                kind = closed.kind.as_str(),
                commit_ms = log.commit_ms(),
                "window closed"
            );
        }
        Ok(())
    }
}

fn beat(control: Control, period: Duration, ended: &Receiver<()>, fail: &Sender<Failure>) {
    if let Err(failure) = control.beat(period, ended) {
        // One failure ends the session; there is room for it.
        let _ = fail.try_send(failure);
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
