//! An FDT instance out of an XML document from the network.
//!
//! Attribute values of an FDT, from text to numbers, digests and the like.

use std::collections::BTreeSet;
use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use quick_xml::XmlVersion;
use quick_xml::events::attributes::Attribute;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::{Namespace, ResolveResult};
use quick_xml::reader::NsReader;

use super::attributes::{ENCODING_ID, INSTANCE_ID, MAX_BLOCK, MAX_SYMBOLS, SCHEME_SPECIFIC, SYMBOL_SIZE};
use super::xml::is_xml_char;
use super::{
    ATTRIBUTE_LEN_MAX, BLOCK_DIGESTS_MAX, ControlAttributes, DEPTH_MAX, DOCUMENT_LEN_MAX, ENTRIES_MAX, Entry,
    FDT_NAMESPACE, FDT_NAMESPACE_2005, FILES_MAX, FOLDERS_MAX, FdtError, File, FileEncoding, FileTime,
    HEADWATER_NAMESPACE, Headwater, Instance, MBMS_NAMESPACE, MODE_MAX, OtiAttributes, PEERS_MAX, Segment,
    StreamPart, URLS_MAX, Withdrawal, XATTRS_LEN_MAX,
};
use crate::lct::TOI_MAX;

pub(super) fn instance(document: &[u8]) -> Result<Instance, FdtError> {
    if document.len() > DOCUMENT_LEN_MAX {
        return Err(FdtError::TooMany { what: "bytes", max: DOCUMENT_LEN_MAX });
    }
    let text = std::str::from_utf8(document).map_err(|_| FdtError::Encoding)?;
    let mut reader = NsReader::from_str(text.strip_prefix('\u{FEFF}').unwrap_or(text));
    let mut parser = Parser::default();
    loop {
        let event = reader.read_event().map_err(|error| malformed(&reader, &error))?;
        match event {
            Event::Start(element) => parser.open(&reader, &element, true)?,
            Event::Empty(element) => parser.open(&reader, &element, false)?,
            // The reader refuses an end tag without a start tag.
            Event::End(_) => parser.close(),
            Event::Text(text) => parser.add_text(&text)?,
            Event::GeneralRef(name) => parser.add_reference(&name)?,
            Event::DocType(_) => return Err(FdtError::DocType),
            Event::Eof => return parser.finish(),
            _ => {}
        }
    }
}

#[derive(Default)]
struct Parser {
    /// Elements that are open.
    depth: usize,
    instance: Option<Instance>,
    tois: BTreeSet<u128>,
    /// URL element that is open: the depth of the element, and the text so far.
    url: Option<(usize, String)>,
    /// Whether the open URL element names a peer.
    is_peer: bool,
    /// Whether the open element at depth 1 is a [`File`], the last of the instance.
    is_in_file: bool,
}

impl Parser {
    fn open(
        &mut self,
        reader: &NsReader<&[u8]>,
        element: &BytesStart<'_>,
        has_content: bool,
    ) -> Result<(), FdtError> {
        let (namespace, name) = reader.resolver().resolve_element(element.name());
        let is_fdt = is_fdt_namespace(&namespace);
        let is_own = namespace == ResolveResult::Bound(Namespace(HEADWATER_NAMESPACE));
        let is_mbms = namespace == ResolveResult::Bound(Namespace(MBMS_NAMESPACE));
        match (self.depth, &mut self.instance) {
            (0, None) if is_fdt && name.as_ref() == "FDT-Instance" => {
                self.instance = Some(root(reader, element)?);
            }
            (0, _) => return Err(FdtError::Root(excerpt(name.as_ref()))),
            (1, Some(instance)) if is_fdt && name.as_ref() == "File" => {
                if instance.files.len() == FILES_MAX {
                    return Err(FdtError::TooMany { what: "files", max: FILES_MAX });
                }
                let file = file(reader, element)?;
                if !self.tois.insert(file.toi) {
                    return Err(FdtError::DuplicateToi(file.toi));
                }
                instance.files.push(file);
                self.is_in_file = has_content;
            }
            (1, Some(_)) if is_mbms && matches!(name.as_ref(), "Base-URL-1" | "Base-URL-2") => {
                self.open_url(has_content);
                self.is_peer = name.as_ref() == "Base-URL-2";
            }
            (2, Some(_)) if is_mbms && self.is_in_file && name.as_ref() == "Alternate-Content-Location-1" => {
                self.open_url(has_content);
            }
            (1, Some(instance)) if is_own && name.as_ref() == "Folder" => {
                if instance.folders.len() == FOLDERS_MAX {
                    return Err(FdtError::TooMany { what: "folders", max: FOLDERS_MAX });
                }
                instance.folders.push(folder(reader, element)?);
            }
            (1, Some(instance)) if is_own && name.as_ref() == "Entry" => {
                if instance.entries.len() == ENTRIES_MAX {
                    return Err(FdtError::TooMany { what: "entries", max: ENTRIES_MAX });
                }
                instance.entries.push(entry(reader, element)?);
            }
            _ => {}
        }
        if self.depth == DEPTH_MAX {
            return Err(FdtError::TooMany { what: "nested elements", max: DEPTH_MAX });
        }
        self.depth += usize::from(has_content);
        Ok(())
    }

