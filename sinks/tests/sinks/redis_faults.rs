//! An applier and a real Redis, while things fail between them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use fencepost_model::placement::{LANES, lane};
use fencepost_model::{CutKind, LaneTotals};
use fencepost_sinks::{
    Applier, ApplierMetrics, ApplyError, Buildable, CountsReader, RedisConfig, RedisStore,
};

use crate::redis_server::{RedisServer, config_at};
use crate::totals_log::{MemoryReader, TotalsLog};

const ITEMS: i64 = 200;
const STEPS_MAX: usize = 10_000;

/// A totals log in which every item gains 1 a window, and a Redis that is to show it.
struct Deployment {
    server: RedisServer,
    log: TotalsLog,
    windows: u64,
    metrics: Arc<ApplierMetrics>,
}

impl Deployment {
    fn new(options: &[&str]) -> Self {
        let server = RedisServer::start(options);
        let mut store = RedisStore::new(&server.config()).expect("a good configuration");
        store.create(1).expect("redis answers");
        Self { server, log: TotalsLog::new(), windows: 0, metrics: Arc::default() }
    }

    fn applier(&self, config: &RedisConfig) -> Applier<i64, MemoryReader, RedisStore> {
        let store = RedisStore::new(config).expect("a good configuration");
        Applier::new("redis", 1, self.log.reader(false), store, Arc::clone(&self.metrics))
    }

    fn append_windows(&mut self, windows: u64) {
        for _ in 0..windows {
            self.windows += 1;
            for number in 0..LANES {
                self.log.append(LaneTotals {
                    lane: number,
                    window: self.windows,
                    before: self.windows - 1,
                    epoch: 1,
                    as_of: 0,
                    kind: CutKind::Whole,
                    totals: (0..ITEMS).filter(|item| lane(*item) == number).map(|item| (item, 1)).collect(),
                    corrections: vec![],
                });
            }
        }
    }

    /// Every counter is exact at its fence, and every fence is at the last window.
    fn assert_exact(&self) {
        let mut reader = CountsReader::open(&self.server.store_config()).expect("a good configuration");
        let items: Vec<i64> = (0..ITEMS).collect();
        for count in reader.counts(&items).expect("redis answers") {
            assert_eq!(count.fence.window, self.windows);
            assert_eq!(count.value, i64::try_from(self.windows).ok(), "item {}", count.item);
        }
    }
}

