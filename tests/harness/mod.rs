//! What an end-to-end test stands on: a stack of real services, a deployment of Fencepost on it, its processes.
//!
//! A test makes a [`Deployment`], spawns roles, does harm, and ends with [`Deployment::audit`]. Nothing here sleeps but
//! [`wait_until`]. Whatever a test process starts is ended with it, however it ends: see [`reaper`].

mod deployment;
mod ports;
mod process;
mod reaper;
mod redis;
mod stack;
mod turn;
mod wait;

pub(crate) use deployment::Deployment;
pub(crate) use redis::Redis;
pub(crate) use stack::Stack;
pub(crate) use wait::wait_until;
