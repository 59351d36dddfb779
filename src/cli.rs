//! The command line.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fencepost_bench::load::LoadOptions;
use tracing_subscriber::EnvFilter;

/// Exact, fresh like counts: a Postgres outbox through Kafka and differential dataflow into fenced counters.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) logging: LoggingArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the configuration comes from: file, then environment, then flags.
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    /// Configuration file; ./fencepost.toml when it exists.
    #[arg(long, global = true, env = "FENCEPOST_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Sets one key, e.g. --set relay.window_ms=250; wins over file and environment. Repeatable.
    #[arg(long = "set", global = true, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// How logs are written: to standard error.
#[derive(Args, Debug)]
pub(crate) struct LoggingArgs {
    /// What to log, e.g. info or fencepost_sources=debug.
    #[arg(long, global = true, env = "FENCEPOST_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
    /// Format of log lines.
    #[arg(long, global = true, env = "FENCEPOST_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl LoggingArgs {
    /// Sends the logs of this process to standard error.
    pub(crate) fn install(&self) {
        let filter = EnvFilter::try_new(&self.log).unwrap_or_else(|error| {
            clap::Error::raw(clap::error::ErrorKind::InvalidValue, format!("--log: {error}\n")).exit()
        });
        let logs = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal());
        match self.log_format {
            LogFormat::Text => logs.init(),
            LogFormat::Json => logs.json().init(),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create tables, publication, topics, slot and functions; finishes what was half done.
    Migrate,
    /// Bring committed flips from the outbox to Kafka, a transaction a window.
    Relay,
    /// Turn the log of flips into totals by lane.
    Pipeline {
        /// Start over from the first window of the log, and write the same totals again.
        #[arg(long)]
        replay: bool,
    },
    /// Bring a store from its fences to the end of the totals log.
    Apply {
        /// The store's name in the configuration.
        #[arg(long, value_name = "NAME")]
        store: String,
        /// Empty the store and build it anew; only while the totals log is complete from its start.
        #[arg(long)]
        from_start: bool,
    },
    /// Run relay, pipeline and the appliers of all stores in one process.
    Up,
    /// Print the records of a topic: flips, windows, totals or dead-letters.
    Dump(DumpArgs),
    /// Print counts and as of when they are exact.
    Get(GetArgs),
    /// Drive likes and unlikes through the database's own functions.
    Load(LoadOptions),
    /// Compare every counter with the edges while nothing is written. Exit code 1: some are wrong; 2: not at rest; 3: it could not be made.
    Audit(AuditArgs),
    /// Print how far each stage has come, how stale it is, and what holds it back. Exit code 1: a service does not answer.
    Status(StatusArgs),
    /// Print the configuration in effect, defaults included, each setting with what it means.
    Config(ConfigCommand),
    /// Print a script that completes the command line, e.g. for ~/.local/share/bash-completion/completions/fencepost.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write the pages of all commands to a folder.
    Man {
        /// Write fencepost.1 and a page for each command to this folder, which must exist.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Print JSON, one line each time.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print again every second, until interrupted.
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ConfigCommand {
    /// Print passwords as they are; otherwise asterisks stand in their place.
    #[arg(long)]
    pub(crate) show_secrets: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DumpArgs {
    /// The topic, without its prefix.
    pub(crate) topic: DumpTopic,
    /// Print from this window on.
    #[arg(long, value_name = "WINDOW")]
    pub(crate) from: Option<u64>,
    /// Print at most so many records.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DumpTopic {
    Flips,
    Windows,
    Totals,
    DeadLetters,
}

#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    /// The items.
    #[arg(required = true, allow_negative_numbers = true)]
    pub(crate) items: Vec<i64>,
    /// The store to read.
    #[arg(long, default_value = "redis", value_name = "NAME")]
    pub(crate) store: String,
}

#[derive(Args, Debug)]
pub(crate) struct AuditArgs {
    /// The store to compare; all of them when none is named.
    #[arg(long, value_name = "NAME")]
    pub(crate) store: Option<String>,
    /// Wait at most so long for the log, and for the fences, to reach the cut.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(crate) timeout_s: u64,
    /// List at most so many wrong items.
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub(crate) list: usize,
}
