//! The relay against a log in memory that fails at any operation, and a plain account of what must be in it.

use fencepost_model::placement::{self, bucket};
use fencepost_model::{Flip, record::Record};
use proptest::prelude::*;

use super::*;

const PARTITIONS: u32 = 4;

fn pace(window_ms: u64, events_max: u64) -> Pace {
    Pace { window_ms, events_max }
}

fn origin() -> Origin {
    Origin { flips_topic: "topic".to_owned(), system: "system".to_owned(), timeline: 1 }
}

/// A committed window: its record, and its events by partition with the times of their records.
#[derive(Default)]
struct Window {
    record: Option<WindowRecord>,
    partitions: Vec<Vec<(Positioned<i64>, WindowId)>>,
    buried: usize,
}

/// A log in memory. What is not closed is lost when the relay that wrote it is gone.
#[derive(Default)]
struct MemoryLog {
    windows: Vec<Window>,
    open: Option<Window>,
    /// The next crash: after how many operations, and whether the operation is done nevertheless.
    crash: Option<(u32, bool)>,
}

impl MemoryLog {
    fn last(&self) -> Option<&WindowRecord> {
        self.windows.last().map(|window| window.record.as_ref().expect("closed"))
    }

    fn open(&mut self) -> &mut Window {
        self.open.get_or_insert_with(|| Window {
            partitions: (0..PARTITIONS).map(|_| Vec::new()).collect(),
            ..Window::default()
        })
    }

    /// Does an operation, unless it is the one to crash at.
    fn act(&mut self, operation: impl FnOnce(&mut Self)) -> Result<(), LogError> {
        match &mut self.crash {
            Some((0, done)) => {
                if *done {
                    operation(self);
                }
                self.crash = None;
                Err(LogError::Transient("crash".to_owned()))
            }
            Some((left, _)) => {
                *left -= 1;
                operation(self);
                Ok(())
            }
            None => {
                operation(self);
                Ok(())
            }
        }
    }
}

impl WindowLog for MemoryLog {
    fn partitions(&self) -> u32 {
        PARTITIONS
    }

    fn send(&mut self, record: &FlipRecord<'_>) -> Result<(), LogError> {
        let Ok(Record::Event(event)) = record::decode::<i64>(record.value) else {
            panic!("the relay writes events");
        };
        let key = format!("{}:{}", event.event.item(), event.event.bucket());
        assert_eq!(record.key, key.as_bytes());
        self.act(|log| log.open().partitions[record.partition as usize].push((event, record.timestamp)))
    }

    fn bury(&mut self, _: Position, _: &BadRow, _: WindowId) -> Result<(), LogError> {
        self.act(|log| log.open().buried += 1)
    }

    fn close(&mut self, record: &WindowRecord) -> Result<(), LogError> {
        self.act(|log| {
            log.open().record = Some(record.clone());
            let window = log.open.take().expect("just opened");
            log.windows.push(window);
        })
    }
}

/// A transaction of the source; without rows it is a heartbeat.
#[derive(Clone, Debug)]
struct Source {
    rows: Vec<Result<Event<i64>, BadRow>>,
}

fn flip(item: i64, user: i64, op: i64) -> Event<i64> {
    Event::Flip(Flip { item, user, op, was: false, liked: true, at: 5 })
}

/// A source whose transactions have so many rows, ops counting on.
fn source(rows: impl IntoIterator<Item = usize>) -> Vec<Source> {
    let mut op = 0;
    let mut next = || {
        op += 1;
        Ok(flip(op % 7, op % 1_000, op))
    };
    rows.into_iter().map(|rows| Source { rows: (0..rows).map(|_| next()).collect() }).collect()
}

fn final_lsn(transaction: usize) -> u64 {
    (transaction as u64 + 1) * 100
}

fn end_lsn(transaction: usize) -> u64 {
    final_lsn(transaction) + 40
}

/// What the server streams to a client that has acknowledged this much.
fn stream(source: &[Source], acknowledged: u64) -> impl Iterator<Item = Change> + '_ {
    let unsent = source.iter().enumerate().filter(move |(i, _)| final_lsn(*i) >= acknowledged);
    unsent.flat_map(|(i, transaction)| {
        // Commit times are those of a clock that steps back now and then.
        let committed_at = i as i64 * 1_000 - (i as i64 % 5) * 3_000;
        let rows = transaction.rows.iter().cloned().map(Change::Row);
        std::iter::once(Change::Begin { final_lsn: final_lsn(i), committed_at })
            .chain(rows)
            .chain(std::iter::once(Change::Commit { end_lsn: end_lsn(i) }))
    })
}

