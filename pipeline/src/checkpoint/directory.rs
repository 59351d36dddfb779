//! Recovery: what a checkpoint directory holds, and how the next incarnation goes on in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use fencepost_model::{Id, WindowId};

use super::frame::FrameHead;
use super::handle::{Checkpoint, Restored, Shared};
use super::lock::DirectoryLock;
use super::manifest::Manifest;
use super::segment::{Place, Segment, SegmentName};
use super::writer::{FrameWriter, Home, Limits};
use crate::horizon::Horizon;
use crate::resume::Resume;
use crate::{Fingerprint, Metrics, PipelineConfig};

/// A checkpoint directory under this process's lock, read but not yet written.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    lock: DirectoryLock,
    fingerprint: Fingerprint,
    manifest: Option<Manifest>,
    greatest_incarnation: u64,
    /// Each file with the last window in it, superseded ones included.
    files: BTreeMap<PathBuf, WindowId>,
    frames: BTreeMap<WindowId, (FrameHead, Place)>,
}

impl Directory {
    /// Locks a directory, which is created if missing, and reads it.
    ///
    /// # Errors
    /// When another process holds it, it was made under another fingerprint, or it cannot be read.
    pub(crate) fn open(path: &Path, fingerprint: Fingerprint) -> anyhow::Result<Self> {
        std::fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
        let lock = DirectoryLock::take(path)?;
        let manifest = Manifest::load(path)?;
        if let Some(manifest) = &manifest {
            fingerprint.check(&manifest.fingerprint)?;
        }
        let greatest_incarnation = manifest.as_ref().map_or(0, |manifest| manifest.incarnation);
        let mut directory = Self {
            path: path.to_owned(),
            lock,
            fingerprint,
            manifest,
            greatest_incarnation,
            files: BTreeMap::new(),
            frames: BTreeMap::new(),
        };
        for (name, path) in segments(path)? {
            directory.read(name, path)?;
        }
        Ok(directory)
    }

    /// Takes what a segment holds and the manifest believes. Later incarnations come later, and win.
    fn read(&mut self, name: SegmentName, path: PathBuf) -> anyhow::Result<()> {
        let segment = Segment::read(path)?;
        if let Some(reason) = &segment.torn {
            tracing::warn!(
                segment = %segment.path.display(), frames = segment.frames.len(), %reason,
                "checkpoint segment ends in a frame that is not whole; what it held is read again from the log",
            );
        }
        let manifest = self.manifest.as_ref().with_context(|| {
            format!(
                "{} has segments but no manifest: move the directory away; the pipeline then makes it again from the log",
                self.path.display()
            )
        })?;
        self.greatest_incarnation = self.greatest_incarnation.max(name.incarnation);
        let valid_through = manifest.valid_through(name.incarnation);
        let last = segment.frames.last().map_or(name.first, |(head, _)| head.window.window);
        self.files.insert(segment.path, last);
        let believed = segment.frames.into_iter().filter(|(head, _)| head.window.window <= valid_through);
        self.frames.extend(believed.map(|(head, place)| (head.window.window, (head, place))));
        Ok(())
    }

    /// The frames' heads, by window.
    pub(crate) fn heads(&self) -> Vec<FrameHead> {
        self.frames.values().map(|(head, _)| head.clone()).collect()
    }

    /// Greatest incarnation that has ever written here.
    pub(crate) fn greatest_incarnation(&self) -> u64 {
        self.greatest_incarnation
    }

    /// Goes on from the window decided: the manifest no longer believes older incarnations beyond it, and this one
    /// writes from now on.
    ///
    /// `left` is the last window that has left the horizon, when the horizon is read again from the log.
    ///
    /// # Errors
    /// When the manifest cannot be written.
    ///
    /// # Panics
    /// When the incarnation is not above every one seen, or a frame that the decision rests on is not there.
    pub(crate) fn begin<I: Id>(
        self,
        resume: Resume,
        left: WindowId,
        incarnation: u64,
        config: &PipelineConfig,
        metrics: &Arc<Metrics>,
    ) -> anyhow::Result<(Checkpoint<I>, FrameWriter<I>)> {
        assert!(incarnation > self.greatest_incarnation, "an incarnation never returns (I22)");
        let valid_through = match resume {
            Resume::Checkpoint { window } => window,
            Resume::Start | Resume::Rebuild { .. } => 0,
        };
        self.supersede(incarnation, valid_through).store(&self.path)?;
        let mut horizon = Horizon::new(config.horizon_windows);
        let mut frames = BTreeMap::new();
        if let Resume::Checkpoint { window } = resume {
            frames = self.frames;
            frames.split_off(&(window + 1));
            let remembered_from = frames[&window].0.remembered_from;
            frames = frames.split_off(&remembered_from);
            for (head, _) in frames.values() {
                let leaving = horizon.close(head.window.window, head.window.kind);
                assert!(
                    leaving.is_empty(),
                    "the horizon at window {window} holds windows that have left it (I15)"
                );
            }
        }
        let last = match resume {
            Resume::Rebuild { .. } => left,
            Resume::Start | Resume::Checkpoint { .. } => resume.window(),
        };
        let restored = Restored { window: resume.window(), last, horizon };
        let shared = Arc::new(Shared::new(frames, last));
        let limits = Limits {
            partitions: self.fingerprint.partitions(),
            segment_windows_max: config.segment_windows_max,
            segment_bytes_max: config.segment_bytes_max,
            complete_from: resume.window(),
        };
        let capacity = usize::try_from(limits.partitions.saturating_mul(config.windows_in_flight + 1))?;
        let (pieces, received) = crossbeam_channel::bounded(capacity);
        let home = Home { path: self.path, _lock: self.lock, files: self.files };
        let writer = FrameWriter::new(
            home,
            incarnation,
            limits,
            &restored,
            Arc::clone(&shared),
            received,
            Arc::clone(metrics),
        );
        Ok((Checkpoint::new(pieces, shared, restored), writer))
    }

    fn supersede(&self, incarnation: u64, valid_through: WindowId) -> Manifest {
        let limits =
            self.files.keys().filter_map(|path| SegmentName::parse(path.file_name()?.to_str()?)).map(
                |name| {
                    let before =
                        self.manifest.as_ref().map_or(0, |manifest| manifest.valid_through(name.incarnation));
                    (name.incarnation, before.min(valid_through))
                },
            );
        Manifest { fingerprint: self.fingerprint.clone(), incarnation, valid_through: limits.collect() }
    }
}

/// The segments in a directory, by incarnation and window.
fn segments(dir: &Path) -> anyhow::Result<BTreeMap<SegmentName, PathBuf>> {
    let read = || {
        std::fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()
    };
    let paths = read().with_context(|| format!("cannot list {}", dir.display()))?;
    let named = paths.into_iter().filter_map(|path| {
        let name = SegmentName::parse(path.file_name()?.to_str()?)?;
        Some((name, path))
    });
    Ok(named.collect())
}
