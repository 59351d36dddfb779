use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, SendTimeoutError, Sender, TryRecvError, bounded};
use fencepost_model::placement::LANES;
use fencepost_model::totals::PartJoiner;
use fencepost_model::{Id, WindowId};
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::{Message, Offset, TopicPartitionList};

use super::client::{self, AssignedConsumer};
use super::config::PartitionEnd;
use super::offsets::{self, Place};
use super::totals_writer::incarnation;
use super::{KafkaConfig, LogError, Totals, TotalsReader, Waker, topics};

/// Records that wait to be polled.
const WAITING_MAX: usize = 256;

/// A lane that is sought joins the requests once the one under way has come back: after this long at most.
const FETCH_WAIT_MS: &str = "100";

/// An idle reader looks up this often, to stop.
const IDLE_WAIT: Duration = Duration::from_millis(100);

/// Reads lanes of the totals topic, on a thread of its own.
pub struct KafkaTotalsReader<I> {
    found: Receiver<Result<Found<I>, LogError>>,
    /// Seeks that the thread has not taken up, by lane.
    seeks: Arc<Mutex<BTreeMap<u8, Seek>>>,
    /// Number of seeks so far, by lane: what was found before the last one is dropped.
    generations: [u64; LANES as usize],
    wake: Sender<()>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What was found, with the number of seeks of its lane before it was.
type Found<I> = (u64, Totals<I>);

#[derive(Clone, Copy, Debug)]
struct Seek {
    window: WindowId,
    generation: u64,
}

impl<I: Id> KafkaTotalsReader<I> {
    /// Reads nothing until lanes are sought. The waker is called, from the reader's thread, whenever there is something
    /// to poll.
    ///
    /// # Errors
    /// [`LogError::Refused`] when the topic is not what it has to be.
    pub fn open(config: &KafkaConfig, waker: Waker) -> Result<Self, LogError> {
        let topic = config.totals_topic();
        topics::verify(config)?;
        let mut consumer = client::consumer(
            config,
            &topic,
            PartitionEnd::Reported,
            &[("fetch.wait.max.ms", FETCH_WAIT_MS)],
        )?;
        let (wake, woken) = bounded(1);
        let records_arrived = wake.clone();
        consumer.set_nonempty_callback(move || {
            let _ = records_arrived.try_send(());
        });
        let seeks = Arc::<Mutex<BTreeMap<u8, Seek>>>::default();
        let stop = Arc::<AtomicBool>::default();
        let (sender, found) = bounded(WAITING_MAX);
        let reading = Reading {
            consumer,
            topic,
            lanes: BTreeMap::new(),
            seeks: seeks.clone(),
            found: sender,
            woken,
            waker,
            stop: stop.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("totals-reader".to_owned())
            .spawn(move || reading.run())
            .map_err(|error| LogError::Transient(format!("cannot start a thread to read totals: {error}")))?;
        Ok(Self { found, seeks, generations: [0; LANES as usize], wake, stop, thread: Some(thread) })
    }
}

impl<I: Id> TotalsReader<I> for KafkaTotalsReader<I> {
    fn seek(&mut self, lane: u8, window: WindowId) -> Result<(), LogError> {
        assert!(lane < LANES, "lane {lane} of {LANES}");
        let generation = &mut self.generations[usize::from(lane)];
        *generation += 1;
        lock(&self.seeks).insert(lane, Seek { window, generation: *generation });
        // Full when the thread is about to look anyway.
        let _ = self.wake.try_send(());
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Totals<I>>, LogError> {
        loop {
            let (generation, totals) = match self.found.try_recv() {
                Ok(found) => found?,
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => {
                    return Err(LogError::Transient("the reader of totals has ended".to_owned()));
                }
            };
            let lane = match &totals {
                Totals::Record(record) => record.lane,
                Totals::End { lane } => *lane,
            };
            if generation == self.generations[usize::from(lane)] {
                return Ok(Some(totals));
            }
        }
    }
}

impl<I> Drop for KafkaTotalsReader<I> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.wake.try_send(());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that reads totals panicked");
        }
    }
}

/// One lane that is read.
struct Lane<I> {
    generation: u64,
    /// The least offset not yet read.
    next: i64,
    /// Where the lane's partition ended when it was sought.
    end: i64,
    /// Whether something was read since the end was last reported.
    behind: bool,
    parts: PartJoiner<I>,
}

/// The reader's thread.
struct Reading<I> {
    consumer: AssignedConsumer,
    topic: String,
    lanes: BTreeMap<u8, Lane<I>>,
    seeks: Arc<Mutex<BTreeMap<u8, Seek>>>,
    found: Sender<Result<Found<I>, LogError>>,
    /// Told of seeks, and when the consumer has something after it was empty.
    woken: Receiver<()>,
    waker: Waker,
    stop: Arc<AtomicBool>,
}

impl<I: Id> Reading<I> {
    fn run(mut self) {
        if let Err(error) = self.read() {
            self.hand_on(Err(error));
        }
    }

