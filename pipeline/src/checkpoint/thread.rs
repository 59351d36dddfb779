//! The thread that the checkpoint's writer runs on.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use fencepost_model::Id;

use super::writer::FrameWriter;

/// Runs a writer until the last worker's handle is gone, or the disk fails.
#[derive(Debug)]
pub(crate) struct WriterThread {
    thread: JoinHandle<()>,
    error: Arc<Mutex<Option<anyhow::Error>>>,
}

impl WriterThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn spawn<I: Id>(mut writer: FrameWriter<I>) -> std::io::Result<Self> {
        let error = Arc::new(Mutex::new(None));
        let reported = Arc::clone(&error);
        let run = move || {
            if let Err(error) = serve(&mut writer) {
                *reported.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        };
        let thread = std::thread::Builder::new().name("checkpoint".to_owned()).spawn(run)?;
        Ok(Self { thread, error })
    }

    /// Whether it runs no more.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until every piece that was handed in is dealt with.
    ///
    /// # Errors
    /// When the writer failed.
    pub(crate) fn join(self) -> anyhow::Result<()> {
        self.thread
            .join()
            .map_err(|_| anyhow::anyhow!("the checkpoint's writer panicked; its message is above"))?;
        match self.error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Takes whatever has come since the last sync, and syncs it together.
fn serve<I: Id>(writer: &mut FrameWriter<I>) -> anyhow::Result<()> {
    while let Ok(piece) = writer.received.recv() {
        writer.take(piece)?;
        while let Ok(piece) = writer.received.try_recv() {
            writer.take(piece)?;
        }
        writer.step()?;
    }
    Ok(())
}
