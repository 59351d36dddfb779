use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::Progress;

/// Longer latencies are counted as this one, in microseconds.
const LATENCY_MAX_US: u64 = 3_600_000_000;

/// What a load did.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// How long it took.
    pub elapsed: Duration,
    /// Calls that were answered.
    pub calls: u64,
    /// Edges that those calls changed.
    pub flips: u64,
    /// Edges that those calls found as they should be: set before, or by an attempt whose answer was lost.
    pub no_ops: u64,
    /// Attempts that failed and were made again.
    pub errors: u64,
    /// How long calls took, from when they were due to their answer, all attempts included.
    pub latency: Latency,
}

/// Percentiles of latency, to three digits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    /// Half of the calls took no longer.
    pub p50: Duration,
    /// 99 % of the calls took no longer.
    pub p99: Duration,
    /// 99.9 % of the calls took no longer.
    pub p999: Duration,
    /// No call took longer.
    pub max: Duration,
}

impl Latency {
    pub(crate) fn of(latency_us: &Histogram<u64>) -> Self {
        let at = |quantile| Duration::from_micros(latency_us.value_at_quantile(quantile));
        Self { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: Duration::from_micros(latency_us.max()) }
    }
}

/// A histogram of latencies in microseconds. All have the same bounds and can be added.
pub(crate) fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).expect("the bounds are valid")
}

impl Summary {
    /// Edges changed a second.
    pub fn flips_per_s(&self) -> f64 {
        self.flips as f64 / self.elapsed.as_secs_f64()
    }
}

impl From<Progress> for Summary {
    fn from(progress: Progress) -> Self {
        let Progress { elapsed, calls, flips, no_ops, errors } = progress;
        Self { elapsed, calls, flips, no_ops, errors, latency: Latency::default() }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { elapsed, calls, flips, no_ops, errors, latency } = self;
        let Latency { p50, p99, p999, max } = latency;
        writeln!(
            f,
            "flips {flips} in {:.1} s ({:.0}/s)  calls {calls}  no-ops {no_ops}  errors {errors}",
            elapsed.as_secs_f64(),
            self.flips_per_s(),
        )?;
        write!(f, "latency p50 {p50:.1?}  p99 {p99:.1?}  p99.9 {p999:.1?}  max {max:.1?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_reads_well() {
        let mut latency_us = empty_histogram();
        latency_us.record_n(420, 990).expect("in bounds");
        latency_us.record_n(12_000, 10).expect("in bounds");
        let progress =
            Progress { elapsed: Duration::from_secs(2), calls: 1_000, flips: 900, no_ops: 100, errors: 3 };
        let summary = Summary { latency: Latency::of(&latency_us), ..progress.into() };
        assert_eq!(
            summary.to_string(),
            "flips 900 in 2.0 s (450/s)  calls 1000  no-ops 100  errors 3\n\
             latency p50 420.0µs  p99 420.0µs  p99.9 12.0ms  max 12.0ms"
        );
    }
}
