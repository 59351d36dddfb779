use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the range that the kernel takes from for outgoing connections (32768 and up): a service that is down for a
/// moment would find its port taken, or a client that tries again and again would connect to itself.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port that nothing listens on, and that this process gives out once.
pub(super) fn free_port() -> u16 {
    // Test processes that run side by side start far from each other.
    let offset = u16::try_from(process::id().wrapping_mul(101) % u32::from(COUNT)).expect("below COUNT");
    for _ in 0..COUNT {
        let port = FIRST + (offset + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port from {FIRST} on");
}
