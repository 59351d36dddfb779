//! The comparison of edge counts with served counters.