    fn read(&mut self) -> Result<(), LogError> {
        while !self.stop.load(Ordering::Relaxed) {
            let seeks = std::mem::take(&mut *lock(&self.seeks));
            if !seeks.is_empty() {
                self.seek(&seeks)?;
            }
            // One message at a time, so that a seek waits for no more than that.
            let found = match self.consumer.poll(Duration::ZERO) {
                Some(Ok(message)) => Self::take(&mut self.lanes, &self.topic, &message)?,
                Some(Err(KafkaError::PartitionEOF(partition))) => Self::reach_end(&mut self.lanes, partition),
                Some(Err(error)) => {
                    LogError::unless_passing(&format!("topic {}", self.topic), &error)?;
                    continue;
                }
                None => {
                    let _ = self.woken.recv_timeout(IDLE_WAIT);
                    continue;
                }
            };
            for totals in found.into_iter().flatten() {
                self.hand_on(Ok(totals));
            }
        }
        Ok(())
    }

    /// Goes to where each lane's first record after a window stands.
    fn seek(&mut self, seeks: &BTreeMap<u8, Seek>) -> Result<(), LogError> {
        let failed = |error| LogError::kafka(format_args!("cannot seek in topic {}", self.topic), &error);
        let all = |place| seeks.keys().map(|lane| (u32::from(*lane), place)).collect::<Vec<_>>();
        // The end first: what is written between the two requests is then found by its time.
        let ends = offsets::find(&self.consumer, &self.topic, &all(Place::End))?;
        let after: Vec<_> = seeks
            .iter()
            .map(|(lane, seek)| {
                let place = if seek.window == 0 { Place::Start } else { Place::Time(seek.window + 1) };
                (u32::from(*lane), place)
            })
            .collect();
        let starts = offsets::find(&self.consumer, &self.topic, &after)?;

        let (mut left, mut entered) = (TopicPartitionList::new(), TopicPartitionList::new());
        for ((lane, seek), (start, end)) in seeks.iter().zip(starts.into_iter().zip(ends)) {
            let end = end.ok_or_else(|| {
                LogError::Transient(format!("the end of lane {lane} in topic {} is not known", self.topic))
            })?;
            let next = start.unwrap_or(end);
            if self.lanes.contains_key(lane) {
                left.add_partition(&self.topic, i32::from(*lane));
            }
            entered
                .add_partition_offset(&self.topic, i32::from(*lane), Offset::Offset(next))
                .map_err(failed)?;
            let lane_state =
                Lane { generation: seek.generation, next, end, behind: true, parts: PartJoiner::default() };
            self.lanes.insert(*lane, lane_state);
        }
        // A lane that is left loses what was prefetched of it.
        if left.count() > 0 {
            self.consumer.incremental_unassign(&left).map_err(failed)?;
        }
        self.consumer.incremental_assign(&entered).map_err(failed)?;
        for lane in seeks.keys() {
            let at_end = self.lanes.get_mut(lane).and_then(|state| state.report_end(*lane));
            if let Some(end) = at_end {
                self.hand_on(Ok(end));
            }
        }
        Ok(())
    }

    /// Takes a part, and returns the record it completes and the end it reaches.
    fn take(
        lanes: &mut BTreeMap<u8, Lane<I>>,
        topic: &str,
        message: &BorrowedMessage<'_>,
    ) -> Result<[Option<Found<I>>; 2], LogError> {
        let refuse = |what: &str| {
            LogError::Refused(format!(
                "lane {} of topic {topic} at offset {}: {what}. See `fencepost dump totals`; nothing is applied past this",
                message.partition(),
                message.offset()
            ))
        };
        let lane = u8::try_from(message.partition()).map_err(|_| refuse("there is no such lane"))?;
        let Some(state) = lanes.get_mut(&lane).filter(|state| message.offset() >= state.next) else {
            return Ok([None, None]);
        };
        let before_end = state.next < state.end;
        state.next = message.offset() + 1;
        state.behind = true;
        let incarnation = incarnation(message).ok_or_else(|| refuse("a record without an incarnation"))?;
        let record = state
            .parts
            .push(incarnation, message.payload().unwrap_or_default())
            .map_err(|error| refuse(&error.to_string()))?;
        if let Some(other) = record.as_ref().map(|record| record.lane).filter(|other| *other != lane) {
            return Err(refuse(&format!("a record of lane {other}")));
        }
        let generation = state.generation;
        // Also while the log grows so fast that the client never sees its end.
        let end = if before_end { state.report_end(lane) } else { None };
        Ok([record.map(|record| (generation, Totals::Record(record))), end])
    }

    fn reach_end(lanes: &mut BTreeMap<u8, Lane<I>>, partition: i32) -> [Option<Found<I>>; 2] {
        let lane = u8::try_from(partition).ok();
        let end = lane.and_then(|lane| lanes.get_mut(&lane).and_then(|state| state.report_end(lane)));
        [end, None]
    }

    /// Waits until there is room for it.
    fn hand_on(&self, found: Result<Found<I>, LogError>) {
        let mut found = found;
        while let Err(error) = self.found.send_timeout(found, IDLE_WAIT) {
            match error {
                SendTimeoutError::Timeout(unsent) if !self.stop.load(Ordering::Relaxed) => found = unsent,
                _ => return,
            }
        }
        (self.waker)();
    }
}

impl<I> Lane<I> {
    /// The end, if all that stood before it has been read and it was not reported since.
    fn report_end(&mut self, lane: u8) -> Option<Found<I>> {
        if self.next < self.end || !std::mem::take(&mut self.behind) {
            return None;
        }
        Some((self.generation, Totals::End { lane }))
    }
}

/// A thread that panics while it holds this lock leaves the map whole: each critical section is a single step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
