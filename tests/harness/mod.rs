//! What an end-to-end test stands on: a stack of real services, a deployment of Fencepost on it, its processes.
//!
//! A test makes a [`Deployment`], spawns roles, does harm, and ends with [`Deployment::audit`]. Nothing here sleeps but
//! [`wait_until`]. Whatever a test process starts is ended with it, however it ends: see [`reaper`].

mod broker;
mod copier;
mod deployment;
mod http;
mod observed;
mod ports;
mod process;
mod proxy;
mod reaper;
mod redis;
mod roles;
mod stack;
mod totals;
mod turn;
mod wait;

pub(crate) use broker::Foreign;
pub(crate) use copier::Copier;
pub(crate) use deployment::Deployment;
pub(crate) use observed::copy_folder;
pub(crate) use process::{Output, Process};
pub(crate) use proxy::Proxy;
pub(crate) use redis::Redis;
pub(crate) use roles::Roles;
pub(crate) use stack::Stack;
pub(crate) use totals::TotalsLog;
pub(crate) use wait::wait_until;
