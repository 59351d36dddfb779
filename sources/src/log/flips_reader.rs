use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, SendTimeoutError, Sender, TryRecvError, bounded};
use fencepost_model::Id;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::{Message, Offset, TopicPartitionList};

use super::assembler::{Assembler, Pushed};
use super::client::{self, AssignedConsumer, Complaints};
use super::config::{PartitionEnd, REQUEST_TIMEOUT};
use super::dead_letters::DeadLetters;
use super::offsets::{self, Place};
use super::{FlipsReader, KafkaConfig, LogError, PartitionStart, Waker, WindowSlice, topic_id, topics};

/// A partition is read at most this many windows ahead of the slowest.
const WINDOWS_AHEAD_MAX: u64 = 4;

/// Slices of a partition that wait to be polled.
const SLICES_WAITING_MAX: usize = 2;

/// Records read from a partition before the others are looked at.
const BATCH: usize = 10_000;

/// An idle reader looks up this often, to stop or to serve its client.
const IDLE_WAIT: Duration = Duration::from_millis(100);

/// Time between looks at whether the topic is still the one that was opened.
const IDENTITY_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Reads partitions of the flips topic, on a thread of its own.
pub struct KafkaFlipsReader<I> {
    slices: Receiver<Result<WindowSlice<I>, LogError>>,
    consumer: Arc<AssignedConsumer>,
    topic: String,
    dead_letters: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<I: Id> KafkaFlipsReader<I> {
    /// Starts to read the partitions that `starts` names. The waker is called, from the reader's thread, whenever there
    /// is a slice or an error to poll.
    ///
    /// # Errors
    /// [`LogError::Refused`] when a start lies outside what its partition holds, or the topic is not what it has to be.
    pub fn open(config: &KafkaConfig, starts: &[PartitionStart], waker: Waker) -> Result<Self, LogError> {
        let topic = config.flips_topic();
        let failed = |error| LogError::kafka(format_args!("cannot read topic {topic}"), &error);
        let partitions = topics::verify(config)?;
        let consumer = Arc::new(client::consumer(config, &topic, PartitionEnd::Silent, &[])?);
        let id = topic_id::ask(consumer.client(), &topic)?;
        check_starts(&consumer, &topic, partitions, starts)?;

        let mut assignment = TopicPartitionList::with_capacity(starts.len());
        for start in starts {
            let partition = start.partition.cast_signed();
            assignment
                .add_partition_offset(&topic, partition, Offset::Offset(start.offset))
                .map_err(failed)?;
        }
        let (wake, woken) = bounded(1);
        let lanes = starts.iter().map(|start| {
            let mut queue =
                consumer.split_partition_queue(&topic, start.partition.cast_signed()).ok_or_else(|| {
                    LogError::Refused(format!("topic {topic} has a name that Kafka cannot have"))
                })?;
            let wake = wake.clone();
            queue.set_nonempty_callback(move || {
                // Full when the thread is about to look anyway.
                let _ = wake.try_send(());
            });
            Ok(Partition { queue, assembler: Assembler::new(start, partitions), closed: 0 })
        });
        let partitions_read = lanes.collect::<Result<Vec<_>, LogError>>()?;
        // Only now: what is fetched before a queue is split off goes to the client's own queue.
        consumer.assign(&assignment).map_err(failed)?;

        let dead_letters = Arc::<AtomicU64>::default();
        let stop = Arc::<AtomicBool>::default();
        let (sender, slices) = bounded(SLICES_WAITING_MAX * starts.len().max(1));
        let reading = Reading {
            consumer: consumer.clone(),
            topic: topic.clone(),
            identity: (id, partitions),
            partitions: partitions_read,
            dead_letters: DeadLetters::open(config, dead_letters.clone())?,
            slices: sender,
            woken,
            waker,
            stop: stop.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("flips-reader".to_owned())
            .spawn(move || reading.run())
            .map_err(|error| {
                LogError::Transient(format!("cannot start a thread to read topic {topic}: {error}"))
            })?;
        Ok(Self { slices, consumer, topic: config.flips_topic(), dead_letters, stop, thread: Some(thread) })
    }

    /// Commits what was done, (partition, next offset), to the consumer group: for lag tools only, nothing is read back.
    pub fn commit(&self, offsets: &[(u32, i64)]) {
        let mut list = TopicPartitionList::with_capacity(offsets.len());
        let committed = offsets
            .iter()
            .try_for_each(|(partition, offset)| {
                list.add_partition_offset(&self.topic, partition.cast_signed(), Offset::Offset(*offset))
            })
            .and_then(|()| self.consumer.commit(&list, CommitMode::Async));
        if let Err(error) = committed {
            tracing::warn!(topic = self.topic, %error, "offsets not committed; lag tools show too much until the next");
        }
    }

    /// How many records this reader has set aside as dead letters.
    pub fn dead_letters(&self) -> u64 {
        self.dead_letters.load(Ordering::Relaxed)
    }
}

impl<I: Id> FlipsReader<I> for KafkaFlipsReader<I> {
    fn poll(&mut self) -> Result<Option<WindowSlice<I>>, LogError> {
        match self.slices.try_recv() {
            Ok(slice) => slice.map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                Err(LogError::Transient(format!("the reader of topic {} has ended", self.topic)))
            }
        }
    }
}

impl<I> Drop for KafkaFlipsReader<I> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(topic = self.topic, "the reader's thread panicked");
        }
    }
}

