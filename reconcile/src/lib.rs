//! The comparison of the truth, the edges, with what is served, the counters.
//!
//! The one law: *at rest, counters equal edges.* [`audit`] checks it once, for every item, and changes nothing.

mod audit;
mod comparison;
mod edges;

pub use audit::{Audit, NotAtRest, audit};
pub use comparison::{Comparison, Drift};
