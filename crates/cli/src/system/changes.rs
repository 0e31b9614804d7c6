//! Changes below folders, by inotify.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// Changes of an entry or of the content of a file.
const CHANGES: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::MOVE_SELF);
/// Bytes of the buffer of events.
const BUFFER_BYTES: usize = 16 << 10;

/// Watches over the folders below some paths.
pub struct FolderWatcher {
    events: OwnedFd,
}

impl FolderWatcher {
    /// Opens the queue of events.
    pub fn open() -> io::Result<Self> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { events })
    }

    /// Watches the folders below the paths, and the folders of paths that are files. A folder that is watched
    /// already stays so.
    ///
    /// # Errors
    /// Mostly the system's limit of watches (`fs.inotify.max_user_watches`).
    pub fn watch(&self, paths: &[PathBuf]) -> io::Result<()> {
        let mut waiting: Vec<PathBuf> = Vec::new();
        for path in paths {
            match path.is_dir() {
                true => waiting.push(path.clone()),
                false => self
                    .add(path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new(".")))?,
            }
        }
        while let Some(folder) = waiting.pop() {
            self.add(&folder)?;
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            waiting.extend(folders.map(|entry| entry.path()));
        }
        Ok(())
    }

    fn add(&self, folder: &Path) -> io::Result<()> {
        match inotify::add_watch(&self.events, folder, CHANGES) {
            // The folder has just been removed: an event says so.
            Ok(_) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether anything has changed since the last call.
    pub fn has_changed(&self) -> bool {
        let mut buffer = [std::mem::MaybeUninit::uninit(); BUFFER_BYTES];
        let mut events = inotify::Reader::new(&self.events, &mut buffer);
        let mut has_changed = false;
        // The end of a watch is an event, too.
        while let Ok(event) = events.next() {
            has_changed |= !event.events().contains(ReadFlags::IGNORED);
        }
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_below_new_folders_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("old")).unwrap();
        let watcher = FolderWatcher::open().unwrap();
        let paths = [root.clone()];
        watcher.watch(&paths).unwrap();
        assert!(!watcher.has_changed());
        fs::write(root.join("old/file"), "content").unwrap();
        assert!(watcher.has_changed() && !watcher.has_changed());
        fs::create_dir(root.join("new")).unwrap();
        assert!(watcher.has_changed());
        watcher.watch(&paths).unwrap();
        fs::write(root.join("new/file"), "content").unwrap();
        assert!(watcher.has_changed());
        fs::remove_dir_all(root.join("new")).unwrap();
        assert!(watcher.has_changed());
    }
}
