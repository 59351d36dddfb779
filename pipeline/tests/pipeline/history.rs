//! Histories: what a flips topic may hold.

use fencepost_model::{Correction, CutKind, Event, Flip, Marker, Position, WindowId, placement};
use fencepost_sources::log::WindowSlice;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Windows of a flips topic, each with a slice a partition.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) partitions: u32,
    pub(crate) windows: Vec<Vec<WindowSlice<i64>>>,
}

/// How a history is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) windows: usize,
    pub(crate) partitions: u32,
    pub(crate) events_max: usize,
    /// Of a hundred windows, so many do not end at a commit.
    pub(crate) partial_percent: u32,
}

impl Shape {
    pub(crate) const SMALL: Self = Self { windows: 40, partitions: 5, events_max: 40, partial_percent: 20 };
}

impl History {
    /// Few items and users, so that flips cancel, identities repeat within a window, within the horizon and beyond it.
    pub(crate) fn draw(seed: u64, shape: Shape) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut seen: Vec<Event<i64>> = Vec::new();
        let (mut window, mut op, mut offsets) = (0, 0, vec![0; shape.partitions as usize]);
        let mut windows = Vec::new();
        for number in 0..shape.windows {
            let before = window;
            window += random.random_range(1..1_000);
            let kind = match random.random_range(0..100) {
                draw if draw < shape.partial_percent => CutKind::Partial,
                draw if draw < shape.partial_percent + 10 => CutKind::Incomplete,
                _ => CutKind::Whole,
            };
            let mut slices = slices(shape.partitions, window, before, number, kind);
            for _ in 0..random.random_range(0..=shape.events_max) {
                let event = if seen.is_empty() || random.random_ratio(3, 4) {
                    op += 1;
                    draw_event(&mut random, op, window)
                } else {
                    let recent = seen.len().saturating_sub(random.random_range(1..=400));
                    seen[random.random_range(recent..seen.len())].clone()
                };
                seen.push(event.clone());
                push(&mut slices, event);
            }
            for slice in &mut slices {
                slice.marker.count = (slice.flips.len() + slice.corrections.len()) as u64;
                let offset = &mut offsets[slice.partition as usize];
                // A control record follows each transaction.
                *offset += slice.marker.count.cast_signed() + 2;
                slice.next_offset = *offset;
            }
            windows.push(slices);
        }
        Self { partitions: shape.partitions, windows }
    }

    pub(crate) fn markers(&self) -> impl DoubleEndedIterator<Item = &Marker> {
        self.windows.iter().map(|slices| &slices[0].marker)
    }

    pub(crate) fn last(&self) -> WindowId {
        self.markers().next_back().map_or(0, |marker| marker.window)
    }
}

fn slices(
    partitions: u32,
    window: WindowId,
    before: WindowId,
    number: usize,
    kind: CutKind,
) -> Vec<WindowSlice<i64>> {
    let marker = Marker {
        v: 1,
        window,
        before,
        position: Position::after_transaction(1, number as u64 + 1),
        end_lsn: 0,
        as_of: window.cast_signed() * 1_000,
        kind,
        count: 0,
    };
    let slice = |partition| WindowSlice {
        partition,
        marker: marker.clone(),
        next_offset: 0,
        flips: Vec::new(),
        corrections: Vec::new(),
        known_by_position: 0,
    };
    (0..partitions).map(slice).collect()
}

fn draw_event(random: &mut StdRng, op: i64, window: WindowId) -> Event<i64> {
    let item = random.random_range(0..30) * 1_000_003;
    if random.random_ratio(1, 30) {
        let store = [None, Some("redis"), Some("postgres")][random.random_range(0..3)].map(str::to_owned);
        let amount = random.random_range(-5..=5);
        return Event::Correction(Correction { id: op, item, store, amount, cut: window / 2, at: 0 });
    }
    let [was, liked] = [random.random_bool(0.4), random.random_bool(0.7)];
    Event::Flip(Flip { item, user: random.random_range(0..50), op, was, liked, at: 0 })
}

fn push(slices: &mut [WindowSlice<i64>], event: Event<i64>) {
    let partition = placement::partition(event.item(), event.bucket(), u32::try_from(slices.len()).unwrap());
    let slice = &mut slices[partition as usize];
    match event {
        Event::Flip(flip) => slice.flips.push(flip),
        Event::Correction(correction) => slice.corrections.push(correction),
    }
}
