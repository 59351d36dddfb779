use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// A proxy before a Redis that can swallow replies: the command has run, its answer never arrives.
pub(crate) struct Proxy {
    url: String,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Faults {
    /// Replies to scripts that are still to be swallowed.
    to_swallow: AtomicU64,
    swallowed: AtomicU64,
}

impl Proxy {
    /// Starts one before the Redis at this URL. It ends with the test's process.
    pub(crate) fn start(redis_url: &str) -> Self {
        let upstream = redis_url.trim_start_matches("redis://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("redis://{}/", listener.local_addr().expect("it is bound"));
        let faults = Arc::new(Faults::default());
        let shared = Arc::clone(&faults);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A Redis that is down refuses, and so does the proxy: by closing.
                let Ok(server) = TcpStream::connect(&upstream) else { continue };
                carry(client, server, &shared).expect("loopback sockets can be shared");
            }
        });
        Self { url, faults }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Swallows the replies to the next `n` requests that run a script, and closes their connections.
    pub(crate) fn swallow_replies(&self, n: u64) {
        self.faults.to_swallow.fetch_add(n, Ordering::SeqCst);
    }

    /// How many replies it has swallowed.
    pub(crate) fn swallowed(&self) -> u64 {
        self.faults.swallowed.load(Ordering::SeqCst)
    }
}

/// Carries one connection, a thread a direction.
fn carry(client: TcpStream, server: TcpStream, faults: &Arc<Faults>) -> io::Result<()> {
    let scripts = Arc::new(AtomicU64::new(0));
    let (requests, replies) = ((client.try_clone()?, server.try_clone()?), (server, client));
    let counted = Arc::clone(&scripts);
    thread::spawn(move || {
        pump(requests.0, requests.1, |bytes| {
            if bytes.windows(7).any(|word| word.eq_ignore_ascii_case(b"EVALSHA")) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            true
        });
    });
    let faults = Arc::clone(faults);
    thread::spawn(move || {
        pump(replies.0, replies.1, |_| {
            // A reply that follows a script is that script's: clients wait for each pipeline's answer.
            let answers_script = scripts.swap(0, Ordering::SeqCst) > 0;
            let take = |left: u64| left.checked_sub(1);
            if answers_script
                && faults.to_swallow.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
            {
                faults.swallowed.fetch_add(1, Ordering::SeqCst);
                return false;
            }
            true
        });
    });
    Ok(())
}

/// Copies until an end closes or `pass` says no; then closes both.
fn pump(mut from: TcpStream, mut to: TcpStream, mut pass: impl FnMut(&[u8]) -> bool) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if !pass(&buffer[..length]) || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
