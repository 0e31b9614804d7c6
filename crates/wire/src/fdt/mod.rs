//! FLUTE's file delivery table (RFC 6726 section 3.4.2): an XML document that lists the files of a session.
//!
//! [`Instance::parse`] takes elements by their local name in any of the FDT namespaces in use and skips
//! unknown elements and attributes. Only the predefined entities and character references are expanded; a
//! document type declaration is refused. [`Instance::to_xml`] gives the same bytes for the same value.
//!
//! Attributes of our own, in namespace [`HEADWATER_NAMESPACE`], carry digests, link the segments of one large
//! file ([`Headwater`]), and announce the parameters of the session's channels ([`ControlAttributes`]); other
//! FLUTE receivers skip these attributes.

mod attributes;
mod parse;
mod xml;

pub use attributes::{
    CONTROL_PARAMETERS_MAX, CONTROL_WORD_LEN_MAX, ControlAttributes, ControlError, FileTime, FileTimeError,
    OtiAttributes,
};

/// Namespace of the elements that we write (RFC 6726 section 3.4.2).
pub const FDT_NAMESPACE: &str = "urn:ietf:params:xml:ns:fdt";
/// Namespace of RFC 3926, which the `flute` crate and MBMS senders write.
pub const FDT_NAMESPACE_2005: &str = "urn:IETF:metadata:2005:FLUTE:FDT";
/// Namespace of 3GPP TS 26.346 for file repair: servers of the files, and entity tags.
pub const MBMS_NAMESPACE: &str = "urn:3GPP:metadata:2012:MBMS:FLUTE:FDT";
/// Namespace of our own attributes.
pub const HEADWATER_NAMESPACE: &str = "urn:headwater:fdt:1";

/// Longest FDT instance that is parsed, in bytes. Memory taken while parsing is a small multiple of the
/// document.
pub const DOCUMENT_LEN_MAX: usize = 8 << 20;
/// Most files in one instance.
pub const FILES_MAX: usize = 16_384;
/// Most folders in one instance.
pub const FOLDERS_MAX: usize = FILES_MAX;
/// Longest attribute value in bytes, as written in the document; block digests may be longer.
pub const ATTRIBUTE_LEN_MAX: usize = 8 << 10;
/// Most block digests of one object: the number of blocks that LDPC's 12-bit block numbers can count.
pub const BLOCK_DIGESTS_MAX: usize = 4096;
/// Most URLs of one element; further URLs are skipped.
pub const URLS_MAX: usize = 4;
/// Most peers of one instance; further peers are skipped.
pub const PEERS_MAX: usize = 8;
/// Deepest nesting of elements.
pub const DEPTH_MAX: usize = 32;
/// Most entries of metadata in one instance.
pub const ENTRIES_MAX: usize = 1 << 17;
/// Longest list of extended attributes of an entry in bytes, as written in the document.
pub const XATTRS_LEN_MAX: usize = 256 << 10;
/// Largest permission bits: `0o7777`.
pub const MODE_MAX: u32 = 0o7777;

/// One FDT instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Instance {
    /// When the instance stops being valid, in seconds of the NTP era.
    pub expires: u32,
    /// No later instance will add a file.
    pub complete: bool,
    /// Media type of files without a media type.
    pub content_type: Option<String>,
    /// Content encoding of files without a content encoding.
    pub content_encoding: Option<String>,
    /// FEC parameters of files without FEC parameters.
    pub oti: OtiAttributes,
    /// `hw:Congestion-Control`: parameters of the session's channels for receivers; `None` for one channel of
    /// any rate.
    pub control: Option<ControlAttributes>,
    /// `hw:Next-Key`: public key (Ed25519) that will sign later sessions of the sender.
    pub next_key: Option<[u8; 32]>,
    /// `mbms2012:Base-URL-1`: servers of the files; at most [`URLS_MAX`]. Untrusted data: check before use.
    pub base_urls: Vec<String>,
    /// `mbms2012:Base-URL-2`: receivers that serve the files, a second group of servers; at most
    /// [`PEERS_MAX`]. Untrusted data: check before use.
    pub peer_urls: Vec<String>,
    /// `hw:Repair-Offset-Time`: seconds from the end of reception to the earliest request for repair.
    pub repair_offset: Option<u32>,
    /// `hw:Repair-Random-Time`: seconds over which receivers spread their first requests for repair.
    pub repair_random: Option<u32>,
    /// The files, each with a different TOI.
    pub files: Vec<File>,
    /// `hw:Folder`: names of folders that contain no file of the session, URI references; at most
    /// [`FOLDERS_MAX`]. Untrusted data: check before use as paths.
    pub folders: Vec<String>,
    /// `hw:Preserve`: kinds of metadata that travel, if other than by default. Untrusted data.
    pub preserve: Option<String>,
    /// `hw:Owner`: numeric user and group of all entries without an owner of their own. Untrusted data.
    pub owner: Option<String>,
    /// `hw:Entry`: metadata beyond the attributes of files; at most [`ENTRIES_MAX`].
    pub entries: Vec<Entry>,
}

