//! Files of a session for a server of whole files: by name, with the digests that receivers verify.

use std::fs::File;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use headwater_proto::auth::Signer;
use headwater_proto::control::SenderControl;
use headwater_proto::delivery::{
    ContentCoding, DeliverySender, Digest, Encoding, Source, SourceError, file_digest,
};
use headwater_wire::sdp::{FdtDocument, FdtSignature, signed_fdt};

use super::content::Content;
use super::files::{PreparedFile, Stamp};
use crate::keys::SenderKey;
use crate::receive::{ReceivedFile, ReceivedFiles};
use crate::system::files::open_to_read;
use crate::system::read_at;

/// Path at a server of ours above the names of files.
pub const FILES_PATH: &str = "/files/";

/// Files of a session that a server may publish: all files of a sending session, or the whole files of a
/// receiving session. Nothing can be read before the session runs.
///
/// A file that changed since preparation or reception is never read: the file fails for the
/// server and the sending session.
#[derive(Clone, Debug)]
pub struct PublishedFiles(Published);

#[derive(Clone, Debug)]
enum Published {
    Sent(Arc<Inner>),
    Received(ReceivedFiles),
}

#[derive(Debug)]
struct Inner {
    /// Sorted by name.
    files: Vec<PreparedFile>,
    digests: Vec<OnceLock<Digest>>,
    content: OnceLock<Arc<Content>>,
    description: Mutex<PublishedDescription>,
}

impl Inner {
    fn encoding(&self, index: usize) -> Option<Encoding> {
        self.files[index].encoded.as_ref().map(|encoded| encoded.encoding)
    }

    /// Opens the file on disk. Fails unless the file is still the prepared file.
    fn open(&self, index: usize) -> Result<File, SourceError> {
        let file = open_to_read(&self.files[index].path, true);
        let file = file.map_err(|error| SourceError::Session(error.to_string()))?;
        self.check(index, &file)?;
        Ok(file)
    }

    fn check(&self, index: usize, file: &File) -> Result<(), SourceError> {
        let PreparedFile { path, stamp, .. } = &self.files[index];
        let is_same = file.metadata().is_ok_and(|metadata| Stamp::of(&metadata) == *stamp);
        let changed =
            || SourceError::Session(format!("'{}' is not the prepared file any more", path.display()));
        is_same.then_some(()).ok_or_else(changed)
    }
}

#[derive(Debug, Default)]
struct PublishedDescription {
    /// Whether the FDT is to be published.
    is_wanted: bool,
    sdp: Option<Arc<str>>,
    fdt: Option<Arc<str>>,
}

/// File of a session, found by its name.
#[derive(Clone, Debug)]
pub struct PublishedFile(Place);

#[derive(Clone, Debug)]
enum Place {
    Sent(Arc<Inner>, usize),
    /// The file as it is on disk, of which encoded content is sent.
    Decoded(Arc<Inner>, usize),
    Received(Arc<ReceivedFile>),
}

impl PublishedFiles {
    /// Creates the list of `files`, which are sorted by name.
    pub(super) fn new(files: &[PreparedFile]) -> Self {
        let digests = vec![OnceLock::new(); files.len()];
        let description = Mutex::default();
        let content = OnceLock::new();
        let inner = Inner { files: files.to_vec(), digests, content, description };
        Self(Published::Sent(Arc::new(inner)))
    }

    /// Creates the list of a receiving session, which grows with each whole file.
    pub(crate) fn received(files: ReceivedFiles) -> Self {
        Self(Published::Received(files))
    }

    /// Publishes a description of the session (SDP) and, while the session runs, its FDT. A receiving session
    /// publishes files alone.
    pub fn describe(&self, sdp: &str) {
        if let Some(mut description) = self.description() {
            (description.is_wanted, description.sdp) = (true, Some(sdp.into()));
        }
    }

    /// Returns the description of the session, if there is one.
    pub fn sdp(&self) -> Option<Arc<str>> {
        self.description()?.sdp.clone()
    }

    /// Returns the newest FDT as a document, signed if the session is signed; `None` before the session runs.
    pub fn fdt(&self) -> Option<Arc<str>> {
        self.description()?.fdt.clone()
    }

    fn sent(&self) -> Option<&Arc<Inner>> {
        match &self.0 {
            Published::Sent(inner) => Some(inner),
            Published::Received(_) => None,
        }
    }

    fn description(&self) -> Option<std::sync::MutexGuard<'_, PublishedDescription>> {
        Some(self.sent()?.description.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the content of the running session readable.
    pub(super) fn publish(&self, content: &Arc<Content>) {
        if let Some(inner) = self.sent() {
            // A session runs once.
            inner.content.get_or_init(|| Arc::clone(content));
        }
    }

    /// Finds a file by its exact name, as announced to receivers.
    pub fn find(&self, name: &str) -> Option<PublishedFile> {
        match &self.0 {
            Published::Sent(inner) => {
                let index = inner.files.binary_search_by(|file| file.name.as_str().cmp(name)).ok()?;
                Some(PublishedFile(Place::Sent(Arc::clone(inner), index)))
            }
            Published::Received(files) => files.find(name).map(Place::Received).map(PublishedFile),
        }
    }
}

impl PublishedFile {
    /// Returns the coding of the bytes, if the file travels encoded: the bytes, their length and their digest
    /// are those of the encoded content.
    pub fn coding(&self) -> Option<ContentCoding> {
        match &self.0 {
            Place::Sent(inner, index) => inner.encoding(*index).map(|encoding| encoding.coding),
            Place::Decoded(..) | Place::Received(_) => None,
        }
    }

