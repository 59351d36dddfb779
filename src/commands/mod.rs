//! One thin file a subcommand.

mod apply;
mod audit;
mod completions;
mod config;
mod dump;
mod get;
mod load;
mod man;
mod migrate;
mod pipeline;
mod relay;
mod status;
mod up;

use std::process::ExitCode;

use crate::cli::{Cli, Command};
use crate::config::Config;
use crate::shutdown;

/// Runs the subcommand; the exit code says what a script needs to know.
///
/// # Errors
/// When it cannot do what it was asked to; the message says why and what to run next.
pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    // A shell that starts, or a package that is built, has no configuration.
    match &cli.command {
        Command::Completions { shell } => {
            completions::run(*shell);
            return Ok(ExitCode::SUCCESS);
        }
        Command::Man { dir } => return man::run(dir.as_deref()).map(|()| ExitCode::SUCCESS),
        _ => {}
    }
    let config = Config::load(&cli.config)?;
    match cli.command {
        Command::Migrate => migrate::run(&config)?,
        Command::Relay => relay::run(&config, shutdown::requested()?.as_ref())?,
        Command::Pipeline { replay } => pipeline::run(&config, replay, shutdown::requested()?.as_ref())?,
        Command::Apply { store, from_start } => {
            apply::run(&config, &store, from_start, shutdown::requested()?.as_ref())?
        }
        Command::Up => up::run(&config, shutdown::requested()?.as_ref())?,
        Command::Dump(args) => dump::run(&config, &args)?,
        Command::Get(args) => get::run(&config, &args)?,
        Command::Load(options) => load::run(&config, &options, shutdown::requested()?.as_ref())?,
        Command::Audit(args) => return Ok(audit::run(&config, &args)),
        Command::Status(args) => return status::run(&config, args, shutdown::requested()?.as_ref()),
        Command::Config(args) => config::run(&config, &args)?,
        Command::Completions { .. } | Command::Man { .. } => unreachable!("they need no configuration"),
    }
    Ok(ExitCode::SUCCESS)
}