    fn open_url(&mut self, has_content: bool) {
        self.url = has_content.then(|| (self.depth, String::new()));
    }

    fn close(&mut self) {
        self.depth -= 1;
        if let Some((_, url)) = self.url.take_if(|(depth, _)| *depth == self.depth) {
            self.add_url(url.trim().to_owned());
        }
        self.is_in_file &= self.depth > 1;
    }

    /// Adds a URL to the root or to the last file.
    fn add_url(&mut self, url: String) {
        let Some(instance) = &mut self.instance else { return };
        let (urls, most) = match instance.files.last_mut() {
            Some(file) if self.is_in_file => (&mut file.alternate_locations, URLS_MAX),
            _ if self.is_peer => (&mut instance.peer_urls, PEERS_MAX),
            _ => (&mut instance.base_urls, URLS_MAX),
        };
        if urls.len() < most && !url.is_empty() && !url.contains(char::is_control) {
            urls.push(url);
        }
    }

    fn add_text(&mut self, text: &str) -> Result<(), FdtError> {
        let Some((_, url)) = &mut self.url else { return Ok(()) };
        if url.len() + text.len() > ATTRIBUTE_LEN_MAX {
            return Err(FdtError::TooMany { what: "bytes in a URL", max: ATTRIBUTE_LEN_MAX });
        }
        if !text.chars().all(is_xml_char) {
            let reason = "a URL has a character that XML forbids".to_owned();
            return Err(FdtError::Xml { position: 0, reason });
        }
        url.push_str(text);
        Ok(())
    }

    /// Adds a predefined entity; a URL needs no character reference.
    fn add_reference(&mut self, name: &str) -> Result<(), FdtError> {
        let text = match name {
            "amp" => "&",
            "lt" => "<",
            "gt" => ">",
            "quot" => "\"",
            "apos" => "'",
            _ if self.url.is_none() => return Ok(()),
            _ => {
                let reason = "a URL has an entity that is not predefined".to_owned();
                return Err(FdtError::Xml { position: 0, reason });
            }
        };
        self.add_text(text)
    }

    fn finish(self) -> Result<Instance, FdtError> {
        if self.depth > 0 { Err(FdtError::Truncated) } else { self.instance.ok_or(FdtError::Truncated) }
    }
}

fn is_fdt_namespace(namespace: &ResolveResult<'_>) -> bool {
    match namespace {
        ResolveResult::Bound(Namespace(name)) => [FDT_NAMESPACE, FDT_NAMESPACE_2005].contains(name),
        // Some senders leave the namespace out.
        ResolveResult::Unbound => true,
        ResolveResult::Unknown(_) => false,
    }
}

fn malformed(reader: &NsReader<&[u8]>, error: &impl ToString) -> FdtError {
    FdtError::Xml { position: reader.error_position(), reason: excerpt(&error.to_string()) }
}

