use fencepost_model::{CutKind, Positioned};
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

const PARTITION: u32 = 1;
const PARTITIONS: u32 = 3;
const START: PartitionStart = PartitionStart {
    partition: PARTITION,
    offset: 0,
    window: 0,
    position: Position { epoch: 0, lsn: 0, index: 0 },
};

/// One window of the clean log: its events, and its marker.
type Window = (Vec<Positioned<i64>>, Marker);

/// Something that another producer, or an aborted transaction's copy, has left among a window's records.
#[derive(Clone, Debug)]
enum Noise {
    /// A copy of an event of this window, an earlier one or the next.
    Event(Index),
    /// A copy of the marker of an earlier window.
    Marker(Index),
    Garbage(Vec<u8>),
    Misrouted,
}

fn event(lsn: u64, seed: i64) -> Positioned<i64> {
    let position = Position { epoch: 1, lsn, index: 0 };
    let events = (0..).map(|n| {
        let (item, user) = (seed.wrapping_add(n), seed.rotate_left(7));
        if seed % 5 == 0 {
            let store = Some("redis".to_owned()).filter(|_| seed % 2 == 0);
            Event::Correction(Correction { id: user, item, store, amount: seed, cut: 7, at: 1 })
        } else {
            Event::Flip(Flip { item, user, op: lsn.cast_signed() + 1, was: false, liked: true, at: 1 })
        }
    });
    let here =
        |event: &Event<i64>| placement::partition(event.item(), event.bucket(), PARTITIONS) == PARTITION;
    Positioned { position, event: events.into_iter().find(here).expect("a third of the items") }
}

fn clean_log() -> impl Strategy<Value = Vec<Window>> {
    let gaps_and_seeds = prop::collection::vec((1..4_u64, any::<i64>()), 0..6);
    let windows = prop::collection::vec((gaps_and_seeds, 1..3_u64, 0..3_u64), 1..7);
    windows.prop_map(|windows| {
        let (mut lsn, mut before) = (0, 0);
        let mut log = Vec::new();
        for (events, step, idle) in windows {
            let mut close = |(gap, seed)| {
                lsn += gap;
                event(lsn, seed)
            };
            let events: Vec<_> = events.into_iter().map(&mut close).collect();
            lsn += idle;
            let marker = Marker {
                v: record::VERSION,
                window: before + step,
                before,
                position: Position::after_transaction(1, lsn),
                end_lsn: lsn,
                as_of: 5,
                kind: CutKind::Whole,
                count: events.len() as u64,
            };
            before = marker.window;
            log.push((events, marker));
        }
        log
    })
}

fn noise() -> impl Strategy<Value = Vec<(Index, Noise)>> {
    let one = prop_oneof![
        5 => any::<Index>().prop_map(Noise::Event),
        2 => any::<Index>().prop_map(Noise::Marker),
        1 => prop::collection::vec(any::<u8>(), 0..20).prop_map(Noise::Garbage),
        1 => Just(Noise::Misrouted),
    ];
    prop::collection::vec((any::<Index>(), one), 0..60)
}

fn event_bytes(event: &Positioned<i64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record::encode_event(event, &mut bytes);
    bytes
}

fn marker_bytes(marker: &Marker) -> Vec<u8> {
    let mut bytes = Vec::new();
    record::encode_marker(marker, &mut bytes);
    bytes
}

fn clean_bytes(log: &[Window]) -> Vec<Vec<u8>> {
    let records = |(events, marker): &Window| {
        events.iter().map(event_bytes).chain([marker_bytes(marker)]).collect::<Vec<_>>()
    };
    log.iter().flat_map(records).collect()
}

/// Strews noise over the log, each piece before some record of it. Returns the records and how many are dead letters.
fn noisy_bytes(log: &[Window], noise: Vec<(Index, Noise)>) -> (Vec<Vec<u8>>, usize) {
    let places: Vec<(usize, Option<&Positioned<i64>>, &Marker)> = log
        .iter()
        .enumerate()
        .flat_map(|(w, (events, marker))| {
            events.iter().map(Some).chain([None]).map(move |event| (w, event, marker))
        })
        .collect();
    let mut before: Vec<Vec<Vec<u8>>> = vec![Vec::new(); places.len()];
    let mut dead_letters = 0;
    for (place, noise) in noise {
        let place = place.index(places.len());
        let w = places[place].0;
        let pick = |index: Index, from: Vec<Vec<u8>>| {
            (!from.is_empty()).then(|| from[index.index(from.len())].clone())
        };
        let known: Vec<_> =
            log[..log.len().min(w + 2)].iter().flat_map(|(events, _)| events).map(event_bytes).collect();
        let bytes = match noise {
            Noise::Event(index) => pick(index, known),
            Noise::Marker(index) => {
                pick(index, log[..w].iter().map(|(_, marker)| marker_bytes(marker)).collect())
            }
            Noise::Garbage(bytes) => {
                dead_letters += 1;
                Some(bytes)
            }
            Noise::Misrouted => {
                dead_letters += 1;
                let flip = (0..)
                    .map(|item| Flip { item, user: 1, op: 1, was: false, liked: true, at: 1 })
                    .find(|flip| {
                        placement::partition(flip.item, placement::bucket(1_i64), PARTITIONS) != PARTITION
                    });
                let event = Event::Flip(flip.expect("two thirds of the items"));
                Some(event_bytes(&Positioned { position: Position::after_transaction(9, 9), event }))
            }
        };
        before[place].extend(bytes);
    }
    let originals =
        places.iter().map(|(_, event, marker)| event.map_or_else(|| marker_bytes(marker), event_bytes));
    let records =
        before.into_iter().zip(originals).flat_map(|(noise, original)| noise.into_iter().chain([original]));
    (records.collect(), dead_letters)
}

