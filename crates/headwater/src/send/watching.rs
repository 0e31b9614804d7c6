//! Files that change while a session sends them from memory, where no read finds out.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use headwater_proto::delivery::SourceError;

use super::content::Content;
use crate::workers::yield_to_session;

/// Time between two looks at a file, at least.
const INTERVAL: Duration = Duration::from_secs(1);
/// Files looked at in a row.
const BATCH: usize = 32;
/// Time between two batches, at least: a session of thousands of files takes longer than [`INTERVAL`] to look
/// at all.
const PAUSE: Duration = Duration::from_millis(20);

/// A thread that looks at each file about once a second.
///
/// Memory: one error for each file that is lost.
#[derive(Debug)]
pub(super) struct Watching {
    lost: Receiver<SourceError>,
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watching {
    /// Starts to look.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start(content: &Arc<Content>) -> Result<Self, SourceError> {
        let (told, lost) = channel();
        let (stop, stopped) = channel();
        let content = Arc::clone(content);
        let thread = thread::Builder::new().name("headwater-watch".into());
        let thread = thread.spawn(move || watch(&content, &told, &stopped));
        let cannot = |error| SourceError::Session(format!("cannot start a thread to watch files: {error}"));
        Ok(Self { lost, stop: Some(stop), thread: Some(thread.map_err(cannot)?) })
    }

    /// The next file that was lost.
    pub(super) fn poll(&self) -> Option<SourceError> {
        self.lost.try_recv().ok()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so already.
            let _panicked = thread.join();
        }
    }
}

/// Looks at all files, again and again, until `stopped` is at its end. A lost file is told once.
fn watch(content: &Content, told: &Sender<SourceError>, stopped: &Receiver<()>) {
    yield_to_session();
    let mut files: Vec<usize> = (0..content.files()).collect();
    while !files.is_empty() {
        let batches = u32::try_from(files.len().div_ceil(BATCH)).unwrap_or(u32::MAX);
        let pause = (INTERVAL / batches).max(PAUSE);
        let mut lost = Vec::new();
        for batch in files.chunks(BATCH) {
            if !matches!(stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
                return;
            }
            for file in batch {
                if let Err(error) = content.check_file(*file) {
                    lost.push(*file);
                    if told.send(error).is_err() {
                        return;
                    }
                }
            }
        }
        files.retain(|file| !lost.contains(file));
    }
}

#[cfg(test)]
mod tests {
    use headwater_fec::{Order, Scheme};
    use headwater_proto::delivery::{PlanConfig, SessionPlan, Withdrawal};

    use super::*;
    use crate::send::prepare;

    #[test]
    fn a_file_that_grows_and_one_that_goes_are_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["grows", "goes", "stays"].map(|name| folder.path().join(name));
        names.iter().for_each(|name| std::fs::write(name, "content").unwrap());
        let files = prepare(&names).unwrap();
        let order = Order::Spread { rate: 1 };
        let config = PlanConfig { scheme: Scheme::NoCode, symbol_size: 64, order };
        let plan = SessionPlan::new(files.to_send(), config).unwrap();
        let content = Arc::new(Content::new(files.files(), &plan));
        let watching = Watching::start(&content).unwrap();
        std::fs::write(&names[0], "more content").unwrap();
        std::fs::remove_file(&names[1]).unwrap();
        let patience = Duration::from_secs(30);
        let mut lost: Vec<_> = (0..2).map(|_| watching.lost.recv_timeout(patience).unwrap()).collect();
        lost.sort_by_key(|error| match error {
            SourceError::File { file, .. } => *file,
            SourceError::Session(_) => usize::MAX,
        });
        // By name: "goes" comes first.
        assert!(
            matches!(lost[0], SourceError::File { file: 0, why: Withdrawal::Unreadable, .. }),
            "{lost:?}"
        );
        assert!(matches!(lost[1], SourceError::File { file: 1, why: Withdrawal::Changed, .. }), "{lost:?}");
        thread::sleep(2 * INTERVAL);
        assert_eq!(watching.poll(), None);
    }
}
