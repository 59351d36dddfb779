//! The checkpoint: what the log delivered in each window of the horizon, on disk.
//!
//! All events of windows ≤ W are a prefix of each partition, so a cut at W is a consistent one and needs no barrier: the
//! checkpoint is the log's own content, a frame a window, in append-only segments. A frame is whole only with all
//! partitions, and durable before any total of its window leaves the process.
//!
//! There is no base snapshot. A snapshot would hold what the horizon remembers, and that is just the frames of the
//! horizon: they must be kept window by window anyway, since each is read back when its window leaves and its rows are
//! retracted. Recovery reads these frames and nothing more; segments are cut by windows, so at most one segment's worth
//! of older ones lies before them.
//!
//! In the directory: `lock` (one process), `manifest` (what to believe), and the segments.

mod directory;
mod frame;
mod handle;
mod lock;
mod manifest;
mod section;
mod segment;
mod thread;
mod writer;

pub(crate) use directory::Directory;
pub use frame::{FRAME_VERSION, FrameHead, WindowHead};
pub(crate) use handle::{Checkpoint, Piece};
pub(crate) use thread::WriterThread;
