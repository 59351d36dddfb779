use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything that ends well takes on a busy machine of two cores.
const LIMIT: Duration = Duration::from_secs(300);

/// Waits until the state is reached; the only place of the tests that sleeps.
///
/// # Panics
/// When it is not reached in five minutes: the test has failed.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < LIMIT, "not reached in {LIMIT:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
