//! The dataflow from distinct events to totals by lane, and its checkpoint.
//!
//! ```text
//! log source ─► distinct events ─► sums per worker ─► exchange by lane ─► totals ─► totals log
//!     └─► checkpoint: a frame a window
//! ```
//!
//! **The logical time is the window.** What a window holds is what stands between two markers of a partition, so the
//! totals are a function of the log: any number of workers, from any checkpoint, makes the same records again.
//!
//! The order in which things become durable is what makes a crash harmless (I16, I18, I21 in `docs/architecture.md`):
//!
//! 1. A worker's source keeps its capability for window w until the checkpoint's frame of w is synced. So no total
//!    of w leaves before what it was made of can be read back.
//! 2. The totals stage keeps its capability for w until the totals log has confirmed w. So a frontier beyond w means
//!    that w is in the log, everywhere: it bounds the windows in flight and lets old segments go.
//! 3. A start takes one window W for all partitions, from the segments and from the totals log itself
//!    ([`resume`]), restores what the horizon remembers at W, and goes on with the windows after it.
//!
//! The stages are timely operators that take what the ports have ready and return; threads, clocks and Kafka live in
//! `workers`, `kafka` and `checkpoint::thread`.

pub mod checkpoint;
mod config;
mod dataflow;
mod failure;
mod fingerprint;
mod horizon;
mod identity;
mod intake;
mod kafka;
mod log;
mod metrics;
pub mod resume;
mod run;
mod stages;
mod workers;

pub use config::PipelineConfig;
pub use fingerprint::{Fingerprint, FlipsTopic};
pub use kafka::{run, run_measured};
pub use log::{HorizonStart, PipelineLog};
pub use metrics::Metrics;
pub use run::{Signals, run_on};