/// Slices of a log from an offset on, and the number of dead letters.
fn assemble(start: &PartitionStart, log: &[Vec<u8>]) -> Result<(Vec<WindowSlice<i64>>, usize), LogError> {
    let mut assembler = Assembler::new(start, PARTITIONS);
    let (mut slices, mut dead_letters) = (Vec::new(), 0);
    for (offset, record) in (0..).zip(log).skip(usize::try_from(start.offset).expect("an offset")) {
        match assembler.push(offset, record)? {
            Pushed::Taken => {}
            Pushed::Slice(slice) => slices.push(slice),
            Pushed::DeadLetter(_) => dead_letters += 1,
        }
    }
    Ok((slices, dead_letters))
}

/// What a window holds: its marker, flips and corrections.
type Content<'a> = (&'a Marker, &'a [Flip<i64>], &'a [Correction<i64>]);

/// What a slice holds, without where its records stood.
fn content(slices: &[WindowSlice<i64>]) -> Vec<Content<'_>> {
    slices.iter().map(|slice| (&slice.marker, &slice.flips[..], &slice.corrections[..])).collect()
}

/// The oracle: what a window holds by construction.
fn events_of((events, _): &Window) -> (Vec<Flip<i64>>, Vec<Correction<i64>>) {
    let (mut flips, mut corrections) = (Vec::new(), Vec::new());
    for positioned in events {
        match &positioned.event {
            Event::Flip(flip) => flips.push(*flip),
            Event::Correction(correction) => corrections.push(correction.clone()),
        }
    }
    (flips, corrections)
}

proptest! {
    #[test]
    fn a_noisy_log_gives_the_windows_of_the_clean_one(log in clean_log(), noise in noise()) {
        let (records, dead) = noisy_bytes(&log, noise);
        let (slices, dead_letters) = assemble(&START, &records).expect("a whole log");
        prop_assert_eq!(slices.len(), log.len());
        for (slice, window) in slices.iter().zip(&log) {
            let (flips, corrections) = events_of(window);
            prop_assert_eq!(&slice.marker, &window.1);
            prop_assert_eq!(&slice.flips, &flips);
            prop_assert_eq!(&slice.corrections, &corrections);
        }
        prop_assert_eq!(dead_letters, dead);
    }

    #[test]
    fn reading_goes_on_from_any_slice_or_from_before_it(log in clean_log(), noise in noise(), at: Index, back: Index) {
        let (records, _) = noisy_bytes(&log, noise);
        let (slices, _) = assemble(&START, &records).expect("a whole log");
        let done = at.index(slices.len());
        let WindowSlice { marker, next_offset, .. } = &slices[done];
        let earlier = i64::try_from(back.index(usize::try_from(*next_offset).expect("an offset") + 1)).expect("small");
        for offset in [*next_offset, earlier] {
            let start = PartitionStart { partition: PARTITION, offset, window: marker.window, position: marker.position };
            let (rest, _) = assemble(&start, &records).expect("a whole log");
            prop_assert_eq!(content(&rest), content(&slices[done + 1..]));
        }
    }

    #[test]
    fn a_lost_record_is_never_absorbed(log in clean_log(), lost: Index) {
        let mut records = clean_bytes(&log);
        let lost = lost.index(records.len());
        let removed = records.remove(lost);
        let of_last_window = lost == records.len();
        match assemble(&START, &records) {
            // Without its marker the last window is open, not lost.
            Ok((slices, _)) => {
                prop_assert!(of_last_window, "{} lost", String::from_utf8_lossy(&removed));
                prop_assert_eq!(slices.len() + 1, log.len());
            }
            Err(error) => prop_assert!(matches!(error, LogError::Refused(_)), "{error}"),
        }
    }
}

#[test]
fn known_events_are_counted_by_slice() {
    let marker = |window: u64, count| Marker {
        v: record::VERSION,
        window,
        before: window - 1,
        position: Position::after_transaction(1, window * 10),
        end_lsn: 0,
        as_of: 0,
        kind: CutKind::Whole,
        count,
    };
    let (first, second) = (event_bytes(&event(5, 3)), event_bytes(&event(15, 4)));
    let log = [
        first.clone(),
        marker_bytes(&marker(1, 1)),
        first.clone(),
        first,
        second,
        marker_bytes(&marker(2, 1)),
    ];
    let (slices, _) = assemble(&START, &log).expect("a whole log");
    assert_eq!(slices.iter().map(|slice| slice.known_by_position).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(slices.iter().map(|slice| slice.next_offset).collect::<Vec<_>>(), [2, 6]);
}

#[test]
fn two_different_events_at_one_position_are_refused() {
    let (one, other) = (event_bytes(&event(5, 3)), event_bytes(&event(5, 4)));
    let marker = Marker {
        v: record::VERSION,
        window: 1,
        before: 0,
        position: Position::after_transaction(1, 10),
        end_lsn: 0,
        as_of: 0,
        kind: CutKind::Whole,
        count: 1,
    };
    let error = assemble(&START, &[one, other, marker_bytes(&marker)]).expect_err("two events").to_string();
    assert!(error.contains("two different events"), "{error}");
}
