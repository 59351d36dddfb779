use std::time::{Duration, Instant};

use super::LoadOptions;

/// When a client's calls are due.
///
/// With a rate the load is open: call n is due at its time whether the calls before have been answered or not, and
/// its latency counts from then. Otherwise a slow answer would hold back the very calls that would have seen it.
pub(crate) struct Pace {
    first: Instant,
    interval: Option<Duration>,
    calls: u32,
}

impl Pace {
    /// The pace of the client with this number, of a load that starts at `start`.
    pub(crate) fn new(options: &LoadOptions, client: u32, start: Instant) -> Self {
        let interval = |rate| Duration::from_secs_f64(f64::from(options.bulk) / rate);
        Self {
            // Clients take turns.
            first: start + options.rate.map_or(Duration::ZERO, |rate| interval(rate) * client),
            interval: options.rate.map(|rate| interval(rate) * options.clients),
            calls: 0,
        }
    }

    /// When the next call is due; `now` when there is no rate.
    pub(crate) fn next(&mut self, now: Instant) -> Instant {
        let Some(interval) = self.interval else { return now };
        if self.calls == u32::MAX {
            self.first += interval * self.calls;
            self.calls = 0;
        }
        let due = self.first + interval * self.calls;
        self.calls += 1;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_a_rate_calls_are_due_evenly_over_all_clients_however_late_they_are() {
        let options = LoadOptions { rate: Some(1_000.0), clients: 4, bulk: 2, ..LoadOptions::default() };
        let start = Instant::now();
        let late = start + Duration::from_secs(60);
        let mut due: Vec<_> = (0..4)
            .flat_map(|client| {
                let mut pace = Pace::new(&options, client, start);
                [pace.next(late), pace.next(late)]
            })
            .map(|due| due - start)
            .collect();
        due.sort();
        let even: Vec<_> = (0..8).map(|n| Duration::from_millis(2) * n).collect();
        assert_eq!(due, even);
    }

    #[test]
    fn without_a_rate_the_next_call_is_due_now() {
        let start = Instant::now();
        let now = start + Duration::from_secs(3);
        assert_eq!(Pace::new(&LoadOptions::default(), 1, start).next(now), now);
    }
}
