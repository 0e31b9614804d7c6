//! Place for the content of a session of one file outside of a folder: a block device, or a stream that takes
//! blocks in order.
//!
//! The working folder keeps the journal and repair symbols. For a stream, the working folder keeps the
//! content as well, so that a slow reader delays nobody: a thread copies blocks to the stream once they are
//! whole and all blocks before are copied. Memory: a bit for each 4 KiB of a device; for a stream 256 KiB,
//! and 16 bytes for each block that waits.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use headwater_proto::Size;
use headwater_proto::delivery::{ContentCoding, FileSpec, FileVersion, StoreError, StreamPart};

use super::finish::CHUNK_BYTES;
use crate::system::files::{
    self, Errno, FileExt, SpecialKind, open_device, special_kind, standard_output, wait_to_write,
};
use crate::system::read_at;
use crate::threads::StopHandle;

/// Time between looks at a stop request while a stream takes nothing.
const LOOK: Duration = Duration::from_millis(100);

/// Device or stream that a session's single file is written to.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    kind: Kind,
    /// The file that the target takes.
    taken: Mutex<Option<(String, u64, FileVersion)>>,
}

#[derive(Debug)]
enum Kind {
    Device(Device),
    Stream(Stream),
}

impl Target {
    /// Opens a block device, a pipe or another character stream; `-` is standard output. The process holds a
    /// device alone: a mounted device, and a device in use, are refused.
    ///
    /// # Errors
    /// If the path is a file or a folder, or the device cannot be opened, with advice.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let failed = |error: io::Error| {
            let advice = match Errno::from_io_error(&error) {
                Some(Errno::BUSY) => {
                    "is in use: unmount the device and all its parts, or choose another one".into()
                }
                Some(Errno::NOENT) => "does not exist; --to takes a device, a pipe or '-'".into(),
                _ => format!("cannot be opened: {error}"),
            };
            StoreError(format!("'{}' {advice}", path.display()))
        };
        let kind = if path == Path::new("-") {
            Kind::Stream(Stream::start(standard_output().map_err(failed)?)?)
        } else {
            match special_kind(&std::fs::metadata(path).map_err(failed)?) {
                Some(SpecialKind::BlockDevice) => {
                    let opened = open_device(path);
                    Kind::Device(Device::new(opened.map_err(failed)?).map_err(failed)?)
                }
                Some(SpecialKind::Pipe | SpecialKind::CharacterDevice) => {
                    Kind::Stream(Stream::start(OpenOptions::new().write(true).open(path).map_err(failed)?)?)
                }
                Some(SpecialKind::Socket) | None => {
                    return Err(StoreError(format!(
                        "'{}' is no device and no pipe: receive files into a folder with --out",
                        path.display()
                    )));
                }
            }
        };
        Ok(Self { path: path.to_owned(), kind, taken: Mutex::new(None) })
    }

    /// Returns the path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the device.
    pub(super) fn device(&self) -> Option<&Device> {
        match &self.kind {
            Kind::Device(device) => Some(device),
            Kind::Stream(_) => None,
        }
    }

    /// Takes a file, if the file is the first, or the one that was taken before, and if the device is long
    /// enough.
    pub(super) fn take(&self, spec: &FileSpec, part: Option<&StreamPart>) -> Result<(), StoreError> {
        let to = self.path.display();
        let end = part.map_or(0, |part| part.offset).saturating_add(spec.bytes);
        if let Some(device) = self.device().filter(|device| device.bytes < end) {
            let (needed, bytes) = (Size(end), Size(device.bytes));
            return Err(StoreError(format!(
                "'{}' has {needed} and '{to}' has room for {bytes}: choose a longer device",
                spec.path
            )));
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = part {
            let (name, next, _) =
                taken.get_or_insert_with(|| (part.stream.to_string(), 0, FileVersion::default()));
            if *name != part.stream.as_str() || part.offset < *next {
                return Err(StoreError(format!(
                    "'{to}' has begun with '{name}' of an earlier session, and takes no other content: start this receiver again"
                )));
            }
            if *next != part.offset {
                return Err(StoreError(format!(
                    "'{to}' takes a stream from its beginning and in order, and bytes before {} of '{name}' are missing",
                    part.offset
                )));
            }
            *next = end;
            return Ok(());
        }
        let (name, bytes, version) =
            taken.get_or_insert_with(|| (spec.path.to_string(), spec.bytes, spec.version()));
        if *name == spec.path.as_str() && *bytes == spec.bytes && version.is_same(&spec.version()) {
            return Ok(());
        }
        if *name == spec.path.as_str() {
            return Err(StoreError(format!(
                "'{to}' has begun with another content of '{name}', and takes no other: start this receiver again"
            )));
        }
        Err(StoreError(format!(
            "'{to}' takes one file, and '{name}' came first: send a session of one file, or receive with --out"
        )))
    }

    /// Returns the refusal of a file that travels encoded.
    pub(super) fn refuse_encoded(&self, coding: ContentCoding) -> StoreError {
        let to = self.path.display();
        StoreError(format!(
            "'{to}' takes content as it travels, which is encoded ({coding}): send it without --compress, or receive with --out"
        ))
    }

    /// Returns the refusal of a bundle.
    pub(super) fn refuse_bundle(&self) -> StoreError {
        let to = self.path.display();
        StoreError(format!("'{to}' takes one file, and the bundle has many: receive with --out"))
    }

    /// Records that a part of the content is whole and verified. With `frees`, a stream frees the disk space
    /// of the content that its reader has.
    ///
    /// # Errors
    /// If the stream takes no more.
    pub(super) fn whole(
        &self,
        content: &Arc<File>,
        (offset, bytes): (u64, u64),
        frees: bool,
    ) -> Result<(), StoreError> {
        let Kind::Stream(stream) = &self.kind else { return Ok(()) };
        stream.shared.check(&self.path)?;
        let mut state = stream.shared.lock();
        state.content.get_or_insert_with(|| Arc::clone(content));
        state.frees |= frees;
        if offset + bytes > state.next {
            state.whole.insert(offset, bytes);
        }
        drop(state);
        stream.shared.changed.notify_all();
        Ok(())
    }

    /// Waits until the stream has taken all bytes of the file, or until a stop request.
    ///
    /// # Errors
    /// If the stream takes no more.
    pub(crate) fn finish(&self, stop: &StopHandle) -> Result<(), StoreError> {
        let Kind::Stream(stream) = &self.kind else { return Ok(()) };
        let bytes = self.taken.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|taken| taken.1);
        let Some(bytes) = bytes else { return Ok(()) };
        let mut state = stream.shared.lock();
        while state.next < bytes && state.failed.is_none() && !stop.is_stopped() {
            let waited = stream.shared.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        stream.shared.check(&self.path)
    }
}

