//! Files that travel encoded: decoded once all blocks are whole and verified, or found in place.
//!
//! The encoded content is collected in the working folder like any file. The decoded content is written
//! beside, and gets the final name once length and digest are right: nothing else is ever under that name.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use headwater_proto::delivery::{BUNDLE_BYTES_MAX, Digest, Encoding, StoreError, StoreReport};
use md5::{Digest as _, Md5};
use tracing::warn;

use super::finish::{CHUNK_BYTES, Outcome, md5_of};
use super::journal::Stamp;
use super::place::{FilePlace, Places, content_name, write_around_holes};
use super::unpack;
use crate::coding::{self, DecodeFault};
use crate::system::read_at;

/// Bound on the memory of decoding a file, in bytes.
pub(super) const BYTES_MAX: u64 = coding::DECODING_BYTES + CHUNK_BYTES as u64;
/// Bytes to compare before other jobs continue.
const PART_BYTES: u64 = 64 << 20;

/// Reason why a file is not decoded.
enum DecodeError {
    /// The file is refused; other files are received.
    Refused(String),
    /// The session ends. The encoded content stays for the next receiver.
    Stopped,
    /// Nothing can be stored.
    Failed(StoreError),
}

/// Decodes a whole file and gives the file, or the members of the bundle, the final names.
pub(super) fn finish(places: &Places, file: &FilePlace, encoding: Encoding) -> Result<Outcome, StoreError> {
    let name = format!("{}.decoded", content_name(&file.key()));
    let work = match decode(places, file, encoding, &name) {
        Ok(work) => work,
        Err(DecodeError::Stopped) => {
            places.folder.discard(&name)?;
            return Ok(Outcome::Stopped);
        }
        Err(DecodeError::Refused(reason)) => {
            places.folder.discard(&name)?;
            places.give_up(file);
            places.discard(&file.key())?;
            return Ok(Outcome::Report(StoreReport::FileRefused(file.index, StoreError(reason))));
        }
        Err(DecodeError::Failed(error)) => {
            places.folder.discard(&name)?;
            return Err(error);
        }
    };
    if file.is_bundle {
        let outcome = unpack::unpack(places, file, Some(&work));
        places.folder.discard(&name)?;
        return outcome;
    }
    let stamp = places.folder.publish(&name, &work, &file.spec)?;
    places.close(file);
    places.discard(&file.key())?;
    Ok(Outcome::Placed(file.index, stamp))
}

fn decode(
    places: &Places,
    file: &FilePlace,
    Encoding { coding, bytes, digest }: Encoding,
    name: &str,
) -> Result<File, DecodeError> {
    if file.is_bundle && bytes > BUNDLE_BYTES_MAX.into() {
        let reason = format!("a bundle has at most {BUNDLE_BYTES_MAX} bytes, not {bytes}");
        return Err(DecodeError::Refused(reason));
    }
    let mode = places.folder.rules.mode(&file.spec);
    let work = places.folder.make_work(name, mode).map_err(DecodeError::Failed)?;
    let fault = RefCell::new(None);
    let reader = ContentReader { places, file, at: 0, fault: &fault };
    let mut hasher = blake3::Hasher::new();
    let mut md5 = file.spec.md5.map(|_| Md5::new());
    let mut at = 0;
    let decoded = coding::decode(coding, BufReader::with_capacity(CHUNK_BYTES, reader), bytes, |chunk| {
        check_stop(places)?;
        hasher.update(chunk);
        md5.iter_mut().for_each(|md5| md5.update(chunk));
        write_around_holes(&work, chunk, at)?;
        at += chunk.len() as u64;
        Ok(())
    });
    let writing =
        |error| DecodeError::Failed(places.folder.failed(&format!("write '{}'", file.spec.path), error));
    match (decoded, fault.take()) {
        (_, Some(error)) => return Err(DecodeError::Failed(error)),
        (Err(_), None) if places.is_stopped() => return Err(DecodeError::Stopped),
        (Err(DecodeFault::Sink(error)), None) => return Err(writing(error)),
        (Err(refused), None) => return Err(DecodeError::Refused(refused.to_string())),
        (Ok(()), None) => {}
    }
    work.set_len(bytes).map_err(writing)?;
    if digest.is_some_and(|digest| digest != *hasher.finalize().as_bytes()) {
        return Err(DecodeError::Refused("the decoded content differs from its digest".to_owned()));
    }
    if let (Some(expected), Some(md5)) = (file.spec.md5, md5) {
        // RFC 2616 has the MD5 of the encoded content, and senders in use write that of the content.
        let is_right = <[u8; 16]>::from(md5.finalize()) == expected
            || md5_of(places, file).map_err(DecodeError::Failed)? == expected;
        if !is_right {
            return Err(DecodeError::Refused("the decoded content differs from its MD5".to_owned()));
        }
    }
    if file.is_over() {
        let reason = format!("'{}' was given up", file.spec.path);
        return Err(DecodeError::Failed(StoreError(reason)));
    }
    Ok(work)
}