fn check_starts(
    consumer: &AssignedConsumer,
    topic: &str,
    partitions: u32,
    starts: &[PartitionStart],
) -> Result<(), LogError> {
    if let Some(start) = starts.iter().find(|start| start.partition >= partitions) {
        return Err(LogError::Refused(format!(
            "partition {} is to be read, and topic {topic} has {partitions}: it was made anew. Restore it; counts cannot \
             go on from another",
            start.partition
        )));
    }
    let places = |place| starts.iter().map(|start| (start.partition, place)).collect::<Vec<_>>();
    let first = offsets::find(consumer, topic, &places(Place::Start))?;
    let end = offsets::find(consumer, topic, &places(Place::End))?;
    for (start, (first, end)) in starts.iter().zip(first.into_iter().zip(end)) {
        let PartitionStart { partition, offset, window, .. } = start;
        if first.is_none_or(|first| first > *offset) {
            return Err(LogError::Refused(format!(
                "partition {partition} of topic {topic} starts at offset {}, and window {window} ended before {offset}: \
                 records not yet counted are gone. Rebuild the stores from the edges",
                first.unwrap_or_default()
            )));
        }
        if end.is_none_or(|end| end < *offset) {
            return Err(LogError::Refused(format!(
                "partition {partition} of topic {topic} ends at offset {}, before {offset} where window {window} ended: \
                 the topic was made anew or has lost records. Restore it; counts cannot go on from another",
                end.unwrap_or_default()
            )));
        }
    }
    Ok(())
}

/// One partition that is read.
struct Partition<I> {
    queue: PartitionQueue<Complaints>,
    assembler: Assembler<I>,
    /// Number of windows handed on.
    closed: u64,
}

/// The reader's thread.
struct Reading<I> {
    consumer: Arc<AssignedConsumer>,
    topic: String,
    /// Id and number of partitions of the topic when it was opened.
    identity: (String, u32),
    partitions: Vec<Partition<I>>,
    dead_letters: DeadLetters,
    slices: Sender<Result<WindowSlice<I>, LogError>>,
    /// Told when a partition's queue has something after it was empty.
    woken: Receiver<()>,
    waker: Waker,
    stop: Arc<AtomicBool>,
}

/// Whether the reader goes on.
enum Next {
    Read,
    Wait,
    Stop,
}

impl<I: Id> Reading<I> {
    fn run(mut self) {
        if let Err(error) = self.read() {
            // They may say why a window is not whole.
            self.dead_letters.flush();
            self.hand_on(Err(error));
        }
    }