/// Metadata of a folder, a link or a file, as written in the document: nothing is checked, so that a bad
/// entry spoils no other. An attribute that is too long, or no XML, reads as empty text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// Name, a URI reference.
    pub content_location: String,
    /// `Kind`: `folder`, `link`, `hardlink`, `file`.
    pub kind: String,
    /// `Target` of a link.
    pub target: Option<String>,
    /// `Mode`: permission bits, octal.
    pub mode: Option<String>,
    /// `Mtime`: time of the last modification.
    pub modified: Option<String>,
    /// `Owner`: numeric user and group, `1000:1000`.
    pub owner: Option<String>,
    /// `Xattrs`: extended attributes, at most [`XATTRS_LEN_MAX`] bytes.
    pub xattrs: Option<String>,
}

/// One object of the session and the file that it carries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct File {
    /// Transport object identifier, from 1 to [`crate::lct::TOI_MAX`].
    pub toi: u128,
    /// Name of the file, a URI reference. Untrusted data: check before use as a path.
    pub content_location: String,
    /// Length of the file in bytes, before content encoding.
    pub content_length: Option<u64>,
    /// Length of the object in bytes, after content encoding.
    pub transfer_length: Option<u64>,
    /// Media type.
    pub content_type: Option<String>,
    /// Content encoding of the object: `gzip`, `zstd`, of other senders `zlib` and `deflate`, too.
    pub content_encoding: Option<String>,
    /// MD5 of the file before content encoding.
    pub content_md5: Option<[u8; 16]>,
    /// FEC parameters of this object.
    pub oti: OtiAttributes,
    /// `mbms2012:Alternate-Content-Location-1`: URI references of the whole file, relative to the root's
    /// base URLs; at most [`URLS_MAX`]. Untrusted data: check before use.
    pub alternate_locations: Vec<String>,
    /// `mbms2012:File-ETag`: entity tag of the whole file at its servers, quotes included.
    pub etag: Option<String>,
    /// Our own attributes.
    pub headwater: Headwater,
}

/// Headwater's own attributes of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Headwater {
    /// `hw:Digest`: BLAKE3 over the block hashes of the whole file.
    pub digest: Option<[u8; 32]>,
    /// `hw:Block-Digests`: one hash, cut to 16 bytes, per source block of this object; at most
    /// [`BLOCK_DIGESTS_MAX`]. With `digests_follow`, only the hashes of the first blocks.
    pub block_digests: Vec<[u8; 16]>,
    /// `hw:Digests-Follow`: a later instance carries the missing digests.
    pub digests_follow: bool,
    /// `hw:Withdrawn`: the sender no longer sends the file.
    pub withdrawn: Option<Withdrawal>,
    /// `hw:Segment` and related attributes: the part of a large file that this object carries.
    pub segment: Option<Segment>,
    /// `hw:Stream` and related attributes: the part of a stream that this file carries.
    pub stream: Option<StreamPart>,
    /// `hw:Mode`: permission bits, at most [`MODE_MAX`].
    pub mode: Option<u32>,
    /// `hw:Mtime`: time of the file's last modification.
    pub modified: Option<FileTime>,
    /// `hw:Bundle`: the file is a bundle, a stored zip whose members receivers unpack.
    pub is_bundle: bool,
    /// `hw:Sparse`: the file has holes, and the sender may leave out blocks of zeros, which receivers know by
    /// their digests.
    pub is_sparse: bool,
    /// `hw:Content-Digest`: BLAKE3 of the whole file before content encoding.
    pub content_digest: Option<[u8; 32]>,
    /// `hw:File-Encoding` and `hw:File-Content-Length`: content encoding of the file that the segments carry.
    pub file_encoding: Option<FileEncoding>,
}

/// Content encoding of a file of several segments. Each segment is an object without content encoding; the
/// segments together are the encoded file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEncoding {
    /// `hw:File-Encoding`: name, as [`File::content_encoding`].
    pub name: String,
    /// `hw:File-Content-Length`: length of the file in bytes, before content encoding.
    pub content_length: u64,
}

/// Reason for which a sender withdraws a file that it has announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// `changed`: the file changed while it was being sent.
    Changed,
    /// `unreadable`: the file cannot be read any more.
    Unreadable,
    /// An unknown reason.
    Other,
}

/// Which part of a larger file an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// `hw:Segment`: number of this part, from 0.
    pub index: u32,
    /// `hw:Segments`: number of parts.
    pub count: u32,
    /// `hw:Offset`: start of the part in the file, in bytes.
    pub offset: u64,
    /// `hw:File`: name of the whole file. Untrusted data, like [`File::content_location`].
    pub file: String,
    /// `hw:File-Length`: length of the whole file in bytes.
    pub file_length: u64,
}

