//! The dataflow's stages, an operator a file.

pub(crate) mod distinct;
pub(crate) mod slices;
pub(crate) mod source;
pub(crate) mod sums;
pub(crate) mod totals;
