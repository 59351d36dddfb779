//! `fencepost audit`.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use fencepost_reconcile::{Audit, Drift, NotAtRest};

use crate::cli::AuditArgs;
use crate::config::Config;

/// Some counters are wrong. Of several stores, one that is wrong decides.
const WRONG: u8 = 1;
/// Something was written meanwhile: no verdict.
const NOT_AT_REST: u8 = 2;
/// The audit could not be made: no verdict either, and not to be taken for one.
const FAILED: u8 = 3;

pub(super) fn run(config: &Config, args: &AuditArgs) -> ExitCode {
    audit(config, args).unwrap_or_else(|error| {
        tracing::error!(error = format!("{error:#}"), "audit failed");
        FAILED.into()
    })
}

fn audit(config: &Config, args: &AuditArgs) -> anyhow::Result<ExitCode> {
    let names: Vec<&String> = match &args.store {
        Some(name) => vec![name],
        None => config.store.keys().collect(),
    };
    if names.is_empty() {
        bail!("no store is configured; add a section such as [store.redis]");
    }
    let mut codes = Vec::new();
    for name in names {
        let timeout = Duration::from_secs(args.timeout_s);
        let audit =
            fencepost_reconcile::audit(&config.postgres.url, &config.kafka, config.store(name)?, timeout)
                .with_context(|| format!("store {name}"))?;
        codes.push(print(name, &audit, args.list)?);
    }
    let code = [WRONG, NOT_AT_REST].into_iter().find(|code| codes.contains(code));
    Ok(code.map_or(ExitCode::SUCCESS, ExitCode::from))
}

fn print(store: &str, audit: &Result<Audit, NotAtRest>, list: usize) -> anyhow::Result<u8> {
    let mut out = std::io::stdout().lock();
    match audit {
        Ok(Audit { window, comparison }) => {
            let wrong = comparison.wrong.len();
            writeln!(out, "store {store} window {window} items {} wrong {wrong}", comparison.items)?;
            for Drift { item, edges, counter } in comparison.wrong.iter().take(list) {
                let counter = counter.map_or("no number".to_owned(), |n| n.to_string());
                writeln!(out, "wrong item {item} edges {edges} counter {counter}")?;
            }
            if wrong > list {
                writeln!(out, "and {} more; --list shows them", wrong - list)?;
            }
            Ok(if wrong == 0 { 0 } else { WRONG })
        }
        Err(NotAtRest { window, events }) => {
            writeln!(
                out,
                "store {store} not at rest: {events} events after window {window}; pause writes and run again"
            )?;
            Ok(NOT_AT_REST)
        }
    }
}
