//! `fencepost status`: how far each stage has come, seen from outside. It asks Postgres, the log and the stores, and
//! needs no process of Fencepost to run.

mod look;
mod print;

use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::cli::StatusArgs;
use crate::config::Config;

const WATCH_EVERY: Duration = Duration::from_secs(1);

/// How soon an interrupt is noticed, at most.
const STOP_LATENCY: Duration = Duration::from_millis(50);

/// Clears a terminal and goes to its top.
const CLEAR: &str = "\x1b[2J\x1b[H";

pub(super) fn run(config: &Config, args: StatusArgs, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    loop {
        let next = Instant::now() + WATCH_EVERY;
        let status = look::look(config);
        let mut out = std::io::stdout().lock();
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&status)?)?;
        } else {
            let clear = if args.watch { CLEAR } else { "" };
            write!(out, "{clear}{}", print::Table(&status))?;
        }
        out.flush()?;
        drop(out);
        if !args.watch {
            return Ok(if status.is_known() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        while Instant::now() < next {
            if stop.load(Ordering::Relaxed) {
                return Ok(ExitCode::SUCCESS);
            }
            thread::sleep(STOP_LATENCY);
        }
    }
}
