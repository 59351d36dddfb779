//! A fuzz of the record decoders: whatever stands in a topic or a store is decoded or refused, and nothing else happens.
//!
//! Inputs are records of ours, damaged ([`damage`]), and plain garbage. It runs for as long as `FUZZ_SECONDS` says, which
//! the targets share: a second by default, a minute in `.ci/run`, a night when a codec has changed. It is blind: nothing
//! tells it which branches it has reached, as `cargo fuzz` would, which needs a nightly compiler. Instead the inputs
//! stay close to records, and each target proves that it has seen both records and refusals. A failure is shrunk, and
//! printed: make a unit test of it, beside the codec.

mod damage;
mod targets;

use std::cell::Cell;
use std::time::{Duration, Instant};

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

/// Number of targets that share the time.
const TARGETS: u32 = 4;

/// Cases between two looks at the clock.
const CASES: u32 = 256;

/// What a decoder made of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Decoded,
    Refused,
}

/// Feeds a target until its share of the time is over.
fn fuzz<S: Strategy>(inputs: S, target: impl Fn(S::Value) -> Result<Outcome, TestCaseError>) {
    let seconds =
        std::env::var("FUZZ_SECONDS").map_or(1.0, |text| text.parse().expect("FUZZ_SECONDS: a number"));
    let until = Instant::now() + Duration::from_secs_f64(seconds) / TARGETS;
    let (decoded, refused) = (Cell::new(0_u64), Cell::new(0_u64));
    while Instant::now() < until || decoded.get() == 0 || refused.get() == 0 {
        let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
        // Another one each time: a runner counts its cases only once.
        let ran = TestRunner::new(config).run(&inputs, |input| {
            let count = if target(input)? == Outcome::Decoded { &decoded } else { &refused };
            count.set(count.get() + 1);
            Ok(())
        });
        if let Err(failure) = ran {
            panic!("{failure}");
        }
        assert!(decoded.get() + refused.get() < 1 << 40, "a target that never decodes, or never refuses");
    }
    eprintln!("{} inputs decoded, {} refused", decoded.get(), refused.get());
}