    fn read(&mut self) -> Result<(), LogError> {
        let mut identity_checked = Instant::now();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            // The client's own events. Records come through the queues of the partitions.
            match self.consumer.poll(Duration::ZERO) {
                Some(Err(error)) => LogError::unless_passing(&format!("topic {}", self.topic), &error)?,
                Some(Ok(record)) => {
                    return Err(LogError::Transient(format!(
                        "topic {}: the client gave offset {} of partition {} past its queue; read again from the checkpoint",
                        self.topic,
                        record.offset(),
                        record.partition()
                    )));
                }
                None => {}
            }
            match self.read_slowest()? {
                Next::Read => {}
                Next::Stop => return Ok(()),
                Next::Wait => {
                    let _ = self.woken.recv_timeout(IDLE_WAIT);
                }
            }
            if identity_checked.elapsed() > IDENTITY_CHECK_INTERVAL {
                self.check_identity()?;
                identity_checked = Instant::now();
            }
        }
    }

    /// Reads a batch of the partition with the fewest windows among those that have records.
    fn read_slowest(&mut self) -> Result<Next, LogError> {
        let mut by_progress: Vec<_> = (0..self.partitions.len()).collect();
        by_progress.sort_by_key(|index| self.partitions[*index].closed);
        let slowest = by_progress.first().map_or(0, |index| self.partitions[*index].closed);
        for index in by_progress {
            if self.partitions[index].closed >= slowest + WINDOWS_AHEAD_MAX {
                break;
            }
            match self.read_batch(index)? {
                Next::Wait => {}
                next => return Ok(next),
            }
        }
        Ok(Next::Wait)
    }

    /// Reads records of a partition until its window closes, the batch is full, or nothing more has arrived.
    fn read_batch(&mut self, index: usize) -> Result<Next, LogError> {
        let Partition { queue, assembler, closed } = &mut self.partitions[index];
        let mut next = Next::Wait;
        for _ in 0..BATCH {
            let Some(message) = queue.poll(Duration::ZERO) else { break };
            let message = match message {
                Ok(message) => message,
                Err(error) => {
                    LogError::unless_passing(&format!("topic {}", self.topic), &error)?;
                    continue;
                }
            };
            next = Next::Read;
            match assembler.push(message.offset(), message.payload().unwrap_or_default())? {
                Pushed::Taken => {}
                Pushed::DeadLetter(reason) => {
                    self.dead_letters.write(&message, &reason.to_string());
                }
                Pushed::Slice(slice) => {
                    *closed += 1;
                    drop(message);
                    self.dead_letters.flush();
                    return Ok(self.hand_on(Ok(slice)));
                }
            }
        }
        Ok(next)
    }

    /// Waits until there is room for it.
    fn hand_on(&self, slice: Result<WindowSlice<I>, LogError>) -> Next {
        let mut slice = slice;
        loop {
            match self.slices.send_timeout(slice, IDLE_WAIT) {
                Ok(()) => {
                    (self.waker)();
                    return Next::Read;
                }
                Err(SendTimeoutError::Timeout(unsent)) if !self.stop.load(Ordering::Relaxed) => {
                    slice = unsent
                }
                Err(_) => return Next::Stop,
            }
        }
    }

    fn check_identity(&self) -> Result<(), LogError> {
        let found = self.consumer.fetch_metadata(Some(&self.topic), REQUEST_TIMEOUT);
        let found = found
            .map_err(|error| LogError::kafka(format_args!("cannot look at topic {}", self.topic), &error));
        let found = found
            .and_then(|metadata| topics::partitions_in(&metadata, &self.topic))
            .and_then(|partitions| Ok((topic_id::ask(self.consumer.client(), &self.topic)?, partitions)));
        match found {
            Ok(found) if found == self.identity => Ok(()),
            Ok((id, partitions)) => Err(LogError::Refused(format!(
                "topic {} was id {} with {} partitions, and is now {id} with {partitions}: it was made anew or given more \
                 partitions, and flips no longer go where their duplicates are. Restore it",
                self.topic, self.identity.0, self.identity.1
            ))),
            Err(LogError::Transient(message)) => {
                tracing::warn!(reason = message, "the flips topic was not checked; it will be later");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
