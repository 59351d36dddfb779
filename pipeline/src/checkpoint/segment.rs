//! A segment: a file of frames, appended to by one incarnation and read by any.
//!
//! Named by its incarnation and first window. Only a crash leaves a frame that is not whole, at the end of a file; what
//! a file holds ends before the first frame that fails its checksum, whatever the reason.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fencepost_model::WindowId;

use super::frame::{Frame, FrameError, FrameHead};

/// First bytes of every segment.
const MAGIC: &[u8; 8] = b"fencefr1";

/// How a segment's name ends.
const EXTENSION: &str = ".frames";

/// Which segment a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentName {
    /// The pipeline that wrote it.
    pub(crate) incarnation: u64,
    /// The first window in it.
    pub(crate) first: WindowId,
}

impl SegmentName {
    /// The segment that a file name stands for.
    pub(crate) fn parse(file_name: &str) -> Option<Self> {
        let (incarnation, first) = file_name.strip_suffix(EXTENSION)?.split_once('-')?;
        let name = Self { incarnation: incarnation.parse().ok()?, first: first.parse().ok()? };
        (name.file_name() == file_name).then_some(name)
    }

    /// Its file name: sorts by incarnation, then window.
    pub(crate) fn file_name(self) -> String {
        format!("{:010}-{:016}{EXTENSION}", self.incarnation, self.first)
    }
}

/// A frame in a file.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    file: Arc<File>,
    path: Arc<Path>,
    offset: u64,
    length: usize,
}

impl Place {
    /// The file that holds it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the frame back.
    ///
    /// # Errors
    /// When it is not what was written.
    pub(crate) fn read(&self) -> anyhow::Result<Frame> {
        let context = || format!("cannot read {} at {}", self.path.display(), self.offset);
        let mut bytes = vec![0; self.length];
        self.file
            .read_exact_at(&mut bytes, self.offset)
            .map_err(|e| anyhow::Error::new(e).context(context()))?;
        Frame::decode(&mut &bytes[..]).map_err(|e| anyhow::Error::new(e).context(context()))
    }
}

/// A segment being written.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    file: Arc<File>,
    path: Arc<Path>,
    bytes: u64,
    frames: u32,
}

impl SegmentWriter {
    /// Creates the segment, so that it survives a crash as an empty one.
    ///
    /// # Errors
    /// When it exists, or cannot be created.
    pub(crate) fn create(dir: &Path, name: SegmentName) -> io::Result<Self> {
        let path: PathBuf = dir.join(name.file_name());
        let mut file = OpenOptions::new().read(true).append(true).create_new(true).open(&path)?;
        file.write_all(MAGIC)?;
        File::open(dir)?.sync_all()?;
        Ok(Self { file: Arc::new(file), path: path.into(), bytes: MAGIC.len() as u64, frames: 0 })
    }

    /// Appends a frame; durable after [`SegmentWriter::sync`] only.
    pub(crate) fn append(&mut self, frame: &Frame) -> io::Result<Place> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        (&*self.file).write_all(&bytes)?;
        let place = Place {
            file: Arc::clone(&self.file),
            path: Arc::clone(&self.path),
            offset: self.bytes,
            length: bytes.len(),
        };
        self.bytes += bytes.len() as u64;
        self.frames += 1;
        Ok(place)
    }

    /// Makes every appended frame durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Frames so far.
    pub(crate) fn frames(&self) -> u32 {
        self.frames
    }
}

/// What a segment holds.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Its file.
    pub(crate) path: PathBuf,
    /// Whole frames from its start, in order.
    pub(crate) frames: Vec<(FrameHead, Place)>,
    /// Why it ends before the file does, if so.
    pub(crate) torn: Option<FrameError>,
}

