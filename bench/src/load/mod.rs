//! Drives real likes and unlikes through `fencepost.set_like` or `fencepost.set_likes`.
//!
//! Each client is a thread with a connection of its own. What it calls follows from the seed alone; how far it gets
//! before the load ends does not. A call whose answer was lost is made again until it is answered, as the clients of
//! an idempotent function do: whatever happens to the database meanwhile, every edge ends as its last call wanted it.

mod calls;
mod client;
mod database;
mod options;
mod pace;
mod summary;
mod tally;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use self::client::Client;
use self::tally::Tally;

pub use self::calls::VIRAL_ITEM;
pub use self::options::LoadOptions;
pub use self::summary::{Latency, Summary};
pub use self::tally::Progress;

/// How often progress is reported.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Drives load until the options' end is reached or `stop` is set, and returns what happened.
///
/// # Errors
/// When an option is out of its range, or the database refuses a call for good; the other clients are then stopped.
pub fn run(
    postgres_url: &str,
    options: &LoadOptions,
    stop: &AtomicBool,
    progress: impl Fn(&Progress),
) -> anyhow::Result<Summary> {
    options.check()?;
    let database = database::config(postgres_url)?;
    let start = Instant::now();
    let tally = Tally::default();
    let mut latency_us = summary::empty_histogram();
    thread::scope(|threads| {
        let (ended, ends) = mpsc::channel();
        for number in 0..options.clients {
            let client = Client::new(number, &database, options, start, stop, &tally);
            let ended = ended.clone();
            thread::Builder::new()
                .name(format!("load-{number}"))
                .spawn_scoped(threads, move || {
                    // The receiver lives as long as a client does.
                    let _ = ended.send(client.run());
                })
                .context("starting a client's thread")?;
        }
        drop(ended);
        let mut failure = Ok(());
        loop {
            match ends.recv_timeout(PROGRESS_EVERY) {
                Ok(Ok(latencies_us)) => {
                    latency_us.add(latencies_us).expect("all histograms have the same bounds");
                }
                Ok(Err(error)) => {
                    tally.failed.store(true, Ordering::Relaxed);
                    failure = failure.and(Err(error));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => progress(&tally.progress(start)),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        failure
    })?;
    let end = tally.progress(start);
    progress(&end);
    Ok(Summary { latency: Latency::of(&latency_us), ..end.into() })
}
