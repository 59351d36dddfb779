use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use backon::{BlockingRetryable, ExponentialBuilder};
use hdrhistogram::Histogram;
use postgres::Config;

use super::LoadOptions;
use super::calls::{Call, Calls};
use super::database::{Connection, is_transient};
use super::pace::Pace;
use super::summary::empty_histogram;
use super::tally::Tally;

/// How long a client sleeps before it looks again whether it shall stop.
const NAP_MAX: Duration = Duration::from_millis(50);

/// Attempts at one call before the database is given up: some five minutes at the longest wait.
const ATTEMPTS_MAX: usize = 300;

/// One client of a load.
pub(crate) struct Client<'a> {
    database: &'a Config,
    connection: Option<Connection>,
    calls: Calls,
    pace: Pace,
    deadline: Option<Instant>,
    flips_max: u64,
    stop: &'a AtomicBool,
    tally: &'a Tally,
}

impl<'a> Client<'a> {
    pub(crate) fn new(
        number: u32,
        database: &'a Config,
        options: &LoadOptions,
        start: Instant,
        stop: &'a AtomicBool,
        tally: &'a Tally,
    ) -> Self {
        Self {
            database,
            connection: None,
            calls: Calls::new(options, number),
            pace: Pace::new(options, number, start),
            deadline: options.seconds.map(|seconds| start + Duration::from_secs(seconds)),
            flips_max: options.flips.unwrap_or(u64::MAX),
            stop,
            tally,
        }
    }

    /// Calls until the load ends, and returns the latencies.
    pub(crate) fn run(mut self) -> anyhow::Result<Histogram<u64>> {
        let mut latency_us = empty_histogram();
        while let Some(due) = self.wait_for_the_next_call() {
            let call = self.calls.next();
            let Some(flips) = attempt(&mut self.connection, self.database, call, self.stop, self.tally)?
            else {
                break;
            };
            let edges = call.items.len() as u64;
            latency_us.saturating_record(u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX));
            self.tally.calls.fetch_add(1, Ordering::Relaxed);
            self.tally.flips.fetch_add(flips, Ordering::Relaxed);
            self.tally.no_ops.fetch_add(edges - flips, Ordering::Relaxed);
        }
        Ok(latency_us)
    }

    /// When the call that is to be made now was due, or `None` when the load ends.
    fn wait_for_the_next_call(&mut self) -> Option<Instant> {
        let due = self.pace.next(Instant::now());
        loop {
            let now = Instant::now();
            let over = self.deadline.is_some_and(|deadline| now.max(due) >= deadline)
                || self.tally.flips.load(Ordering::Relaxed) >= self.flips_max;
            if over || must_stop(self.stop, self.tally) {
                return None;
            }
            if due <= now {
                return Some(due);
            }
            thread::sleep((due - now).min(NAP_MAX));
        }
    }
}

fn must_stop(stop: &AtomicBool, tally: &Tally) -> bool {
    stop.load(Ordering::Relaxed) || tally.failed.load(Ordering::Relaxed)
}

/// Makes the call until it is answered. `None` when the load was stopped first: whether the call was carried out is
/// then not known.
fn attempt(
    connection: &mut Option<Connection>,
    database: &Config,
    call: &Call,
    stop: &AtomicBool,
    tally: &Tally,
) -> anyhow::Result<Option<u64>> {
    let backoff = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(10))
        .with_max_delay(Duration::from_secs(1))
        .with_max_times(ATTEMPTS_MAX)
        .with_jitter();
    let once = || {
        // After any failure the connection is left: what it would answer next is not known.
        let mut open = match connection.take() {
            Some(open) => open,
            None => Connection::open(database)?,
        };
        let flips = open.make(call)?;
        *connection = Some(open);
        Ok(flips)
    };
    let answer = once
        .retry(backoff)
        .when(|error: &postgres::Error| is_transient(error) && !must_stop(stop, tally))
        .notify(|error, _| {
            tally.errors.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%error, "a call failed and is made again");
        })
        .call();
    match answer {
        Ok(flips) => Ok(Some(flips)),
        Err(error) if is_transient(&error) && must_stop(stop, tally) => Ok(None),
        Err(error) => Err(error).context(
            "setting likes; if fencepost.set_like is missing, run fencepost migrate; if the database is away, start it",
        ),
    }
}
