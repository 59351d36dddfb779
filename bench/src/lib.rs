//! Load generator and measurements.

pub mod load;