/// The attributes of `element` that are FLUTE's own, which have no namespace, 3GPP's, or Headwater's.
fn attributes<'a>(
    reader: &'a NsReader<&[u8]>,
    element: &'a BytesStart<'_>,
) -> impl Iterator<Item = Result<KnownAttribute<'a>, FdtError>> {
    element.attributes().filter_map(|attribute| match attribute {
        Ok(attribute) => known(reader, attribute).map(Ok),
        Err(error) => Some(Err(malformed(reader, &error))),
    })
}

enum KnownAttribute<'a> {
    Flute(&'a str, Value<'a>),
    Headwater(&'a str, Value<'a>),
    Mbms(&'a str, Value<'a>),
}

fn known<'a>(reader: &NsReader<&[u8]>, attribute: Attribute<'a>) -> Option<KnownAttribute<'a>> {
    let position = reader.buffer_position();
    let (namespace, name) = reader.resolver().resolve_attribute(attribute.key);
    let value = Value { attribute, position };
    match namespace {
        ResolveResult::Unbound => Some(KnownAttribute::Flute(name.into_inner(), value)),
        ResolveResult::Bound(Namespace(HEADWATER_NAMESPACE)) => {
            Some(KnownAttribute::Headwater(name.into_inner(), value))
        }
        ResolveResult::Bound(Namespace(MBMS_NAMESPACE)) => {
            Some(KnownAttribute::Mbms(name.into_inner(), value))
        }
        _ => None,
    }
}

fn root(reader: &NsReader<&[u8]>, element: &BytesStart<'_>) -> Result<Instance, FdtError> {
    let (mut instance, mut expires) = (Instance::default(), None);
    for attribute in attributes(reader, element) {
        let (name, value) = match attribute? {
            KnownAttribute::Flute(name, value) => (name, value),
            KnownAttribute::Headwater("Congestion-Control", value) => {
                instance.control = Some(value.control()?);
                continue;
            }
            KnownAttribute::Headwater("Next-Key", value) => {
                instance.next_key = Some(value.digest()?);
                continue;
            }
            KnownAttribute::Headwater("Repair-Offset-Time", value) => {
                instance.repair_offset = Some(value.number()?);
                continue;
            }
            KnownAttribute::Headwater("Repair-Random-Time", value) => {
                instance.repair_random = Some(value.number()?);
                continue;
            }
            KnownAttribute::Headwater("Preserve", value) => {
                instance.preserve = Some(value.lenient(ATTRIBUTE_LEN_MAX));
                continue;
            }
            KnownAttribute::Headwater("Owner", value) => {
                instance.owner = Some(value.lenient(ATTRIBUTE_LEN_MAX));
                continue;
            }
            KnownAttribute::Headwater(..) | KnownAttribute::Mbms(..) => continue,
        };
        match name {
            "Expires" => expires = Some(value.number()?),
            "Complete" => instance.complete = value.boolean()?,
            "Content-Type" => instance.content_type = Some(value.string()?),
            "Content-Encoding" => instance.content_encoding = Some(value.string()?),
            name => oti_attribute(&mut instance.oti, name, &value)?,
        }
    }
    instance.expires = expires.ok_or(FdtError::Missing("Expires"))?;
    Ok(instance)
}

