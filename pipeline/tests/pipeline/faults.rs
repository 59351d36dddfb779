//! What ends a pipeline: each says why, and the next one goes on exactly.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use fencepost_model::WindowId;
use fencepost_pipeline::{FlipsTopic, HorizonStart, Metrics, PipelineConfig, PipelineLog, Signals, run_on};
use fencepost_sources::log::totals_chain::ChainEnd;
use fencepost_sources::log::{FlipsReader, LogError, PartitionStart, TotalsWriter, Waker};

use crate::history::{History, Shape};
use crate::life::{Life, config};
use crate::memory_log::{Fault, MemoryLog, Topics};
use crate::oracle;

/// A life with a fault ends with this message; the next one completes the totals.
fn ends_with(fault: Fault, message: &str) {
    for workers in 1..=3 {
        let dir = tempfile::tempdir().unwrap();
        let topics = Topics::new(History::draw(7, Shape::SMALL));
        let config = config(dir.path());
        let faulty = Life { fault: Some((fault, 45)), ..Life::whole(7, workers) };
        let error = format!("{:#}", faulty.live(&topics, &config).0.unwrap_err());
        assert!(error.contains(message), "{error}");
        Life::whole(8, workers).live(&topics, &config).0.unwrap();
        let wanted = oracle::records(&topics.history, config.horizon_windows as usize);
        oracle::assert_same(&topics.records(), &wanted, &format!("{fault:?}, {workers} workers"));
    }
}

#[test]
fn brokers_that_go_away() {
    ends_with(Fault::Away, "the brokers are away");
}

#[test]
fn a_worker_that_panics_ends_all() {
    ends_with(Fault::Panic, "panicked");
}

#[test]
fn a_partition_with_a_hole() {
    ends_with(Fault::Hole, "was the last one read");
}

#[test]
fn partitions_that_disagree() {
    ends_with(Fault::OtherMarker, "disagree");
}

fn log_of(topics: &Arc<Topics>) -> Arc<dyn PipelineLog<i64>> {
    Arc::new(MemoryLog {
        topics: Arc::clone(topics),
        seed: 1,
        fault: None,
        parts_left: Arc::new(AtomicUsize::new(usize::MAX)),
        crash: Arc::default(),
    })
}

/// Told to stop at any moment, workers end at the same window: it is complete in every lane, and nothing is beyond it.
#[test]
fn a_stop_finishes_the_windows_taken() {
    for (seed, workers) in (0..12).zip([1, 2, 3].into_iter().cycle()) {
        let dir = tempfile::tempdir().unwrap();
        let topics = Topics::new(History::draw(seed, Shape::SMALL));
        let config = PipelineConfig { workers, ..config(dir.path()) };
        let (stop, never, metrics) = (AtomicBool::new(false), AtomicBool::new(false), Arc::default());
        let (log, signals) = (log_of(&topics), Signals { stop: &stop, abort: &never });
        std::thread::scope(|scope| {
            let life = scope.spawn(|| run_on(&config, &log, false, signals, &metrics));
            let taken = |metrics: &Metrics| metrics.taken.load(Ordering::Relaxed);
            while taken(&metrics) < topics.history.windows[usize::try_from(seed).unwrap()][0].marker.window {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Release);
            life.join().unwrap().unwrap();
        });
        let ends: Vec<_> = topics.chains().iter().map(|chain| chain.end).collect();
        assert!(ends.iter().all(|end| *end == Some(metrics.taken.load(Ordering::Relaxed))), "{ends:?}");
        Life::whole(seed, 2).live(&topics, &config).0.unwrap();
        let wanted = oracle::records(&topics.history, config.horizon_windows as usize);
        oracle::assert_same(&topics.records(), &wanted, &format!("seed {seed}"));
    }
}

/// A log whose totals topic takes parts, and confirms none.
struct Deaf(Arc<dyn PipelineLog<i64>>);

impl PipelineLog<i64> for Deaf {
    fn flips_topic(&self) -> Result<FlipsTopic, LogError> {
        self.0.flips_topic()
    }

