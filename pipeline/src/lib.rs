//! The dataflow from distinct events to totals by lane, and its checkpoint.