/// Relays the whole source, from the last window in the log on, through all the crashes. `clock` gives the time of
/// each step.
fn relay_all(
    source: &[Source],
    pace: Pace,
    crashes: &[(u32, bool)],
    mut clock: impl FnMut() -> u64,
) -> MemoryLog {
    let mut log = MemoryLog::default();
    let mut crashes = crashes.iter();
    loop {
        log.open = None;
        log.crash = crashes.next().copied();
        let mut relay = Relay::resume(pace, origin(), log.last(), clock());
        let mut session = || -> Result<(), LogError> {
            for change in stream(source, relay.acknowledged()) {
                relay.apply(change, clock(), &mut log)?;
            }
            relay.finish();
            relay.tick(clock(), &mut log).map(drop)
        };
        match session() {
            Ok(()) => {
                assert!(relay.is_at_rest());
                return log;
            }
            Err(LogError::Transient(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Checks everything that a reader relies on.
fn check(log: &MemoryLog, source: &[Source], pace: Pace) {
    let mut expected: Vec<Positioned<i64>> = Vec::new();
    let mut bad = 0;
    for (i, transaction) in source.iter().enumerate() {
        for (index, row) in (0_u32..).zip(&transaction.rows) {
            match row {
                Ok(event) => expected.push(Positioned {
                    position: Position { epoch: 1, lsn: final_lsn(i), index },
                    event: event.clone(),
                }),
                Err(_) => bad += 1,
            }
        }
    }
    let mut got: Vec<Positioned<i64>> = Vec::new();
    let mut before = (0, Position { epoch: 1, lsn: 0, index: 0 }, 0, 0);
    for window in &log.windows {
        let record = window.record.as_ref().expect("committed");
        let (window_before, position_before, as_of_before, op_before) = before;
        assert_eq!(record.before, window_before);
        assert!(record.window > window_before && record.position > position_before);
        assert!(record.as_of >= as_of_before);
        assert!(record.events() <= pace.events_max);
        let mut events = Vec::new();
        for (partition, records) in window.partitions.iter().enumerate() {
            assert_eq!(record.counts[partition], records.len() as u64);
            assert!(records.windows(2).all(|pair| pair[0].0.position < pair[1].0.position), "rising");
            for (event, time) in records {
                let placed = placement::partition(event.event.item(), event.event.bucket(), PARTITIONS);
                assert_eq!(placed as usize, partition);
                assert!(*time > window_before && *time <= record.window);
                assert!(event.position > position_before && event.position <= record.position);
            }
            events.extend(records.iter().map(|(event, _)| event.clone()));
        }
        events.sort_by_key(|event| event.position);
        let op = events.iter().map(|event| match &event.event {
            Event::Flip(flip) => flip.op,
            Event::Correction(_) => 0,
        });
        assert_eq!(record.op, op.max().unwrap_or(0).max(op_before));
        let transaction = usize::try_from(record.position.lsn).expect("small") / 100 - 1;
        match record.kind {
            CutKind::Whole => {
                assert_eq!(record.position, Position::after_transaction(1, final_lsn(transaction)));
                assert_eq!(record.end_lsn, end_lsn(transaction));
            }
            CutKind::Partial => {
                assert_eq!(record.events(), pace.events_max, "cut only when full");
                assert!(source[transaction].rows.len() as u64 > pace.events_max / 2, "cut for nothing");
                assert_eq!(record.end_lsn, transaction.checked_sub(1).map_or(0, end_lsn));
            }
            CutKind::Incomplete => panic!("nothing is being filled in"),
        }
        got.append(&mut events);
        before = (record.window, record.position, record.as_of, record.op);
    }
    assert_eq!(got, expected, "every event once, in order");
    assert_eq!(log.windows.iter().map(|window| window.buried).sum::<usize>(), bad);
    if let Some(last) = source.len().checked_sub(1) {
        assert_eq!(before.1, Position::after_transaction(1, final_lsn(last)));
    }
}

fn transactions() -> impl Strategy<Value = Vec<Source>> {
    let event = prop_oneof![
        12 => (0..9_i64, 0..50_i64, 1..1_000_i64).prop_map(|(item, user, op)| Ok(flip(item, user, op))),
        2 => (0..9_i64, any::<i64>()).prop_map(|(item, id)| Ok(Event::Correction(
            fencepost_model::Correction { id, item, store: None, amount: -1, cut: 3, at: 5 }))),
        1 => Just(Err(BadRow { reason: "bad", row: String::new() })),
    ];
    let rows = prop_oneof![3 => 0..4_usize, 1 => 0..30_usize];
    let transaction = rows.prop_flat_map(move |n| prop::collection::vec(event.clone(), n));
    prop::collection::vec(transaction.prop_map(|rows| Source { rows }), 0..25)
}

proptest! {
    /// Any transactions, crashes and clocks: the same events in the log, each once, under windows that add up.
    #[test]
    fn every_event_is_in_one_window_whatever_crashes(
        source in transactions(),
        events_max in 1..12_u64,
        crashes in prop::collection::vec((0..60_u32, any::<bool>()), 0..12),
        steps in prop::collection::vec(-300..600_i64, 1..40),
    ) {
        let (mut now, mut steps) = (1_000_000_i64, steps.into_iter().cycle());
        let clock = || {
            now += steps.next().expect("endless");
            now.unsigned_abs()
        };
        let pace = pace(1_000, events_max);
        check(&relay_all(&source, pace, &crashes, clock), &source, pace);
    }
}

/// Crashes at each operation in turn, before and after it is done.
#[test]
fn every_crash_point_of_a_small_history_is_harmless() {
    let source = source([1, 0, 3, 17, 2, 0, 5, 8, 1]);
    let pace = pace(100, 5);
    let mut operation = 0;
    loop {
        let mut reached = false;
        for done in [false, true] {
            let mut now = 0;
            let clock = || {
                now += 30;
                now
            };
            let log = relay_all(&source, pace, &[(operation, done)], clock);
            check(&log, &source, pace);
            reached |= log.crash.is_none();
        }
        if !reached {
            break;
        }
        operation += 1;
    }
    assert!(operation > 40, "only {operation} operations were tried");
}

#[test]
fn a_large_transaction_spans_windows_and_all_but_the_last_are_partial() {
    let source = source([3, 1_000_000, 1]);
    let pace = pace(1_000, 200_000);
    let log = relay_all(&source, pace, &[], || 7);
    check(&log, &source, pace);
    let kinds: Vec<_> =
        log.windows.iter().map(|window| window.record.as_ref().expect("closed").kind).collect();
    assert_eq!(kinds[..5], [CutKind::Partial; 5]);
    assert!(kinds[5..].iter().all(|kind| *kind == CutKind::Whole) && kinds.len() > 5);
}

/// A relay with an empty log at time 0, and a clock that the test sets.
struct Bench {
    relay: Relay,
    log: MemoryLog,
    transactions: usize,
}

impl Bench {
    fn new(window_ms: u64) -> Self {
        let relay = Relay::resume(pace(window_ms, 100), origin(), None, 0);
        Self { relay, log: MemoryLog::default(), transactions: 0 }
    }

    fn commit(&mut self, rows: usize, now_ms: u64) -> Option<Closed> {
        let i = self.transactions;
        self.transactions += 1;
        self.begin(i, rows, now_ms);
        self.relay.apply(Change::Commit { end_lsn: end_lsn(i) }, now_ms, &mut self.log).expect("no fault")
    }

    fn begin(&mut self, i: usize, rows: usize, now_ms: u64) {
        let begin = Change::Begin { final_lsn: final_lsn(i), committed_at: 1 };
        self.relay.apply(begin, now_ms, &mut self.log).expect("no fault");
        for op in 1..=rows {
            let row = Change::Row(Ok(flip(1, 1, op as i64)));
            self.relay.apply(row, now_ms, &mut self.log).expect("no fault");
        }
    }

    fn tick(&mut self, now_ms: u64) -> Option<Closed> {
        self.relay.tick(now_ms, &mut self.log).expect("no fault")
    }
}

#[test]
fn a_window_closes_when_its_time_has_come_and_never_without_a_commit() {
    let mut bench = Bench::new(1_000);
    assert_eq!(bench.tick(5_000), None, "nothing was committed");
    assert_eq!(bench.commit(2, 5_000), Some(Closed { window: 5_000, events: 2, kind: CutKind::Whole }));
    assert_eq!(bench.commit(1, 5_400), None);
    assert_eq!(bench.tick(5_999), None);
    assert_eq!(bench.relay.acknowledged(), end_lsn(0), "an open window is not acknowledged");
    assert_eq!(bench.tick(6_000), Some(Closed { window: 6_000, events: 1, kind: CutKind::Whole }));
    assert_eq!(bench.tick(9_000), None);
    assert_eq!(bench.commit(0, 9_000), Some(Closed { window: 9_000, events: 0, kind: CutKind::Whole }));
    assert_eq!(bench.relay.acknowledged(), end_lsn(2));
}

#[test]
fn a_window_does_not_close_within_a_transaction() {
    let mut bench = Bench::new(100);
    bench.begin(0, 3, 50);
    assert_eq!(bench.tick(10_000), None);
    bench.relay.finish();
    assert_eq!(bench.tick(10_000), None);
    let commit = Change::Commit { end_lsn: end_lsn(0) };
    let closed = bench.relay.apply(commit, 10_001, &mut bench.log).expect("no fault");
    assert_eq!(closed.map(|closed| closed.events), Some(3));
    assert!(bench.relay.is_at_rest());
}

#[test]
fn a_window_is_not_held_open_for_a_slow_transaction() {
    let mut bench = Bench::new(1_000);
    bench.commit(1, 1_000);
    bench.commit(1, 1_500);
    let begin = Change::Begin { final_lsn: final_lsn(2), committed_at: 1 };
    bench.relay.apply(begin, 1_600, &mut bench.log).expect("no fault");
    let whole = Closed { window: 2_000, events: 1, kind: CutKind::Whole };
    assert_eq!(bench.tick(2_000), Some(whole), "none of its rows are in the window");
    bench.relay.apply(Change::Row(Ok(flip(1, 1, 3))), 3_000, &mut bench.log).expect("no fault");
    assert_eq!(bench.tick(12_999), None);
    assert_eq!(bench.tick(13_000), Some(Closed { window: 13_000, events: 1, kind: CutKind::Partial }));
    assert_eq!(bench.relay.acknowledged(), end_lsn(1));
    let commit = Change::Commit { end_lsn: end_lsn(2) };
    let closed = bench.relay.apply(commit, 14_000, &mut bench.log).expect("no fault");
    assert_eq!(closed, Some(Closed { window: 14_000, events: 0, kind: CutKind::Whole }));
}

#[test]
fn a_clock_that_steps_back_neither_repeats_a_window_nor_holds_one_open() {
    let mut bench = Bench::new(1_000);
    assert_eq!(bench.commit(1, 900_000).map(|closed| closed.window), Some(900_000));
    assert_eq!(bench.commit(1, 5_000), None, "the clock went back: its time starts anew");
    assert_eq!(bench.tick(6_000).map(|closed| closed.window), Some(900_001));
    assert_eq!(bench.commit(1, 7_000).map(|closed| closed.window), Some(900_002));
}

#[test]
fn an_event_after_a_long_silence_is_not_dated_back_to_it() {
    let mut bench = Bench::new(1_000);
    bench.commit(1, 1_000);
    bench.commit(1, 900_000_000);
    let times: Vec<_> = bench.log.windows[1].partitions.iter().flatten().map(|(_, time)| *time).collect();
    assert_eq!(times, [900_000_000]);
}

#[test]
fn a_stream_out_of_order_is_refused() {
    for changes in [
        vec![Change::Commit { end_lsn: 5 }],
        vec![Change::Row(Ok(flip(1, 1, 1)))],
        vec![
            Change::Begin { final_lsn: 5, committed_at: 0 },
            Change::Begin { final_lsn: 6, committed_at: 0 },
        ],
        vec![
            Change::Begin { final_lsn: 5, committed_at: 0 },
            Change::Commit { end_lsn: 6 },
            Change::Begin { final_lsn: 5, committed_at: 0 },
        ],
    ] {
        let (mut relay, mut log) = (Relay::resume(pace(1_000, 9), origin(), None, 0), MemoryLog::default());
        let outcome = changes.into_iter().try_for_each(|change| relay.apply(change, 0, &mut log).map(drop));
        assert!(matches!(outcome, Err(LogError::Refused(_))));
    }
}

#[test]
fn the_partition_is_that_of_item_and_bucket() {
    let mut bench = Bench::new(100);
    bench.commit(4, 200);
    let partition = placement::partition(1_i64, bucket(1_i64), PARTITIONS);
    let mut counts = vec![0; PARTITIONS as usize];
    counts[partition as usize] = 4;
    assert_eq!(bench.log.last().expect("a window").counts, counts);
}
