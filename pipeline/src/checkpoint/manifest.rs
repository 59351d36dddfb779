//! The manifest: which frames of which incarnation are to be believed.
//!
//! Two incarnations may both hold a window: one wrote frames ahead of the totals log, its successor went back and read
//! those windows again. The manifest says, for each incarnation before the current one, up to which window its
//! segments are valid. It is replaced whole, by a rename, before the current incarnation writes its first frame.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use fencepost_model::WindowId;
use serde::{Deserialize, Serialize};

use crate::Fingerprint;

const FILE_NAME: &str = "manifest";
const TEMPORARY_NAME: &str = "manifest.new";
const CHECKSUM_BYTES: usize = 4;

/// What a checkpoint directory is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// What shapes its content.
    pub(crate) fingerprint: Fingerprint,
    /// The incarnation that writes now, or wrote last.
    pub(crate) incarnation: u64,
    /// For each incarnation before: the last window that its segments are valid for.
    pub(crate) valid_through: BTreeMap<u64, WindowId>,
}

impl Manifest {
    /// Reads the manifest of a directory, if it has one.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub(crate) fn load(dir: &Path) -> anyhow::Result<Option<Self>> {
        let path = dir.join(FILE_NAME);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(anyhow::Error::new(error).context(format!("cannot read {}", path.display())));
            }
        };
        let manifest = decode(&bytes).with_context(|| {
            format!(
                "{} is damaged or of another version: move the checkpoint directory away; the pipeline then makes it \
                 again from the log",
                path.display()
            )
        })?;
        Ok(Some(manifest))
    }

    /// Replaces the manifest of a directory; once it returns, the new one survives any crash.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn store(&self, dir: &Path) -> anyhow::Result<()> {
        let write = || {
            let temporary = dir.join(TEMPORARY_NAME);
            let mut file = File::create(&temporary)?;
            file.write_all(&encode(self))?;
            file.sync_all()?;
            std::fs::rename(&temporary, dir.join(FILE_NAME))?;
            File::open(dir)?.sync_all()
        };
        write().with_context(|| format!("cannot write the manifest of {}", dir.display()))
    }

    /// The last window that an incarnation's segments are valid for; 0 for none.
    pub(crate) fn valid_through(&self, incarnation: u64) -> WindowId {
        if incarnation == self.incarnation {
            return WindowId::MAX;
        }
        self.valid_through.get(&incarnation).copied().unwrap_or(0)
    }
}

fn encode(manifest: &Manifest) -> Vec<u8> {
    let mut bytes = postcard::to_stdvec(manifest).expect("a manifest has no type that postcard cannot write");
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> anyhow::Result<Manifest> {
    let (body, checksum) = bytes
        .len()
        .checked_sub(CHECKSUM_BYTES)
        .map(|length| bytes.split_at(length))
        .context("manifest ends early")?;
    anyhow::ensure!(crc32fast::hash(body).to_le_bytes() == checksum, "manifest fails its checksum");
    postcard::from_bytes(body).context("manifest is malformed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlipsTopic;

    fn manifest() -> Manifest {
        Manifest {
            fingerprint: Fingerprint::new::<i64>(300, FlipsTopic { id: "abc".to_owned(), partitions: 8 }),
            incarnation: 7,
            valid_through: [(5, 100), (6, 90)].into(),
        }
    }

    #[test]
    fn the_last_one_stored_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Manifest::load(dir.path()).unwrap(), None);
        manifest().store(dir.path()).unwrap();
        let next = Manifest { incarnation: 8, ..manifest() };
        next.store(dir.path()).unwrap();
        assert_eq!(Manifest::load(dir.path()).unwrap(), Some(next));
    }

    #[test]
    fn only_the_current_incarnation_is_believed_without_limit() {
        let manifest = manifest();
        let limits = [4, 5, 6, 7, 8].map(|incarnation| manifest.valid_through(incarnation));
        assert_eq!(limits, [0, 100, 90, WindowId::MAX, 0]);
    }

    #[test]
    fn any_damage_is_refused() {
        let bytes = encode(&manifest());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(decode(&changed).is_err() && decode(&bytes[..at]).is_err(), "byte {at}");
        }
    }
}