fn file(reader: &NsReader<&[u8]>, element: &BytesStart<'_>) -> Result<File, FdtError> {
    let (mut file, mut location, mut segment) = (File::default(), None, SegmentParts::default());
    let mut part = StreamPartAttributes::default();
    let mut encoding = FileEncodingAttributes::default();
    for attribute in attributes(reader, element) {
        match attribute? {
            KnownAttribute::Flute("TOI", value) => file.toi = value.toi()?,
            KnownAttribute::Flute("Content-Location", value) => location = Some(value.string()?),
            KnownAttribute::Flute("Content-Length", value) => file.content_length = Some(value.number()?),
            KnownAttribute::Flute("Transfer-Length", value) => file.transfer_length = Some(value.number()?),
            KnownAttribute::Flute("Content-Type", value) => file.content_type = Some(value.string()?),
            KnownAttribute::Flute("Content-Encoding", value) => file.content_encoding = Some(value.string()?),
            KnownAttribute::Flute("Content-MD5", value) => file.content_md5 = Some(value.md5()?),
            KnownAttribute::Flute(name, value) => oti_attribute(&mut file.oti, name, &value)?,
            KnownAttribute::Mbms("File-ETag", value) => file.etag = Some(value.string()?),
            KnownAttribute::Mbms(..) => {}
            KnownAttribute::Headwater("File-Encoding", value) => encoding.name = Some(value.string()?),
            KnownAttribute::Headwater("File-Content-Length", value) => {
                encoding.content_length = Some(value.number()?);
            }
            KnownAttribute::Headwater(name, value) => {
                headwater_attribute(&mut file.headwater, (&mut segment, &mut part), name, &value)?;
            }
        }
    }
    if file.toi == 0 {
        return Err(FdtError::Missing("TOI"));
    }
    file.content_location = location.ok_or(FdtError::Missing("Content-Location"))?;
    let length = file.content_length.unwrap_or(0);
    file.headwater.segment = segment.finish(length)?;
    file.headwater.stream = part.finish(length)?;
    file.headwater.file_encoding = encoding.finish()?;
    Ok(file)
}

/// The name of a folder.
fn folder(reader: &NsReader<&[u8]>, element: &BytesStart<'_>) -> Result<String, FdtError> {
    for attribute in attributes(reader, element) {
        if let KnownAttribute::Flute("Content-Location", value) = attribute? {
            return value.string();
        }
    }
    Err(FdtError::Missing("Content-Location"))
}

/// Metadata of an entry. Only the syntax of XML is checked.
fn entry(reader: &NsReader<&[u8]>, element: &BytesStart<'_>) -> Result<Entry, FdtError> {
    let mut entry = Entry::default();
    for attribute in attributes(reader, element) {
        let KnownAttribute::Flute(name, value) = attribute? else { continue };
        let text = || value.lenient(ATTRIBUTE_LEN_MAX);
        match name {
            "Content-Location" => entry.content_location = text(),
            "Kind" => entry.kind = text(),
            "Target" => entry.target = Some(text()),
            "Mode" => entry.mode = Some(text()),
            "Mtime" => entry.modified = Some(text()),
            "Owner" => entry.owner = Some(text()),
            "Xattrs" => entry.xattrs = Some(value.lenient(XATTRS_LEN_MAX)),
            _ => {}
        }
    }
    Ok(entry)
}

fn oti_attribute(oti: &mut OtiAttributes, name: &str, value: &Value<'_>) -> Result<(), FdtError> {
    match name {
        ENCODING_ID => oti.encoding_id = Some(value.number()?),
        INSTANCE_ID => oti.instance_id = Some(value.number()?),
        MAX_BLOCK => oti.max_block = Some(value.number()?),
        SYMBOL_SIZE => oti.symbol_size = Some(value.number()?),
        MAX_SYMBOLS => oti.max_symbols = Some(value.number()?),
        SCHEME_SPECIFIC => oti.scheme_specific = Some(value.base64()?),
        _ => {}
    }
    Ok(())
}

fn headwater_attribute(
    headwater: &mut Headwater,
    (segment, part): (&mut SegmentParts, &mut StreamPartAttributes),
    name: &str,
    value: &Value<'_>,
) -> Result<(), FdtError> {
    match name {
        "Digest" => headwater.digest = Some(value.digest()?),
        "Block-Digests" => headwater.block_digests = value.block_digests()?,
        "Digests-Follow" => headwater.digests_follow = value.boolean()?,
        "Withdrawn" => headwater.withdrawn = Some(value.withdrawal()?),
        "Segment" => segment.index = Some(value.number()?),
        "Segments" => segment.count = Some(value.number()?),
        "Offset" => segment.offset = Some(value.number()?),
        "File" => segment.file = Some(value.string()?),
        "File-Length" => segment.file_length = Some(value.number()?),
        "Stream" => part.name = Some(value.string()?),
        "Stream-Offset" => part.offset = Some(value.number()?),
        "Stream-End" => part.end = Some(value.digest()?),
        "Mode" => headwater.mode = Some(value.mode()?),
        "Mtime" => headwater.modified = Some(value.time()?),
        "Bundle" => headwater.is_bundle = value.boolean()?,
        "Sparse" => headwater.is_sparse = value.boolean()?,
        "Content-Digest" => headwater.content_digest = Some(value.digest()?),
        _ => {}
    }
    Ok(())
}

