//! SIGTERM and SIGINT: finish the open window, then exit.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::TERM_SIGNALS;
use signal_hook::flag;

/// A flag that the first signal raises; a second signal ends the process at once.
pub(crate) fn requested() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in TERM_SIGNALS {
        flag::register_conditional_shutdown(*signal, 1, Arc::clone(&stop))
            .context("registering a signal handler")?;
        flag::register(*signal, Arc::clone(&stop)).context("registering a signal handler")?;
    }
    Ok(stop)
}