    /// Returns the same file without encoding, which can be read as long as the file stays as it was
    /// prepared; `None` for a bundle.
    pub fn decoded(&self) -> Option<Self> {
        match &self.0 {
            Place::Sent(inner, index) if inner.encoding(*index).is_some() => {
                let is_file = inner.files[*index].bundle.is_none();
                is_file.then(|| Self(Place::Decoded(Arc::clone(inner), *index)))
            }
            _ => Some(self.clone()),
        }
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Place::Sent(inner, index) => inner.files[*index].bytes,
            Place::Decoded(inner, index) => inner.encoding(*index).map_or(0, |encoding| encoding.bytes),
            Place::Received(file) => file.bytes,
        }
    }

    /// Returns the digest of the file; `None` while the file is being hashed.
    ///
    /// # Errors
    /// If the file has changed or cannot be read.
    pub fn digest(&self) -> Result<Option<Digest>, SourceError> {
        let (inner, index) = match &self.0 {
            Place::Sent(inner, index) => (inner, *index),
            Place::Decoded(inner, index) => {
                inner.open(*index)?;
                return Ok(inner.encoding(*index).and_then(|encoding| encoding.digest));
            }
            Place::Received(file) => return file.check().map(|()| Some(file.digest)),
        };
        let Some(content) = inner.content.get() else { return Ok(None) };
        content.check_file(index)?;
        let known = &inner.digests[index];
        if known.get().is_none()
            && let Some(digests) = content.block_digests(index)
        {
            known.get_or_init(|| file_digest(&digests));
        }
        Ok(known.get().copied())
    }

    /// Fills `buffer` with the bytes of the file from `offset` on.
    ///
    /// # Errors
    /// If the file has changed, by the time of the read at the latest, or cannot be read.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        let not_running = || SourceError::Session("the session of the file is not running".to_owned());
        match &self.0 {
            Place::Sent(inner, index) => {
                inner.content.get().ok_or_else(not_running)?.read_file(*index, offset, buffer)
            }
            Place::Decoded(inner, index) => {
                let failed = |error: std::io::Error| SourceError::Session(error.to_string());
                let file = inner.open(*index)?;
                read_at(&file, buffer, offset).map_err(failed)?;
                inner.check(*index, &file)
            }
            Place::Received(file) => file.read(offset, buffer),
        }
    }
}

/// Publication of a running session's FDT, if a description is published.
#[derive(Debug)]
pub(super) struct FdtPublisher {
    published: PublishedFiles,
    /// Key, identifier and start of a signed session.
    signing: Option<(SenderKey, u64, u32)>,
    /// Published revision.
    revision: Option<(u32, bool)>,
}

impl FdtPublisher {
    pub(super) fn new(published: PublishedFiles, signing: Option<(SenderKey, u64, u32)>) -> Self {
        Self { published, signing, revision: None }
    }

    /// Publishes the FDT if it has changed, which it does at most once a second.
    pub(super) fn update<C: SenderControl, S: Source>(&mut self, machine: &DeliverySender<C, S>) {
        let revision = Some(machine.fdt_revision());
        let is_wanted = self.published.description().is_some_and(|description| description.is_wanted);
        if self.revision == revision || !is_wanted {
            return;
        }
        self.revision = revision;
        let xml = machine.fdt_xml();
        let signature = self.signing.as_ref().map(|(key, tsi, started)| {
            let (tsi, started) = (*tsi, *started);
            FdtSignature { tsi, started, bytes: key.sign(&signed_fdt(tsi, started, &xml)) }
        });
        let text = FdtDocument { xml: &xml, signature }.to_text();
        if let Some(mut description) = self.published.description() {
            description.fdt = Some(text.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use headwater_fec::{Order, Scheme};
    use headwater_proto::delivery::{PlanConfig, SessionPlan};

    use super::*;
    use crate::send::files::to_send;
    use crate::send::prepare;

    #[test]
    fn a_file_is_found_by_its_exact_name_and_fails_once_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "some content").unwrap();
        let files = prepare([&path]).unwrap();
        let published = PublishedFiles::new(files.files());
        for name in ["", "/file", "./file", "../file", "file/", "File"] {
            assert!(published.find(name).is_none(), "{name:?}");
        }
        let file = published.find("file").unwrap();
        assert_eq!(file.digest(), Ok(None), "nothing is readable before the session runs");
        assert!(file.read(0, &mut [0; 4]).is_err());

        let config = PlanConfig { scheme: Scheme::NoCode, symbol_size: 64, order: Order::Spread { rate: 1 } };
        let plan = SessionPlan::new(to_send(files.files()), config).unwrap();
        let content = Arc::new(Content::new(files.files(), &plan));
        published.publish(&content);
        assert_eq!(file.digest(), Ok(None), "not hashed");
        content.hash_block(0, 0, &mut Vec::new(), || false).unwrap();
        assert!(file.digest().unwrap().is_some());
        let mut bytes = [0; 7];
        file.read(5, &mut bytes).unwrap();
        assert_eq!(&bytes, b"content");
        fs::write(&path, "same length!").unwrap();
        assert!(file.digest().is_err() && file.read(5, &mut bytes).is_err());
    }
}