    fn totals_chains(&self) -> Result<Vec<ChainEnd>, LogError> {
        self.0.totals_chains()
    }

    fn first_starts(&self) -> Result<Vec<PartitionStart>, LogError> {
        self.0.first_starts()
    }

    fn horizon_start(&self, window: WindowId, horizon_windows: u32) -> Result<HorizonStart, LogError> {
        self.0.horizon_start(window, horizon_windows)
    }

    fn flips(&self, starts: &[PartitionStart], waker: Waker) -> Result<Box<dyn FlipsReader<i64>>, LogError> {
        self.0.flips(starts, waker)
    }

    fn totals(&self, _incarnation: u64, _waker: Waker) -> Result<Box<dyn TotalsWriter>, LogError> {
        Ok(Box::new(Unconfirmed(None)))
    }
}

/// The least window that was sent.
struct Unconfirmed(Option<WindowId>);

impl TotalsWriter for Unconfirmed {
    fn send(&mut self, _lane: u8, window: WindowId, _part: &[u8]) -> Result<bool, LogError> {
        self.0.get_or_insert(window);
        Ok(true)
    }

    fn unconfirmed(&mut self) -> Result<Option<WindowId>, LogError> {
        Ok(self.0)
    }
}

/// Brokers that are away do not hold a pipeline that is told to stop; nor does it take more than its windows in flight.
#[test]
fn a_stop_that_is_never_confirmed_ends() {
    let dir = tempfile::tempdir().unwrap();
    let topics = Topics::new(History::draw(2, Shape::SMALL));
    let config = PipelineConfig { workers: 2, ..config(dir.path()) };
    let (stop, never, metrics) = (AtomicBool::new(false), AtomicBool::new(false), Arc::<Metrics>::default());
    let (log, signals) = (log_of(&topics), Signals { stop: &stop, abort: &never });
    let deaf: Arc<dyn PipelineLog<i64>> = Arc::new(Deaf(Arc::clone(&log)));
    let error = std::thread::scope(|scope| {
        let life = scope.spawn(|| run_on(&config, &deaf, false, signals, &metrics));
        while metrics.frames.load(Ordering::Relaxed) < u64::from(config.windows_in_flight) {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Release);
        life.join().unwrap().unwrap_err().to_string()
    });
    assert!(error.contains("told to stop"), "{error}");
    assert_eq!(metrics.frames.load(Ordering::Relaxed), u64::from(config.windows_in_flight));
    Life::whole(2, 2).live(&topics, &config).0.unwrap();
    let wanted = oracle::records(&topics.history, config.horizon_windows as usize);
    oracle::assert_same(&topics.records(), &wanted, "the next life");
}

#[test]
fn the_second_pipeline_in_a_directory_is_refused_and_the_first_not_disturbed() {
    let dir = tempfile::tempdir().unwrap();
    let topics = Topics::new(History::draw(1, Shape::SMALL));
    let config = config(dir.path());
    let (stop, never, metrics) = (AtomicBool::new(false), AtomicBool::new(false), Arc::<Metrics>::default());
    let (log, signals) = (log_of(&topics), Signals { stop: &stop, abort: &never });
    let (ended, end) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| ended.send(run_on(&config, &log, false, signals, &metrics)).unwrap());
        while metrics.frames.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let error = run_on(&config, &log, false, signals, &Arc::default()).unwrap_err().to_string();
        assert!(error.contains("in use by the pipeline with process id"), "{error}");
        while !topics.complete.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Release);
    });
    end.recv().unwrap().unwrap();
    let wanted = oracle::records(&topics.history, config.horizon_windows as usize);
    oracle::assert_same(&topics.records(), &wanted, "the first");
}

#[test]
fn another_horizon_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let topics = Topics::new(History::draw(1, Shape::SMALL));
    let config = config(dir.path());
    Life::whole(1, 1).live(&topics, &config).0.unwrap();
    let other = PipelineConfig { horizon_windows: 6, ..config };
    let error = Life::whole(1, 1).live(&topics, &other).0.unwrap_err().to_string();
    assert!(error.contains("horizon_windows 5, this pipeline has 6"), "{error}");
}
