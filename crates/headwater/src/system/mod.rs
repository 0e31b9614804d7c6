//! Services of the operating system: files of the kernel, a bounded number of open files, random numbers.

pub(crate) mod files;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use crate::net::OpenError;
use files::FileExt as _;
use headwater_proto::delivery::{BlockHasher, Digest};

/// Maximum bytes to read of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Returns the text of a file; `None` if the file is missing or unreadable.
pub(crate) fn text(path: &str) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns the number in a file.
pub(crate) fn read_number(path: &str) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

/// Returns a counter of `/proc/net/netstat` or `/proc/net/snmp`: a line of names, then a line of numbers.
pub(crate) fn netstat(text: &str, table: &str, counter: &str) -> Option<u64> {
    let lines = || text.lines().filter_map(|line| line.strip_prefix(table)?.strip_prefix(':'));
    let at = lines().next()?.split_whitespace().position(|name| name == counter)?;
    lines().nth(1)?.split_whitespace().nth(at)?.parse().ok()
}

/// Packets lost on the way into this machine since the start, without notice to any socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InputLosses {
    /// Frames that an interface dropped, including frames longer than the MTU.
    pub frames: u64,
    /// Packets with missing fragments.
    pub fragments: u64,
}

impl InputLosses {
    /// Reads the counters of an interface and of the IP version; unknown counters are 0.
    pub(crate) fn read(interface: &str, is_ipv4: bool) -> Self {
        let frames = text("/proc/net/dev").and_then(|text| frames_dropped(&text, interface));
        let fragments = if is_ipv4 {
            text("/proc/net/snmp").and_then(|text| netstat(&text, "Ip", "ReasmFails"))
        } else {
            text("/proc/net/snmp6").and_then(|text| counter_line(&text, "Ip6ReasmFails"))
        };
        Self { frames: frames.unwrap_or(0), fragments: fragments.unwrap_or(0) }
    }

    /// Returns the losses since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            frames: self.frames.saturating_sub(before.frames),
            fragments: self.fragments.saturating_sub(before.fragments),
        }
    }
}

/// Returns the sum of the columns `drop` and `frame` of received frames in `/proc/net/dev`. Drivers count
/// frames that are too long in either column.
fn frames_dropped(text: &str, interface: &str) -> Option<u64> {
    let row = text.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    let columns: Vec<u64> = row.split_whitespace().filter_map(|column| column.parse().ok()).collect();
    Some(columns.get(3)?.saturating_add(*columns.get(5)?))
}

/// Returns a counter of `/proc/net/snmp6`, which has a name and a number in each line.
fn counter_line(text: &str, counter: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next()? == counter).then(|| words.next()?.parse().ok())?)
}

/// Returns the digest of a block of zeros.
pub(crate) fn zero_digest(bytes: u64) -> Digest {
    let zeros = [0; 64 << 10];
    let mut hasher = BlockHasher::default();
    let mut left = bytes;
    while left > 0 {
        let length = usize::try_from(left).map_or(zeros.len(), |left| left.min(zeros.len()));
        hasher.update(&zeros[..length]);
        left -= length as u64;
    }
    hasher.finish()
}

/// Maximum open files of a session: a fraction of the usual limit of 1024 descriptors.
pub(crate) const OPEN_FILES_MAX: usize = 128;

/// Cache of recently used files, by key.
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
    /// Creates a cache that keeps at most `limit` files open, in addition to files in use.
    pub(crate) fn new(limit: usize) -> Self {
        Self { inner: Mutex::new(Inner { files: BTreeMap::new(), uses: 0 }), limit }
    }

    /// Returns the file of `key`, opened by `open` if necessary.
    pub(crate) fn get<E>(&self, key: K, open: impl FnOnce() -> Result<File, E>) -> Result<Arc<File>, E> {
        // A panic of another thread cannot leave the list inconsistent.
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

    /// Closes a file after the last use.
    pub(crate) fn forget(&self, key: K) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).files.remove(&key);
    }
}

/// Fills `buffer` from `offset` on, or returns an error if the file is shorter.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(buffer, offset)
}

#[cfg(target_os = "linux")]
fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(io::Error::other)
}

/// Returns random bytes, at most 256, which the system returns in one call.
///
/// # Errors
/// If the system has no random numbers.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], OpenError> {
    let mut bytes = [0; N];
    fill_random(&mut bytes).map_err(|source| OpenError::Option { attempt: "give random bits", source })?;
    Ok(bytes)
}

/// Returns an unpredictable number, or 0 if the system has no random numbers: for uses that identify the
/// holder by further data.
pub(crate) fn random_u64() -> u64 {
    u64::from_ne_bytes(random_bytes().unwrap_or_default())
}

/// A key that nobody guesses, or zeros should the system have none.
pub(crate) fn random_key() -> [u8; 32] {
    random_bytes().unwrap_or_default()
}

#[cfg(test)]
mod kernel_files_tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let text = "TcpExt: SyncookiesSent IPReversePathFilter Other\nTcpExt: 1 22 333\nIpExt: InNoRoutes\nIpExt: 4\n";
        assert_eq!(netstat(text, "TcpExt", "IPReversePathFilter"), Some(22));
        assert_eq!(netstat(text, "IpExt", "InNoRoutes"), Some(4));
        assert_eq!(netstat(text, "TcpExt", "Missing"), None);
        assert_eq!(netstat("TcpExt: A", "TcpExt", "A"), None);
        assert_eq!(counter_line("Ip6InReceives 5\nIp6ReasmFails   7\n", "Ip6ReasmFails"), Some(7));
    }

    #[test]
    fn dropped_frames_are_those_without_use_and_those_of_a_wrong_length() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes\n\
            \x20  lo:       0  0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n  eth0:57026 186 0 84713 9 2 0 0 4732 42 0 0 0 0 0 0\n";
        assert_eq!(frames_dropped(text, "eth0"), Some(84_715));
        assert_eq!((frames_dropped(text, "eth"), frames_dropped("eth0: 1 2", "eth0")), (None, None));
    }
}

#[cfg(test)]
mod open_files_tests {
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