/// Part of a stream: content of a length that is not known before its end. Each part is a file, and the parts
/// join without holes. A sender lists the parts that it still sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamPart {
    /// `hw:Stream`: name of the stream. Untrusted data, like [`File::content_location`].
    pub name: String,
    /// `hw:Stream-Offset`: start of the part in the stream, in bytes.
    pub offset: u64,
    /// `hw:Stream-End`: the stream ends with this part; BLAKE3 over the digests of all parts before.
    pub end: Option<[u8; 32]>,
}

/// Why an FDT instance is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FdtError {
    /// More of something than we take.
    #[error("FDT has too many {what}, at most {max}")]
    TooMany {
        /// Name of the counted items.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// The document is not UTF-8.
    #[error("FDT is not UTF-8")]
    Encoding,
    /// The document is not well-formed XML.
    #[error("FDT is not well-formed XML at byte {position}: {reason}")]
    Xml {
        /// Offset in the document.
        position: u64,
        /// Message of the XML reader.
        reason: String,
    },
    /// The document ends inside an element.
    #[error("FDT ends before its root element does")]
    Truncated,
    /// The document has a document type declaration, which could define entities.
    #[error("FDT has a document type declaration")]
    DocType,
    /// The root is not one `FDT-Instance` in a namespace of FLUTE.
    #[error("FDT root element is {0:?}, expected FDT-Instance")]
    Root(String),
    /// A required attribute is missing.
    #[error("FDT lacks attribute {0}")]
    Missing(&'static str),
    /// An attribute cannot be understood.
    #[error("FDT attribute {attribute}={value:?}: {reason}")]
    Attribute {
        /// Name of the attribute.
        attribute: String,
        /// Value of the attribute, cut short.
        value: String,
        /// Reason for which the value is invalid.
        reason: &'static str,
    },
    /// A segment that lies outside of its file, or is numbered past the last segment.
    #[error("FDT segment {index} of {count} at byte {offset} is not within a file of {file_length} bytes")]
    Segment {
        /// Number of the segment.
        index: u32,
        /// Number of segments.
        count: u32,
        /// Start of the segment in the file, in bytes.
        offset: u64,
        /// Length of the file in bytes.
        file_length: u64,
    },
    /// Two files have the same TOI.
    #[error("FDT lists TOI {0} twice")]
    DuplicateToi(u128),
    /// `FEC-OTI-FEC-Encoding-ID` names a scheme that we do not know.
    #[error("FDT names FEC Encoding ID {0}, which is unknown")]
    UnknownScheme(u8),
    /// The FEC parameters contradict each other.
    #[error("FDT FEC parameters: {0}")]
    Fti(#[from] crate::fti::FtiError),
}

impl Instance {
    /// Reads a document.
    ///
    /// # Errors
    /// The first thing found wrong with the document or with an attribute that we know.
    pub fn parse(document: &[u8]) -> Result<Instance, FdtError> {
        parse::instance(document)
    }

    /// Writes the document in UTF-8. Characters that XML 1.0 cannot hold (most control characters) become
    /// U+FFFD: percent-encode locations first. A value beyond a bound of this module is written, but will not
    /// be parsed.
    pub fn to_xml(&self) -> String {
        xml::instance(self)
    }

    /// Returns the FEC parameters of `file`. Each attribute of `file` overrides the root's attribute.
    ///
    /// The transfer length is `Transfer-Length`, or `Content-Length` if no content encoding changes the
    /// length.
    ///
    /// # Errors
    /// [`FdtError::Missing`] if neither element has an attribute that the scheme needs. If
    /// `FEC-OTI-FEC-Encoding-ID` is missing, the parameters come in EXT_FTI. Other errors if the parameters
    /// are unusable.
    pub fn fti(&self, file: &File) -> Result<crate::Fti, FdtError> {
        file.oti.or(&self.oti).fti(self.transfer_length(file)?)
    }

    /// Length in bytes of the object that carries `file`.
    ///
    /// # Errors
    /// [`FdtError::Missing`] if the table does not give the length.
    pub fn transfer_length(&self, file: &File) -> Result<u64, FdtError> {
        let plain_length = file.content_length.filter(|_| self.content_encoding(file).is_none());
        file.transfer_length.or(plain_length).ok_or(FdtError::Missing("Transfer-Length"))
    }

    /// Content encoding of `file` in its object, by default the root's; `None` if the content is not encoded.
    pub fn content_encoding<'a>(&'a self, file: &'a File) -> Option<&'a str> {
        let encoding = file.content_encoding.as_ref().or(self.content_encoding.as_ref())?;
        Some(encoding.as_str()).filter(|name| !matches!(*name, "" | "null"))
    }
}