/// Bytes of a page of the kernel's cache of a device.
const PAGE_BYTES: usize = 4_096;
const PAGE: u64 = PAGE_BYTES as u64;

/// A block device.
///
/// The kernel reads a page from the device before a part of the page is written. Symbols end inside pages, so
/// that most writes would wait for the disk. Therefore the first write to a page fills the rest of the page
/// with zeros, if nothing in the page is needed.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) file: Arc<File>,
    bytes: u64,
    written: Mutex<Pages>,
}

/// Pages that were written.
#[derive(Debug)]
struct Pages {
    bits: Vec<u64>,
    /// Whether the content of an earlier session is needed.
    keeps_all: bool,
}

impl Pages {
    /// Marks a page; returns whether the page may have been written before.
    fn mark(&mut self, page: u64) -> bool {
        let Some(word) = self.bits.get_mut(usize::try_from(page / 64).unwrap_or(usize::MAX)) else {
            return true;
        };
        let bit = 1 << (page % 64);
        let was_marked = self.keeps_all || *word & bit != 0;
        *word |= bit;
        was_marked
    }
}

impl Device {
    fn new(mut file: File) -> io::Result<Self> {
        let bytes = file.seek(SeekFrom::End(0))?;
        let words = usize::try_from(bytes / PAGE / 64 + 1).map_err(io::Error::other)?;
        let written = Mutex::new(Pages { bits: vec![0; words], keeps_all: false });
        Ok(Self { file: Arc::new(file), bytes, written })
    }

