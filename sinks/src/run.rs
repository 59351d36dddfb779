//! Runs an applier: admits it, steps it, waits between steps, and retries what passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use anyhow::ensure;
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use fencepost_model::Id;
use fencepost_model::totals::STORE_NAME_BYTES_MAX;
use fencepost_sources::log::{KafkaConfig, KafkaTotalsReader, LogError, totals_chain};
use tracing::{info, warn};

use crate::admission::{Admission, LogStart, Preparation, Situation};
use crate::applier::{Applier, ApplyError};
use crate::config::StoreConfig;
use crate::metrics::ApplierMetrics;
use crate::postgres::{ColumnId, PostgresStore};
use crate::redis::RedisStore;
use crate::registry::Registry;
use crate::store::{Buildable, Store};
use crate::watch::Watch;

/// How soon a stop is noticed, at most.
const STOP_LATENCY: Duration = Duration::from_millis(100);

/// While the log is silent, the store is asked this often whether it still stands where it was left.
const VERIFY_EVERY: Duration = Duration::from_secs(2);

/// Waits between attempts grow from the first to the second.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// Applies the totals log to the store of this name until told to stop. With `from_start`, first discards what the store
/// holds and builds it again from the first window.
///
/// What passes (a store, a broker or the database away, for however long) is retried in place. When stopped, a step that
/// was begun is finished. What it does is counted in `metrics`.
///
/// # Errors
/// When the store is refused, the log has a gap, or a configuration is wrong; the message says what to run next.
pub fn run<I: ColumnId>(
    name: &str,
    config: &StoreConfig,
    kafka: &KafkaConfig,
    postgres_url: &str,
    from_start: bool,
    stop: &AtomicBool,
    metrics: &Arc<ApplierMetrics>,
) -> anyhow::Result<()> {
    ensure!(
        (1..=STORE_NAME_BYTES_MAX).contains(&name.len()),
        "store name {name:?} is not of 1 to {STORE_NAME_BYTES_MAX} bytes: rename the section [store.NAME]"
    );
    let from = Sources { name, kafka, postgres_url, from_start, metrics };
    match config {
        StoreConfig::Redis(config) => drive::<I, _>(RedisStore::new(config)?, &from, stop),
        StoreConfig::Postgres(config) => drive::<I, _>(PostgresStore::new(config)?, &from, stop),
    }
}

/// Where an applier of the store of this name finds the rest.
struct Sources<'a> {
    name: &'a str,
    kafka: &'a KafkaConfig,
    postgres_url: &'a str,
    from_start: bool,
    metrics: &'a Arc<ApplierMetrics>,
}

/// Admits the store and applies to it until told to stop.
fn drive<I: Id, S: Store<I> + Buildable>(
    mut store: S,
    from: &Sources<'_>,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let Sources { name, kafka, metrics, .. } = *from;
    let mut patience = Patience::new(name, stop);

    let admit = || admit::<I, _>(&mut store, from);
    let Some(generation) = patience.until_done(admit)? else { return Ok(()) };
    let open = || open_reader::<I>(kafka);
    let Some(reader) = patience.until_done(open)? else { return Ok(()) };

    let mut applier = Applier::new(name, generation, reader, store, Arc::clone(metrics));
    info!(store = name, generation, "applier started");
    let (mut watch, mut verified) = (Watch::new(name), Instant::now());
    while !patience.stopped() {
        match turn(&mut applier, &mut verified) {
            Ok(true) => patience.reset(),
            Ok(false) => {
                patience.reset();
                thread::park_timeout(STOP_LATENCY);
            }
            Err(error) if error.is_transient() => {
                patience.wait(&error);
                if matches!(error, ApplyError::Log(_)) {
                    match patience.until_done(open)? {
                        Some(reader) => applier.replace_reader(reader),
                        None => break,
                    }
                }
            }
            Err(error) => return Err(error.into()),
        }
        if let Some(standing) = applier.standing() {
            metrics.stands_at(&standing.least);
            watch.report(standing);
        }
    }
    info!(store = name, ?metrics, "applier stopped");
    Ok(())
}