/// Steps until there is nothing to do, over transient errors; returns how many there were.
fn settle(applier: &mut Applier<i64, MemoryReader, RedisStore>) -> usize {
    let mut errors = 0;
    for _ in 0..STEPS_MAX {
        match applier.step() {
            Ok(true) => {}
            Ok(false) => return errors,
            Err(error) if error.is_transient() => errors += 1,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the applier never comes to rest");
}

#[test]
fn a_forgotten_script_is_loaded_again_and_each_window_applied_once() {
    let mut deployment = Deployment::new(&[]);
    let mut applier = deployment.applier(&deployment.server.config());
    for _ in 0..5 {
        deployment.append_windows(1);
        assert_eq!(settle(&mut applier), 0, "it is no error");
        deployment.assert_exact();
        deployment.server.run::<()>("SCRIPT FLUSH");
    }
}

#[test]
fn a_crash_of_redis_is_waited_for() {
    let mut deployment = Deployment::new(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut applier = deployment.applier(&deployment.server.config());
    for _ in 0..3 {
        deployment.append_windows(2);
        settle(&mut applier);
        deployment.server.crash_and_restart();
        deployment.append_windows(1);
        assert!(settle(&mut applier) > 0, "the connection was lost");
        deployment.assert_exact();
    }
    assert_eq!(deployment.metrics.went_back.load(Ordering::Relaxed), 0);
}

#[test]
fn a_redis_that_comes_back_older_is_brought_forward_exactly() {
    let mut deployment = Deployment::new(&[]);
    let mut applier = deployment.applier(&deployment.server.config());
    deployment.append_windows(3);
    settle(&mut applier);
    deployment.server.run::<()>("SAVE");
    deployment.append_windows(4);
    settle(&mut applier);
    deployment.server.crash_and_restart();
    settle(&mut applier);
    // The log is silent: only a look tells.
    if applier.verify().is_err() {
        settle(&mut applier);
    }
    settle(&mut applier);
    deployment.assert_exact();
    assert_eq!(deployment.metrics.went_back.load(Ordering::Relaxed), u64::from(LANES));
}

#[test]
fn a_redis_that_comes_back_empty_is_not_written() {
    let mut deployment = Deployment::new(&[]);
    let mut applier = deployment.applier(&deployment.server.config());
    deployment.append_windows(3);
    settle(&mut applier);
    deployment.server.crash_and_restart();
    deployment.append_windows(1);
    let error = loop {
        match applier.step() {
            Err(error) if !error.is_transient() => break error,
            _ => {}
        }
    };
    assert!(matches!(error, ApplyError::Lost(_)), "{error}");
    assert_eq!(deployment.server.run::<usize>("DBSIZE"), 0);
}

#[test]
fn a_killed_connection_is_replaced() {
    let mut deployment = Deployment::new(&[]);
    let mut applier = deployment.applier(&deployment.server.config());
    deployment.append_windows(1);
    settle(&mut applier);
    deployment.server.run::<usize>("CLIENT KILL TYPE normal SKIPME yes");
    deployment.append_windows(1);
    assert_eq!(settle(&mut applier), 1);
    deployment.assert_exact();
}

#[test]
fn full_memory_and_a_replica_change_nothing_and_pass() {
    for (fault, mend) in [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
    ] {
        let mut deployment = Deployment::new(&[]);
        let mut applier = deployment.applier(&deployment.server.config());
        deployment.append_windows(2);
        settle(&mut applier);
        deployment.assert_exact();
        deployment.append_windows(1);
        deployment.server.run::<()>(fault);
        for _ in 0..3 {
            let error = applier.step().expect_err("redis takes no writes");
            assert!(error.is_transient(), "{fault}: {error}");
        }
        deployment.server.run::<()>(mend);
        settle(&mut applier);
        deployment.assert_exact();
    }
}

#[test]
fn answers_lost_after_the_script_ran_are_asked_again() {
    let mut deployment = Deployment::new(&[]);
    let proxy = LossyProxy::start(deployment.server.port());
    let mut applier = deployment.applier(&config_at(proxy.port));
    for _ in 0..5 {
        deployment.append_windows(1);
        proxy.answers_to_lose.store(1, Ordering::SeqCst);
        assert_eq!(settle(&mut applier), 1, "one answer was lost");
        deployment.assert_exact();
    }
    assert_eq!(proxy.answers_to_lose.load(Ordering::SeqCst), 0);
}

#[test]
fn two_appliers_do_no_harm() {
    let mut deployment = Deployment::new(&[]);
    let mut appliers = [0, 1].map(|_| deployment.applier(&deployment.server.config()));
    for windows in [1, 5, 1, 1, 40, 1] {
        deployment.append_windows(windows);
        for _ in 0..4 {
            for applier in &mut appliers {
                applier.step().expect("redis answers");
            }
        }
        for applier in &mut appliers {
            settle(applier);
        }
        deployment.assert_exact();
    }
    assert!(deployment.metrics.refusals.load(Ordering::Relaxed) > 0, "they never met");
}

/// Stands before Redis, and loses the answers to so many scripts, once they have run.
struct LossyProxy {
    port: u16,
    answers_to_lose: Arc<AtomicUsize>,
}

impl LossyProxy {
    fn start(redis: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let answers_to_lose = Arc::new(AtomicUsize::new(0));
        let to_lose = Arc::clone(&answers_to_lose);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let Ok(server) = TcpStream::connect(("127.0.0.1", redis)) else { return };
                let to_lose = Arc::clone(&to_lose);
                thread::spawn(move || serve(client, server, &to_lose));
            }
        });
        Self { port, answers_to_lose }
    }
}

/// Passes questions on; an answer that is to be lost is awaited, and the connection closed in its stead.
fn serve(client: TcpStream, server: TcpStream, to_lose: &AtomicUsize) {
    let asked_script = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            relay(&client, &server, |question| {
                if question.windows(7).any(|word| word == b"EVALSHA") {
                    asked_script.store(1, Ordering::SeqCst);
                }
                true
            });
        });
        relay(&server, &client, |_| {
            let lose = asked_script.swap(0, Ordering::SeqCst) == 1
                && to_lose
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                    .is_ok();
            !lose
        });
    });
}

fn relay(mut from: &TcpStream, mut to: &TcpStream, mut pass: impl FnMut(&[u8]) -> bool) {
    let mut buffer = [0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if !pass(&buffer[..read]) || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