/// Fails if the session is to end.
fn check_stop(places: &Places) -> io::Result<()> {
    // Not as an interruption, after which readers try again.
    if places.is_stopped() { Err(io::Error::other("the session ends")) } else { Ok(()) }
}

/// Reader of the encoded content of a file in progress.
struct ContentReader<'a> {
    places: &'a Places,
    file: &'a FilePlace,
    at: u64,
    /// Error of the disk, unlike an error of the content.
    fault: &'a RefCell<Option<StoreError>>,
}

impl Read for ContentReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Much encoded content may have no output.
        check_stop(self.places)?;
        let left = self.file.spec.bytes - self.at;
        let length = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        self.places.read(self.file, self.at, &mut buffer[..length]).map_err(|error| {
            let message = io::Error::other(error.to_string());
            *self.fault.borrow_mut() = Some(error);
            message
        })?;
        self.at += length as u64;
        Ok(length)
    }
}

/// Comparison of the file in place with the digest of the decoded content. Memory: 256 KiB.
#[derive(Debug)]
pub(super) struct ContentComparison {
    pub(super) file: Arc<FilePlace>,
    digest: Digest,
    /// The file in place, once opened.
    opened: Option<(File, Stamp)>,
    hasher: Box<blake3::Hasher>,
    at: u64,
}

impl ContentComparison {
    pub(super) fn new(file: Arc<FilePlace>, digest: Digest) -> Self {
        Self { file, digest, opened: None, hasher: Box::default(), at: 0 }
    }

    /// Compares the next part. An unreadable file counts as different.
    ///
    /// # Errors
    /// If the working folder cannot be used.
    pub(super) fn go_on(mut self: Box<Self>, places: &Places) -> Result<Outcome, StoreError> {
        let path = &self.file.spec.path;
        let bytes = self.file.spec.content_bytes();
        let opened = self.opened.take().or_else(|| places.folder.find(path));
        let differs = Ok(Outcome::Compared(Vec::new(), self.file.index));
        let Some((file, stamp)) = opened.filter(|(_, stamp)| stamp.bytes == bytes) else { return differs };
        let end = bytes.min(self.at + PART_BYTES);
        let mut chunk = vec![0; CHUNK_BYTES];
        while self.at < end {
            let length = usize::try_from(end - self.at).map_or(chunk.len(), |left| left.min(chunk.len()));
            if read_at(&file, &mut chunk[..length], self.at).is_err() {
                return differs;
            }
            self.hasher.update(&chunk[..length]);
            self.at += length as u64;
        }
        if self.at < bytes {
            self.opened = Some((file, stamp));
            return Ok(Outcome::ComparingContent(self));
        }
        // A file that changes during the comparison is another file.
        let is_unchanged = places.folder.find(path).is_some_and(|(_, now)| now == stamp);
        if !is_unchanged || *self.hasher.finalize().as_bytes() != self.digest {
            return differs;
        }
        if let Err(error) = places.folder.adopt(&file, &self.file.spec) {
            warn!("{error}; its content is as announced");
        }
        let Some(stamp) = places.folder.stamp(path) else { return differs };
        places.give_up(&self.file);
        places.discard(&self.file.key())?;
        Ok(Outcome::Present(self.file.index, stamp))
    }
}
