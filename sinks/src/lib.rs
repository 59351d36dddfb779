//! Appliers and counter stores, and the fence between them.
