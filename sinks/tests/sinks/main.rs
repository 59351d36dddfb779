//! The applier by its rule, and the Redis store on a real server.

mod fence_rule;
mod redis_faults;
mod redis_fence;
mod redis_server;
mod totals_log;
