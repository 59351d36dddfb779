//! Ready means that windows move, and nothing less: a service that answers a ping while no window is applied serves
//! counts that stand still.

use std::time::{Duration, Instant};

use fencepost_model::WindowId;
use serde::Serialize;

/// When each role was last seen to move a window.
#[derive(Debug)]
pub(super) struct Readiness {
    quiet_max: Duration,
    roles: Vec<Seen>,
}

#[derive(Debug)]
struct Seen {
    role: String,
    /// `None` until the role knows where it stands: that is no progress yet.
    window: Option<WindowId>,
    moved: Option<Instant>,
}

/// The answer to whether a process is ready.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    pub(super) ready: bool,
    roles: Vec<RoleReport>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct RoleReport {
    role: String,
    ready: bool,
    /// For how long it has moved no window; `None` when it has not moved any.
    quiet_ms: Option<u64>,
}

impl Readiness {
    pub(super) fn new(roles: impl IntoIterator<Item = String>, quiet_max: Duration) -> Self {
        let seen = |role| Seen { role, window: None, moved: None };
        Self { quiet_max, roles: roles.into_iter().map(seen).collect() }
    }

    /// Takes note of the window that each role stands at, in the order of the roles; 0 where it does not know yet.
    pub(super) fn look(&mut self, windows: impl IntoIterator<Item = WindowId>, now: Instant) {
        for (seen, window) in self.roles.iter_mut().zip(windows) {
            if window == 0 {
                continue;
            }
            // One that goes back is not moving, and one that makes up for it is.
            if seen.window.is_some_and(|before| window > before) {
                seen.moved = Some(now);
            }
            seen.window = Some(window);
        }
    }

    pub(super) fn report(&self, now: Instant) -> Report {
        let report = |seen: &Seen| {
            let quiet = seen.moved.map(|moved| now.saturating_duration_since(moved));
            RoleReport {
                role: seen.role.clone(),
                ready: quiet.is_some_and(|quiet| quiet <= self.quiet_max),
                quiet_ms: quiet.map(|quiet| u64::try_from(quiet.as_millis()).unwrap_or(u64::MAX)),
            }
        };
        let roles: Vec<_> = self.roles.iter().map(report).collect();
        Report { ready: roles.iter().all(|role| role.ready), roles }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ready(readiness: &Readiness, now: Instant) -> bool {
        readiness.report(now).ready
    }

    #[test]
    fn to_stand_somewhere_is_not_to_move() {
        let (mut readiness, start) = (Readiness::new(["relay".to_owned()], 3 * SECOND), Instant::now());
        assert!(!ready(&readiness, start));
        readiness.look([0], start);
        readiness.look([7], start);
        assert!(!ready(&readiness, start), "it has only found its place");
        readiness.look([8], start);
        assert!(ready(&readiness, start + 3 * SECOND));
        assert!(!ready(&readiness, start + 4 * SECOND), "nothing has moved since");
        readiness.look([8], start + 4 * SECOND);
        assert!(!ready(&readiness, start + 4 * SECOND));
        readiness.look([9], start + 5 * SECOND);
        assert!(ready(&readiness, start + 5 * SECOND));
    }

    #[test]
    fn one_role_that_stands_still_is_enough() {
        let roles = ["relay", "pipeline"].map(str::to_owned);
        let (mut readiness, start) = (Readiness::new(roles, SECOND), Instant::now());
        readiness.look([1, 1], start);
        readiness.look([2, 2], start);
        assert!(ready(&readiness, start));
        readiness.look([3, 2], start + 2 * SECOND);
        let report = readiness.report(start + 2 * SECOND);
        assert!(!report.ready && report.roles[0].ready && !report.roles[1].ready);
        assert_eq!(report.roles[1].quiet_ms, Some(2_000));
    }

    #[test]
    fn a_store_that_went_back_is_moving_once_it_is_repaired() {
        let (mut readiness, start) = (Readiness::new(["apply redis".to_owned()], SECOND), Instant::now());
        readiness.look([8], start);
        readiness.look([5], start + 2 * SECOND);
        assert!(!ready(&readiness, start + 2 * SECOND));
        readiness.look([6], start + 3 * SECOND);
        assert!(ready(&readiness, start + 3 * SECOND));
    }
}
