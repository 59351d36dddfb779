//! The words of Fencepost as types, its placement rules and its record codecs. No I/O.
//!
//! Every other crate speaks in these types. Nothing here depends on Postgres, Kafka or Redis, and nothing
//! that a library may change decides where a record goes or how it is written: placement and codecs are
//! frozen by the vectors in `vectors/` and by the tests beside them.
//!
//! Numbers such as (I5), here and in every crate, are those of the invariants in `docs/architecture.md`.

mod event;
mod fence;
mod id;
mod marker;
pub mod placement;
mod position;
pub mod record;
pub mod totals;

pub use event::{Correction, Event, Flip, Positioned};
pub use fence::{Fence, FenceError};
pub use id::{Id, IdError};
pub use marker::{CutKind, Marker, WindowRecord};
pub use position::Position;
pub use totals::{LaneTotals, TotalCorrection};

/// The integers of the binary codecs: varints, signed ones as zigzag.
pub mod varint {
    pub use crate::id::{put_i64, put_u64, take_i64, take_u64};
}

/// A window of the log: the events between two markers of a partition. Strictly rising, below [`WINDOW_LIMIT`].
///
/// It is also the logical time of the dataflow. 0 is the window before the first.
pub type WindowId = u64;

/// Windows stay below this, so that every reader that keeps numbers in doubles (Lua, JavaScript) is exact.
pub const WINDOW_LIMIT: WindowId = 1 << 52;

/// Microseconds since the Unix epoch.
pub type Micros = i64;