/// The attributes of a [`FileEncoding`]: both present or both absent.
#[derive(Default)]
struct FileEncodingAttributes {
    name: Option<String>,
    content_length: Option<u64>,
}

impl FileEncodingAttributes {
    fn finish(self) -> Result<Option<FileEncoding>, FdtError> {
        match (self.name, self.content_length) {
            (None, None) => Ok(None),
            (Some(name), Some(content_length)) => Ok(Some(FileEncoding { name, content_length })),
            (None, Some(_)) => Err(FdtError::Missing("hw:File-Encoding")),
            (Some(_), None) => Err(FdtError::Missing("hw:File-Content-Length")),
        }
    }
}

/// The attributes of a [`StreamPart`].
#[derive(Default)]
struct StreamPartAttributes {
    name: Option<String>,
    offset: Option<u64>,
    end: Option<[u8; 32]>,
}

impl StreamPartAttributes {
    fn finish(self, content_length: u64) -> Result<Option<StreamPart>, FdtError> {
        let StreamPartAttributes { name, offset, end } = self;
        if name.is_none() && offset.is_none() && end.is_none() {
            return Ok(None);
        }
        let name = name.ok_or(FdtError::Missing("hw:Stream"))?;
        let offset = offset.ok_or(FdtError::Missing("hw:Stream-Offset"))?;
        match offset.checked_add(content_length) {
            Some(_) => Ok(Some(StreamPart { name, offset, end })),
            None => Err(FdtError::Attribute {
                attribute: "hw:Stream-Offset".into(),
                value: offset.to_string(),
                reason: "the part ends beyond 2^64",
            }),
        }
    }
}

/// The attributes of a [`Segment`]: all present or all absent.
#[derive(Default)]
struct SegmentParts {
    index: Option<u32>,
    count: Option<u32>,
    offset: Option<u64>,
    file: Option<String>,
    file_length: Option<u64>,
}

impl SegmentParts {
    fn finish(self, content_length: u64) -> Result<Option<Segment>, FdtError> {
        let SegmentParts { index: None, count: None, offset: None, file: None, file_length: None } = self
        else {
            return self.segment(content_length).map(Some);
        };
        Ok(None)
    }

    fn segment(self, content_length: u64) -> Result<Segment, FdtError> {
        let index = self.index.ok_or(FdtError::Missing("hw:Segment"))?;
        let count = self.count.ok_or(FdtError::Missing("hw:Segments"))?;
        let offset = self.offset.ok_or(FdtError::Missing("hw:Offset"))?;
        let file = self.file.ok_or(FdtError::Missing("hw:File"))?;
        let file_length = self.file_length.ok_or(FdtError::Missing("hw:File-Length"))?;
        let fits = offset.checked_add(content_length).is_some_and(|end| end <= file_length);
        if index >= count || !fits {
            return Err(FdtError::Segment { index, count, offset, file_length });
        }
        Ok(Segment { index, count, offset, file, file_length })
    }
}

/// Base64 characters of [`BLOCK_DIGESTS_MAX`] digests.
const BLOCK_DIGESTS_LEN_MAX: usize = (BLOCK_DIGESTS_MAX * 16).div_ceil(3) * 4;
/// Characters of the document that an error quotes.
const EXCERPT_LEN_MAX: usize = 64;

/// An attribute whose value is read on demand.
pub(super) struct Value<'a> {
    pub(super) attribute: Attribute<'a>,
    /// Offset of the element's end in the document, for messages.
    pub(super) position: u64,
}