    /// Keeps all content that the device has now.
    pub(super) fn keep_all(&self) {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).keeps_all = true;
    }

    /// Writes a part of a content of `end` bytes.
    pub(super) fn write(&self, bytes: &[u8], offset: u64, end: u64) -> io::Result<()> {
        // Held during the write: another thread may write to the same page.
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut from, mut to) = (offset, offset + bytes.len() as u64);
        let part = |from: u64, to: u64| {
            let place = |at: u64| usize::try_from(at - offset).expect("inside the part");
            &bytes[place(from)..place(to)]
        };
        for page in from / PAGE..to.div_ceil(PAGE) {
            let (start, next) = (page * PAGE, (page + 1) * PAGE);
            let is_whole = start >= from && next <= to;
            // Bytes beyond the content stay.
            if written.mark(page) || is_whole || next > end {
                continue;
            }
            let (first, last) = (from.max(start), to.min(next));
            let mut filled = [0; PAGE_BYTES];
            let place = |at: u64| usize::try_from(at - start).expect("inside the page");
            filled[place(first)..place(last)].copy_from_slice(part(first, last));
            self.file.write_all_at(&filled, start)?;
            if first == from {
                from = last;
            } else {
                to = first;
            }
        }
        if from < to { self.file.write_all_at(part(from, to), from) } else { Ok(()) }
    }
}

/// A stream, and the thread that writes to the stream.
#[derive(Debug)]
struct Stream {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    content: Option<Arc<File>>,
    /// Whole parts from `next` on: offset and length.
    whole: BTreeMap<u64, u64>,
    /// Bytes written.
    next: u64,
    failed: Option<ErrorKind>,
    ended: bool,
    /// Whether content that the reader has is freed.
    frees: bool,
}