/// A step; while there is nothing to do, a look now and then whether the store went back. `false` when idle.
fn turn<I: Id, S: Store<I>>(
    applier: &mut Applier<I, KafkaTotalsReader<I>, S>,
    verified: &mut Instant,
) -> Result<bool, ApplyError> {
    let worked = applier.step()?;
    if worked {
        *verified = Instant::now();
    } else if verified.elapsed() >= VERIFY_EVERY {
        *verified = Instant::now();
        applier.verify()?;
    }
    Ok(worked)
}

/// A reader that wakes this thread.
fn open_reader<I: Id>(kafka: &KafkaConfig) -> Result<KafkaTotalsReader<I>, LogError> {
    let stepper: Thread = thread::current();
    KafkaTotalsReader::open(kafka, Box::new(move || stepper.unpark()))
}

/// Decides whether the store may be written, builds it if it is to be built, and returns its generation.
fn admit<I: Id, S: Store<I> + Buildable>(store: &mut S, from: &Sources<'_>) -> Result<u64, ApplyError> {
    let Sources { name, kafka, postgres_url, from_start, .. } = *from;
    let mut registry = Registry::open(postgres_url)?;
    registry.hold(name)?;
    let registered = registry.generation(name)?;
    let fences = if from_start { store.readable_fences()? } else { store.fences()? };
    let build = match (Situation { name, registered, fences: &fences, from_start }).admit()? {
        Admission::Go { generation } => return Ok(generation),
        Admission::Build(build) => build,
    };
    build.check(name, log_start(kafka)?)?;
    match build.first {
        Preparation::SeeThatItIsEmpty => build.check_empty(name, store.is_empty::<I>()?)?,
        Preparation::Clear => store.clear::<I>()?,
        Preparation::Done => {}
    }
    let generation = build.generation;
    store.create(generation)?;
    registry.register(name, generation)?;
    info!(store = name, generation, prepared = ?build.first, "store is built from the first window");
    Ok(generation)
}

fn log_start(kafka: &KafkaConfig) -> Result<LogStart, LogError> {
    let chains = totals_chain::verify(kafka)?;
    let incomplete = chains.iter().filter(|chain| match chain.first {
        Some((_, before)) => before != 0,
        None => chain.log_start != 0,
    });
    Ok(LogStart { incomplete_lanes: incomplete.count() })
}

/// Waits between attempts, for as long as it takes or until stopped.
struct Patience<'a> {
    name: &'a str,
    stop: &'a AtomicBool,
    delays: ExponentialBackoff,
}

impl<'a> Patience<'a> {
    fn new(name: &'a str, stop: &'a AtomicBool) -> Self {
        Self { name, stop, delays: Self::delays() }
    }

    fn delays() -> ExponentialBackoff {
        let (least, most) = RETRY_DELAYS;
        let builder = ExponentialBuilder::new().with_min_delay(least).with_max_delay(most);
        builder.without_max_times().with_jitter().build()
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn reset(&mut self) {
        self.delays = Self::delays();
    }

    /// Tries until it succeeds or fails for good; `None` when stopped.
    fn until_done<T, E: Into<ApplyError>>(
        &mut self,
        mut attempt: impl FnMut() -> Result<T, E>,
    ) -> Result<Option<T>, ApplyError> {
        while !self.stopped() {
            match attempt().map_err(Into::into) {
                Ok(done) => return Ok(Some(done)),
                Err(error) if error.is_transient() => self.wait(&error),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Says what is waited for, and waits.
    fn wait(&mut self, error: &ApplyError) {
        let delay = self.delays.next().unwrap_or(RETRY_DELAYS.1);
        warn!(store = self.name, %error, ?delay, "applier waits and tries again");
        let until = Instant::now() + delay;
        while !self.stopped()
            && let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            thread::park_timeout(left.min(STOP_LATENCY));
        }
    }
}