impl Value<'_> {
    /// The value as text, entities expanded.
    pub(super) fn string(&self) -> Result<String, FdtError> {
        self.text(ATTRIBUTE_LEN_MAX)
    }

    /// The value as text; empty if the value is too long, or no text of XML.
    pub(super) fn lenient(&self, len_max: usize) -> String {
        self.text(len_max).unwrap_or_default()
    }

    fn text(&self, len_max: usize) -> Result<String, FdtError> {
        if self.attribute.value.len() > len_max {
            return Err(FdtError::TooMany { what: "bytes in an attribute", max: len_max });
        }
        let text = self.attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| {
            FdtError::Xml { position: self.position, reason: excerpt(&error.to_string()) }
        })?;
        if text.chars().all(is_xml_char) {
            Ok(text.into_owned())
        } else {
            Err(self.invalid("forbidden character"))
        }
    }

    /// Returns the value without surrounding white space, as XML Schema collapses all types but strings.
    fn token(&self) -> Result<String, FdtError> {
        Ok(self.string()?.trim().to_owned())
    }

    pub(super) fn number<T: FromStr>(&self) -> Result<T, FdtError> {
        self.token()?.parse().map_err(|_| self.invalid("not a decimal number within the attribute's range"))
    }

    pub(super) fn toi(&self) -> Result<u128, FdtError> {
        match self.number()? {
            toi @ 1..=TOI_MAX => Ok(toi),
            _ => Err(self.invalid("not within 1 and 2^112 - 1")),
        }
    }

    pub(super) fn boolean(&self) -> Result<bool, FdtError> {
        match self.token()?.as_str() {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(self.invalid("neither true nor false")),
        }
    }

    pub(super) fn base64(&self) -> Result<Vec<u8>, FdtError> {
        self.base64_within(ATTRIBUTE_LEN_MAX)
    }

    fn base64_within(&self, len_max: usize) -> Result<Vec<u8>, FdtError> {
        BASE64_STANDARD.decode(self.text(len_max)?.trim()).map_err(|_| self.invalid("not base64"))
    }

    pub(super) fn md5(&self) -> Result<[u8; 16], FdtError> {
        self.base64()?.try_into().map_err(|_| self.invalid("not 16 bytes long"))
    }

    pub(super) fn digest(&self) -> Result<[u8; 32], FdtError> {
        let text = self.token()?;
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
            return Err(self.invalid("odd number of digits"));
        };
        let bytes: Option<Vec<u8>> =
            pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect();
        bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| self.invalid("not 64 hexadecimal digits"))
    }

    pub(super) fn block_digests(&self) -> Result<Vec<[u8; 16]>, FdtError> {
        let bytes = self.base64_within(BLOCK_DIGESTS_LEN_MAX)?;
        let (digests, []) = bytes.as_chunks::<16>() else {
            return Err(self.invalid("not a multiple of 16 bytes"));
        };
        Ok(digests.to_vec())
    }

    pub(super) fn mode(&self) -> Result<u32, FdtError> {
        let mode = u32::from_str_radix(&self.token()?, 8).ok().filter(|&mode| mode <= MODE_MAX);
        mode.ok_or_else(|| self.invalid("not octal permission bits"))
    }

    pub(super) fn withdrawal(&self) -> Result<Withdrawal, FdtError> {
        Ok(match self.token()?.as_str() {
            "changed" => Withdrawal::Changed,
            "unreadable" => Withdrawal::Unreadable,
            _ => Withdrawal::Other,
        })
    }

    pub(super) fn time(&self) -> Result<FileTime, FdtError> {
        self.token()?.parse().map_err(|_| self.invalid("not seconds with nine decimals"))
    }

    pub(super) fn control(&self) -> Result<ControlAttributes, FdtError> {
        self.token()?.parse().map_err(|_| self.invalid("not a name and a few numbers"))
    }

    fn invalid(&self, reason: &'static str) -> FdtError {
        let attribute = excerpt(self.attribute.key.into_inner());
        FdtError::Attribute { attribute, value: excerpt(&self.attribute.value), reason }
    }
}

fn digit(ascii: u8) -> Option<u8> {
    char::from(ascii).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Returns the start of untrusted text, short enough to quote in an error.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT_LEN_MAX).collect()
}
