//! `fencepost up`: all roles in one process.
//!
//! Each role retries what passes in place. When one fails for good the others finish their open window and the
//! process exits, so that a supervisor restarts all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, anyhow, bail};

use super::{apply, pipeline, relay};
use crate::config::Config;
use crate::operations::{self, Role};

pub(super) fn run(config: &Config, stop: &AtomicBool) -> anyhow::Result<()> {
    if config.store.is_empty() {
        bail!("no store is configured; add a section such as [store.redis]");
    }
    let (relayed, piped) = (Arc::default(), Arc::default());
    let applied: Vec<_> = config.store.keys().map(|name| (name, Arc::default())).collect();
    let mut served = vec![Role::Relay(Arc::clone(&relayed)), Role::Pipeline(Arc::clone(&piped))];
    served.extend(
        applied
            .iter()
            .map(|(store, metrics)| Role::Applier { store: store.to_string(), metrics: Arc::clone(metrics) }),
    );
    let _served = operations::serve(&config.http, served)?;
    thread::scope(|scope| {
        // Where a thread cannot be started, those that were would keep the scope open for ever.
        let _stop_all = StopOnDrop(stop);
        let mut roles = vec![
            spawn(scope, "relay".to_owned(), stop, || relay::role(config, stop, &relayed))?,
            spawn(scope, "pipeline".to_owned(), stop, || pipeline::role(config, false, stop, &piped))?,
        ];
        for (name, metrics) in &applied {
            roles.push(spawn(scope, format!("apply {name}"), stop, move || {
                apply::role(config, name, false, stop, metrics)
            })?);
        }
        let ends =
            roles.into_iter().map(|role| role.join().unwrap_or_else(|_| Err(anyhow!("a role panicked"))));
        // All are joined before the first failure is reported.
        ends.collect::<Vec<_>>().into_iter().collect()
    })
}

/// Starts a role on a thread of its own. Whatever way it ends, it stops the others.
fn spawn<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: String,
    stop: &'scope AtomicBool,
    role: impl FnOnce() -> anyhow::Result<()> + Send + 'scope,
) -> anyhow::Result<thread::ScopedJoinHandle<'scope, anyhow::Result<()>>> {
    let builder = thread::Builder::new().name(name.clone());
    let handle = builder.spawn_scoped(scope, move || {
        let stop_others = StopOnDrop(stop);
        let end = role().with_context(|| name.clone());
        if let Err(error) = &end {
            tracing::error!(
                role = name,
                error = format!("{error:#}"),
                "role failed; the others finish their open window"
            );
        }
        drop(stop_others);
        end
    });
    handle.context("starting a thread")
}

/// Raises the flag also when the role panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
