//! One pipeline a directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use anyhow::Context;

const FILE_NAME: &str = "lock";

/// Held for as long as the process uses the directory; the operating system lets go of it when the process ends.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Takes the lock, or says who holds it.
    ///
    /// # Errors
    /// When another process holds it, or the file cannot be opened.
    pub(crate) fn take(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(FILE_NAME);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                anyhow::bail!(
                    "checkpoint {} is in use by the pipeline with process id {}: stop that one first, or give this one \
                     another pipeline.checkpoint_dir",
                    dir.display(),
                    holder.trim()
                );
            }
            Err(TryLockError::Error(error)) => {
                return Err(anyhow::Error::new(error).context(format!("cannot lock {}", path.display())));
            }
        }
        file.set_len(0).and_then(|()| file.rewind()).context("cannot write the lock file")?;
        writeln!(file, "{}", std::process::id()).context("cannot write the lock file")?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_hears_who_is_first_and_may_follow() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirectoryLock::take(dir.path()).unwrap();
        let error = DirectoryLock::take(dir.path()).expect_err("it is held").to_string();
        assert!(error.contains(&format!("process id {}", std::process::id())), "{error}");
        drop(first);
        DirectoryLock::take(dir.path()).unwrap();
    }
}
