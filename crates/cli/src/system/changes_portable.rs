//! Changes below folders on systems without inotify: every few seconds counts as a change, and the digest of
//! the content tells.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval of looks at the folders.
const INTERVAL: Duration = Duration::from_secs(5);

/// Watches over the folders below some paths.
pub struct FolderWatcher {
    looked: Mutex<Instant>,
}

impl FolderWatcher {
    /// Starts the interval.
    ///
    /// # Errors
    /// Never on these systems.
    pub fn open() -> io::Result<Self> {
        Ok(Self { looked: Mutex::new(Instant::now()) })
    }

    /// Does nothing: each look reads the folders.
    ///
    /// # Errors
    /// Never on these systems.
    pub fn watch(&self, _paths: &[PathBuf]) -> io::Result<()> {
        Ok(())
    }

    /// Whether the interval is over.
    pub fn has_changed(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = looked.elapsed() >= INTERVAL;
        if is_over {
            *looked = Instant::now();
        }
        is_over
    }
}