impl Segment {
    /// Reads a segment up to the first frame that is not whole.
    ///
    /// # Errors
    /// When the file cannot be read, or a frame is of another version.
    pub(crate) fn read(path: PathBuf) -> anyhow::Result<Self> {
        let context = |e: io::Error| anyhow::Error::new(e).context(format!("cannot read {}", path.display()));
        let mut file = File::open(&path).map_err(context)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(context)?;
        let shared: (Arc<File>, Arc<Path>) = (Arc::new(file), path.as_path().into());
        let mut segment = Self { path, frames: Vec::new(), torn: None };
        let Some(mut input) = bytes.strip_prefix(MAGIC) else {
            segment.torn = Some(FrameError::Torn);
            return Ok(segment);
        };
        while !input.is_empty() {
            let offset = bytes.len() - input.len();
            match Frame::decode(&mut input) {
                Ok(frame) => {
                    let length = bytes.len() - input.len() - offset;
                    let (file, path) = shared.clone();
                    segment.frames.push((frame.head, Place { file, path, offset: offset as u64, length }));
                }
                Err(FrameError::Version(version)) => anyhow::bail!(
                    "{} at {offset}: {}; run the build that wrote it",
                    segment.path.display(),
                    FrameError::Version(version)
                ),
                Err(error) => {
                    segment.torn = Some(error);
                    break;
                }
            }
        }
        Ok(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::frame::WindowHead;
    use crate::identity::{Arrivals, FlipKey};
    use fencepost_model::{CutKind, Position};
    use proptest::prelude::*;

    fn frame(window: WindowId) -> Frame {
        let head = FrameHead {
            window: WindowHead {
                window,
                before: window - 1,
                position: Position::default(),
                as_of: 0,
                kind: CutKind::Whole,
            },
            remembered_from: 1,
            confirmed: 0,
            complete: true,
            offsets: vec![(0, 5)],
        };
        let flips =
            (0..window.cast_signed() * 7).map(|n| FlipKey { item: n, user: n * n, version: 1 }).collect();
        Frame::new::<i64>(head, [Arrivals { flips, corrections: Vec::new() }]).unwrap()
    }

    fn written(dir: &Path) -> (PathBuf, Vec<Place>) {
        let name = SegmentName { incarnation: 3, first: 1 };
        let mut writer = SegmentWriter::create(dir, name).unwrap();
        let places = (1..=6).map(|window| writer.append(&frame(window)).unwrap()).collect();
        writer.sync().unwrap();
        assert_eq!(writer.frames(), 6);
        (dir.join(name.file_name()), places)
    }

    #[test]
    fn frames_are_read_back_by_place_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let (path, places) = written(dir.path());
        let segment = Segment::read(path).unwrap();
        assert_eq!(segment.torn, None);
        for (window, (place, (_, found))) in (1..).zip(places.iter().zip(&segment.frames)) {
            assert_eq!(place.read().unwrap(), frame(window));
            assert_eq!(found.read().unwrap(), frame(window));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Whole frames before the damage are kept, nothing after it is believed.
        #[test]
        fn damage_ends_a_segment(at: prop::sample::Index, flip in 0..=255_u8) {
            let dir = tempfile::tempdir().unwrap();
            let (path, places) = written(dir.path());
            let mut bytes = std::fs::read(&path).unwrap();
            let at = at.index(bytes.len());
            if flip == 0 { bytes.truncate(at) } else { bytes[at] ^= flip }
            std::fs::write(&path, bytes).unwrap();
            let segment = Segment::read(path).unwrap();
            let before = places.iter().filter(|place| place.offset + place.length as u64 <= at as u64).count();
            let whole = if at < MAGIC.len() { 0 } else { before };
            prop_assert_eq!(segment.frames.len(), whole);
            let cut_between_frames = flip == 0 && places.iter().any(|place| place.offset == at as u64);
            prop_assert_eq!(segment.torn.is_none(), cut_between_frames);
        }
    }

    #[test]
    fn names_sort_by_incarnation_and_window() {
        let name = SegmentName { incarnation: 12, first: 1_790_000_000_000 };
        assert_eq!(SegmentName::parse(&name.file_name()), Some(name));
        assert!(name.file_name() > SegmentName { incarnation: 9, first: 1 << 51 }.file_name());
        assert_eq!(SegmentName::parse("12-5.frames"), None);
        assert_eq!(SegmentName::parse("manifest"), None);
    }
}
