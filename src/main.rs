//! `fencepost`: exact, fresh like counts beside an existing write API. See the README.

mod cli;
mod commands;
mod config;
mod operations;
mod shutdown;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;

/// Memory comes back after windows leave the horizon, and allocation of many small rows stays cheap.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    cli.logging.install();
    match commands::run(cli) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "stopped");
            ExitCode::FAILURE
        }
    }
}
