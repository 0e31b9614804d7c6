//! Content encodings of files (RFC 6726 section 3.4.2, attribute `Content-Encoding`): the object that travels
//! holds the encoded content, and a receiver decodes the content once the object is whole.

use core::fmt;

use headwater_wire::fdt::{File, FileEncoding};

use super::object::Digest;

/// Content coding that senders and receivers know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    /// `gzip` (RFC 1952), which other FLUTE receivers decode.
    Gzip,
    /// `zstd` (RFC 8878).
    Zstd,
}

impl ContentCoding {
    /// All codings.
    pub const ALL: [Self; 2] = [Self::Gzip, Self::Zstd];

    /// Returns the registered name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Finds a coding by its name, in any case of letters.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|coding| coding.name().eq_ignore_ascii_case(name.trim()))
    }
}

impl fmt::Display for ContentCoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Encoding of a file whose object holds encoded content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// Coding.
    pub coding: ContentCoding,
    /// Length of the content before encoding, in bytes: the exact length of the decoded file.
    pub bytes: u64,
    /// BLAKE3 of the content before encoding, if the sender announced the digest.
    pub digest: Option<Digest>,
}

/// Error of an entry of the FDT that describes encoded content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodingError {
    /// The coding is unknown.
    #[error(
        "its content is encoded ('{0}'), which is not supported; send it as gzip or zstd, or without Content-Encoding"
    )]
    Unknown(String),
    /// No length bounds the decoded content.
    #[error("its content is encoded, and its decoded length is missing; send it with Content-Length")]
    NoLength,
    /// A segment or a part of a stream is encoded by itself.
    #[error("a part of a file or of a stream cannot be encoded by itself; send it without Content-Encoding")]
    Part,
    /// The content is not encoded, and has two lengths.
    #[error("its length differs from its transfer length")]
    Length,
}

impl Encoding {
    /// Reads the encoding of an entry for an object of `transfer_length` bytes; `None` if the content is not
    /// encoded. `default` is the content encoding of the instance's root.
    pub(super) fn of(
        entry: &File,
        default: Option<&str>,
        transfer_length: u64,
    ) -> Result<Option<Self>, EncodingError> {
        let is_name = |name: &&str| !matches!(*name, "" | "null");
        let own = entry.content_encoding.as_deref().or(default).filter(is_name);
        let of_segments =
            entry.headwater.file_encoding.as_ref().filter(|_| entry.headwater.segment.is_some());
        let (name, bytes) = match (own, of_segments) {
            (None, None) => {
                let is_other = |length: u64| length != transfer_length;
                let differs = entry.content_length.is_some_and(is_other);
                return if differs { Err(EncodingError::Length) } else { Ok(None) };
            }
            (Some(name), None) => (name, entry.content_length.ok_or(EncodingError::NoLength)?),
            (None, Some(FileEncoding { name, content_length })) => (name.as_str(), *content_length),
            (Some(_), Some(_)) => return Err(EncodingError::Part),
        };
        let coding = ContentCoding::of_name(name).ok_or_else(|| EncodingError::Unknown(name.to_owned()))?;
        if entry.headwater.stream.is_some() || (own.is_some() && entry.headwater.segment.is_some()) {
            return Err(EncodingError::Part);
        }
        Ok(Some(Self { coding, bytes, digest: entry.headwater.content_digest }))
    }

    /// Describes the encoding in the entry of an object.
    pub(super) fn describe(&self, entry: &mut File) {
        entry.headwater.content_digest = self.digest;
        let name = self.coding.name().to_owned();
        if entry.headwater.segment.is_some() {
            entry.headwater.file_encoding = Some(FileEncoding { name, content_length: self.bytes });
        } else {
            (entry.content_encoding, entry.content_length) = (Some(name), Some(self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_fec::{Order, Scheme};
    use headwater_wire::fdt::{Headwater, Instance, StreamPart};

    use super::*;
    use crate::delivery::{FileToSend, PlanConfig, RelativePath, SessionPlan};

    fn encoded(name: &str) -> File {
        File {
            content_length: Some(500),
            transfer_length: Some(100),
            content_encoding: Some(name.to_owned()),
            ..File::default()
        }
    }

    #[test]
    fn an_entry_names_a_known_coding_and_the_decoded_length() {
        let of = |entry: &File, default| Encoding::of(entry, default, 100);
        let encoding = |coding| Ok(Some(Encoding { coding, bytes: 500, digest: None }));
        assert_eq!(of(&encoded("zstd"), None), encoding(ContentCoding::Zstd));
        assert_eq!(of(&encoded(" GZip "), Some("zstd")), encoding(ContentCoding::Gzip));
        let of_root = File { content_encoding: None, ..encoded("") };
        assert_eq!(of(&of_root, Some("gzip")), encoding(ContentCoding::Gzip));
        assert_eq!(of(&of_root, None), Err(EncodingError::Length));
        assert_eq!(of(&encoded("null"), Some("gzip")), Err(EncodingError::Length));
        let plain = File { content_length: Some(100), ..encoded("") };
        assert_eq!(of(&plain, None), Ok(None));
        for name in ["br", "deflate", "gzip, zstd", "identity"] {
            assert_eq!(of(&encoded(name), None), Err(EncodingError::Unknown(name.to_owned())));
        }
        let endless = File { content_length: None, ..encoded("gzip") };
        assert_eq!(of(&endless, None), Err(EncodingError::NoLength));
        let stream = Some(StreamPart { name: "a".to_owned(), offset: 0, end: None });
        let part = File { headwater: Headwater { stream, ..Headwater::default() }, ..encoded("gzip") };
        assert_eq!(of(&part, None), Err(EncodingError::Part));
    }

    /// A file of one object has the attributes of FLUTE; the segments of a long file have attributes of ours.
    #[test]
    fn the_description_of_a_plan_is_read_back() {
        for bytes in [1_000, 40_000_000] {
            let file =
                FileToSend { path: RelativePath::new("a").unwrap(), bytes, mode: None, modified: None };
            let order = Order::Window;
            let config = PlanConfig { scheme: Scheme::RaptorQ, symbol_size: 64, order };
            let encoding = Encoding { coding: ContentCoding::Zstd, bytes: 1 << 40, digest: Some([7; 32]) };
            let plan = SessionPlan::new(vec![file], config).unwrap().with_encodings([(0, encoding)].into());
            let digests: Vec<_> = plan
                .objects()
                .iter()
                .map(|object| vec![[1; 32]; object.partition.blocks() as usize])
                .collect();
            let instance = Instance::parse(plan.fdt(&digests, 1).to_xml().as_bytes()).unwrap();
            assert_eq!(instance.files.len() > 1, bytes > 1_000);
            for entry in &instance.files {
                let length = instance.transfer_length(entry).unwrap();
                let read = Encoding::of(entry, instance.content_encoding(entry), length);
                assert_eq!(read, Ok(Some(encoding)));
                // Other receivers keep segments as they are.
                assert_eq!(entry.content_encoding.is_some(), instance.files.len() == 1);
                let own = Encoding::of(entry, Some("gzip"), length);
                assert_eq!(own.is_err(), entry.headwater.segment.is_some());
            }
        }
    }
}
