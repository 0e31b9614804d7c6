//! Files kept open, so that a session of thousands needs few descriptors.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Most files that one session keeps open: a fraction of the usual limit of 1024 descriptors.
pub(crate) const OPEN_FILES_MAX: usize = 128;

/// Files by their key, the ones used last.
#[derive(Debug)]
pub(crate) struct OpenFiles<K> {
    inner: Mutex<Inner<K>>,
    limit: usize,
}

#[derive(Debug)]
struct Inner<K> {
    files: BTreeMap<K, Entry>,
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    file: Arc<File>,
    used: u64,
}

impl<K: Ord + Copy> OpenFiles<K> {
    /// Keeps at most `limit` files open, beside those in use.
    pub(crate) fn new(limit: usize) -> Self {
        Self { inner: Mutex::new(Inner { files: BTreeMap::new(), uses: 0 }), limit }
    }

    /// The file of `key`, opened by `open` if it is not open.
    pub(crate) fn get<E>(&self, key: K, open: impl FnOnce() -> Result<File, E>) -> Result<Arc<File>, E> {
        // A panic of another thread cannot leave the list half changed.
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.uses += 1;
        let used = inner.uses;
        if let Some(entry) = inner.files.get_mut(&key) {
            entry.used = used;
            return Ok(Arc::clone(&entry.file));
        }
        let file = Arc::new(open()?);
        if inner.files.len() >= self.limit {
            let oldest = inner.files.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key);
            oldest.and_then(|oldest| inner.files.remove(&oldest));
        }
        inner.files.insert(key, Entry { file: Arc::clone(&file), used });
        Ok(file)
    }

    /// Closes a file as soon as nobody uses it.
    pub(crate) fn forget(&self, key: K) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).files.remove(&key);
    }
}

/// Reads as much as `buffer` holds from `offset` on, or says that the file is shorter.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_file_used_longest_ago_makes_room() {
        let opened = RefCell::new(Vec::new());
        let files = OpenFiles::new(2);
        let get = |key: u32| {
            files
                .get(key, || {
                    opened.borrow_mut().push(key);
                    File::open("/dev/null")
                })
                .unwrap()
        };
        for key in [1, 2, 1, 3, 1, 2, 3] {
            get(key);
        }
        assert_eq!(opened.take(), [1, 2, 3, 2, 3]);
        files.forget(3);
        get(3);
        assert_eq!(opened.take(), [3]);
    }
}
