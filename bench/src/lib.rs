//! Load generator and measurements.