impl Stream {
    fn start(to: File) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let writing = Arc::clone(&shared);
        let writer = thread::Builder::new().name("headwater-stream".into()).spawn(move || {
            if let Err(error) = writing.write_all(&to) {
                writing.lock().failed = Some(error.kind());
                writing.changed.notify_all();
            }
        });
        let cannot = |error| StoreError(format!("cannot start a thread for a stream: {error}"));
        Ok(Self { shared, writer: Some(writer.map_err(cannot)?) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        // A panic was printed by the thread.
        let _panicked = self.writer.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, path: &Path) -> Result<(), StoreError> {
        let to = path.display();
        match self.lock().failed {
            None => Ok(()),
            Some(ErrorKind::BrokenPipe) => {
                Err(StoreError(format!("the reader of '{to}' has ended before the content was whole")))
            }
            Some(kind) => Err(StoreError(format!("cannot write to '{to}': {kind}"))),
        }
    }

    /// Writes parts in order until the stream is dropped.
    fn write_all(&self, to: &File) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        while let Some((content, mut at, bytes)) = self.next_part() {
            let end = at + bytes;
            while at < end {
                let length = usize::try_from(end - at).map_or(CHUNK_BYTES, |rest| rest.min(CHUNK_BYTES));
                read_at(&content, &mut chunk[..length], at)?;
                if !self.write(to, &chunk[..length])? {
                    return Ok(());
                }
                let frees = {
                    let mut state = self.lock();
                    state.next = at + length as u64;
                    state.frees
                };
                if frees {
                    // On other file systems the content stays until the end.
                    let _unsupported = files::punch_hole(&content, at, length as u64);
                }
                at += length as u64;
            }
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Waits for the next part; `None` at the end.
    fn next_part(&self) -> Option<(Arc<File>, u64, u64)> {
        let mut state = self.lock();
        loop {
            if state.ended {
                return None;
            }
            let next = state.next;
            if let Some(bytes) = state.whole.remove(&next) {
                return Some((Arc::clone(state.content.as_ref()?), next, bytes));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes to the stream; false if the end of the session came first.
    fn write(&self, to: &File, mut bytes: &[u8]) -> io::Result<bool> {
        while !bytes.is_empty() {
            if self.lock().ended {
                return Ok(false);
            }
            if !wait_to_write(to, LOOK) {
                continue;
            }
            // A pipe that is ready takes a page at least without blocking.
            match (&*to).write(&bytes[..bytes.len().min(PIPE_BUF)]) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Bytes that a ready pipe takes at once (pipe(7)).
const PIPE_BUF: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_pages_are_written_in_any_order_and_nothing_else_changes() {
        let file = tempfile::tempfile().unwrap();
        let (bytes, end) = (10 * PAGE, 9 * PAGE + 100);
        file.write_all_at(&vec![7; usize::try_from(bytes).unwrap()], 0).unwrap();
        let device = Device::new(file).unwrap();
        let content: Vec<u8> = (0..end).map(|at| u8::try_from(at * at % 251).unwrap()).collect();
        // Steps of a length that divides no page, from both sides.
        let mut parts: Vec<usize> = (0..content.len()).step_by(1_409).collect();
        let middle = parts.len() / 2;
        parts[middle..].reverse();
        for part in parts {
            let part = part..content.len().min(part + 1_409);
            device.write(&content[part.clone()], part.start as u64, end).unwrap();
        }
        let mut got = vec![0; usize::try_from(bytes).unwrap()];
        device.file.read_exact_at(&mut got, 0).unwrap();
        assert!(got[..content.len()] == content);
        assert!(got[content.len()..].iter().all(|byte| *byte == 7), "beyond the content");
    }

    #[cfg(unix)]
    #[test]
    fn a_target_takes_one_content_and_says_what_it_refuses() {
        let path = |name: &str| headwater_proto::delivery::RelativePath::new(name).unwrap();
        let target = || Target::open(Path::new("/dev/null")).unwrap();
        let refusal = |target: &Target, spec: &FileSpec, part: Option<&StreamPart>| {
            target.take(spec, part).unwrap_err().to_string()
        };
        let version = |digest| FileSpec { digest: Some([digest; 32]), ..FileSpec::new(path("a"), 10) };
        let file = target();
        file.take(&version(1), None).unwrap();
        file.take(&version(1), None).unwrap();
        assert!(refusal(&file, &version(2), None).contains("another content of 'a'"));
        assert!(refusal(&file, &FileSpec::new(path("b"), 10), None).contains("'a' came first"));

        let part = |offset| StreamPart { stream: path("s"), offset, end: None };
        let take =
            |target: &Target, offset| target.take(&FileSpec::new(path("s.0"), 10), Some(&part(offset)));
        let stream = target();
        let late = take(&stream, 10).unwrap_err().to_string();
        assert!(late.contains("bytes before 10 of 's' are missing"), "{late}");
        take(&stream, 0).unwrap();
        take(&stream, 10).unwrap();
        let restarted = take(&stream, 0).unwrap_err().to_string();
        assert!(restarted.contains("start this receiver again"), "{restarted}");
    }

    #[test]
    fn content_of_an_earlier_session_is_kept() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 4 * PAGE_BYTES], 0).unwrap();
        let device = Device::new(file).unwrap();
        device.keep_all();
        device.write(&[1; 10], PAGE + 5, 4 * PAGE).unwrap();
        let mut got = [0; PAGE_BYTES];
        device.file.read_exact_at(&mut got, PAGE).unwrap();
        let written = got.iter().filter(|byte| **byte == 1).count();
        assert_eq!((written, got[4], got[15]), (10, 7, 7));
    }
}
