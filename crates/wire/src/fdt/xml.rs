//! Writes an FDT instance as an XML document: fixed order of attributes, an element per line.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::attributes::{ENCODING_ID, INSTANCE_ID, MAX_BLOCK, MAX_SYMBOLS, SCHEME_SPECIFIC, SYMBOL_SIZE};
use super::{
    Entry, FDT_NAMESPACE, File, HEADWATER_NAMESPACE, Headwater, Instance, MBMS_NAMESPACE, OtiAttributes,
    Withdrawal,
};

pub(super) fn instance(instance: &Instance) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<FDT-Instance");
    attribute(&mut out, "xmlns", FDT_NAMESPACE);
    let has_own = instance.files.iter().any(|file| file.headwater != Headwater::default());
    let root_has_own = instance.control.is_some()
        || instance.next_key.is_some()
        || instance.repair_offset.is_some()
        || instance.repair_random.is_some()
        || instance.preserve.is_some()
        || instance.owner.is_some()
        || !instance.entries.is_empty();
    if has_mbms(instance) {
        attribute(&mut out, "xmlns:mbms2012", MBMS_NAMESPACE);
    }
    if has_own || root_has_own || !instance.folders.is_empty() {
        attribute(&mut out, "xmlns:hw", HEADWATER_NAMESPACE);
    }
    attribute(&mut out, "Expires", &instance.expires.to_string());
    optional(&mut out, "Complete", instance.complete.then_some("true"));
    optional(&mut out, "Content-Type", instance.content_type.as_deref());
    optional(&mut out, "Content-Encoding", instance.content_encoding.as_deref());
    oti(&mut out, &instance.oti);
    optional(
        &mut out,
        "hw:Congestion-Control",
        instance.control.as_ref().map(ToString::to_string).as_deref(),
    );
    optional(&mut out, "hw:Next-Key", instance.next_key.map(hex).as_deref());
    optional_number(&mut out, "hw:Repair-Offset-Time", instance.repair_offset.map(u64::from));
    optional_number(&mut out, "hw:Repair-Random-Time", instance.repair_random.map(u64::from));
    optional(&mut out, "hw:Preserve", instance.preserve.as_deref());
    optional(&mut out, "hw:Owner", instance.owner.as_deref());
    out.push_str(">\n");
    instance.files.iter().for_each(|entry| file(&mut out, entry));
    // After the files, where RFC 6726's schema has room for elements of other namespaces.
    instance.folders.iter().for_each(|location| folder(&mut out, location));
    instance.entries.iter().for_each(|entry| metadata(&mut out, entry));
    let own = instance.base_urls.iter().map(|url| ("mbms2012:Base-URL-1", url));
    let peers = instance.peer_urls.iter().map(|url| ("mbms2012:Base-URL-2", url));
    own.chain(peers).for_each(|(name, url)| {
        out.push_str("  ");
        element(&mut out, name, url);
        out.push('\n');
    });
    out.push_str("</FDT-Instance>\n");
    out
}

fn has_mbms(instance: &Instance) -> bool {
    let is_repaired = |file: &File| file.etag.is_some() || !file.alternate_locations.is_empty();
    let has_servers = !instance.base_urls.is_empty() || !instance.peer_urls.is_empty();
    has_servers || instance.files.iter().any(is_repaired)
}

fn file(out: &mut String, file: &File) {
    out.push_str("  <File");
    attribute(out, "TOI", &file.toi.to_string());
    attribute(out, "Content-Location", &file.content_location);
    optional_number(out, "Content-Length", file.content_length);
    optional_number(out, "Transfer-Length", file.transfer_length);
    optional(out, "Content-Type", file.content_type.as_deref());
    optional(out, "Content-Encoding", file.content_encoding.as_deref());
    optional(out, "Content-MD5", file.content_md5.map(|md5| BASE64_STANDARD.encode(md5)).as_deref());
    oti(out, &file.oti);
    headwater(out, &file.headwater);
    optional(out, "mbms2012:File-ETag", file.etag.as_deref());
    if file.alternate_locations.is_empty() {
        return out.push_str("/>\n");
    }
    out.push('>');
    let locations = &file.alternate_locations;
    locations.iter().for_each(|url| element(out, "mbms2012:Alternate-Content-Location-1", url));
    out.push_str("</File>\n");
}

fn element(out: &mut String, name: &str, text: &str) {
    write_tag(out, "<", name);
    text.chars().for_each(|char| escaped(out, char));
    write_tag(out, "</", name);
}

fn write_tag(out: &mut String, opening: &str, name: &str) {
    out.push_str(opening);
    out.push_str(name);
    out.push('>');
}

fn folder(out: &mut String, location: &str) {
    out.push_str("  <hw:Folder");
    attribute(out, "Content-Location", location);
    out.push_str("/>\n");
}

fn metadata(out: &mut String, entry: &Entry) {
    out.push_str("  <hw:Entry");
    attribute(out, "Content-Location", &entry.content_location);
    attribute(out, "Kind", &entry.kind);
    optional(out, "Target", entry.target.as_deref());
    optional(out, "Mode", entry.mode.as_deref());
    optional(out, "Mtime", entry.modified.as_deref());
    optional(out, "Owner", entry.owner.as_deref());
    optional(out, "Xattrs", entry.xattrs.as_deref());
    out.push_str("/>\n");
}

fn oti(out: &mut String, oti: &OtiAttributes) {
    optional_number(out, ENCODING_ID, oti.encoding_id.map(u64::from));
    optional_number(out, INSTANCE_ID, oti.instance_id);
    optional_number(out, MAX_BLOCK, oti.max_block);
    optional_number(out, SYMBOL_SIZE, oti.symbol_size);
    optional_number(out, MAX_SYMBOLS, oti.max_symbols);
    optional(
        out,
        SCHEME_SPECIFIC,
        oti.scheme_specific.as_ref().map(|info| BASE64_STANDARD.encode(info)).as_deref(),
    );
}

fn headwater(out: &mut String, headwater: &Headwater) {
    optional(out, "hw:Digest", headwater.digest.map(hex).as_deref());
    if !headwater.block_digests.is_empty() {
        attribute(out, "hw:Block-Digests", &BASE64_STANDARD.encode(headwater.block_digests.as_flattened()));
    }
    optional(out, "hw:Digests-Follow", headwater.digests_follow.then_some("true"));
    optional(out, "hw:Withdrawn", headwater.withdrawn.map(withdrawal));
    if let Some(segment) = &headwater.segment {
        attribute(out, "hw:Segment", &segment.index.to_string());
        attribute(out, "hw:Segments", &segment.count.to_string());
        attribute(out, "hw:Offset", &segment.offset.to_string());
        attribute(out, "hw:File", &segment.file);
        attribute(out, "hw:File-Length", &segment.file_length.to_string());
    }
    if let Some(part) = &headwater.stream {
        attribute(out, "hw:Stream", &part.name);
        attribute(out, "hw:Stream-Offset", &part.offset.to_string());
        optional(out, "hw:Stream-End", part.end.map(hex).as_deref());
    }
    optional(out, "hw:Mode", headwater.mode.map(|mode| format!("{mode:04o}")).as_deref());
    optional(out, "hw:Mtime", headwater.modified.map(|time| time.to_string()).as_deref());
    optional(out, "hw:Bundle", headwater.is_bundle.then_some("true"));
    optional(out, "hw:Sparse", headwater.is_sparse.then_some("true"));
    optional(out, "hw:Content-Digest", headwater.content_digest.map(hex).as_deref());
    if let Some(encoding) = &headwater.file_encoding {
        attribute(out, "hw:File-Encoding", &encoding.name);
        attribute(out, "hw:File-Content-Length", &encoding.content_length.to_string());
    }
}

const fn withdrawal(reason: Withdrawal) -> &'static str {
    match reason {
        Withdrawal::Changed => "changed",
        Withdrawal::Unreadable => "unreadable",
        Withdrawal::Other => "other",
    }
}

fn optional(out: &mut String, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        attribute(out, name, value);
    }
}

fn optional_number(out: &mut String, name: &str, value: Option<u64>) {
    optional(out, name, value.map(|value| value.to_string()).as_deref());
}

fn attribute(out: &mut String, name: &str, value: &str) {
    out.push(' ');
    out.push_str(name);
    out.push_str("=\"");
    value.chars().for_each(|char| escaped(out, char));
    out.push('"');
}

/// Writes a character. White space becomes a character reference, because a reader otherwise turns white
/// space into plain spaces (XML 1.0 section 3.3.3).
fn escaped(out: &mut String, char: char) {
    match char {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '"' => out.push_str("&quot;"),
        '\t' => out.push_str("&#9;"),
        '\n' => out.push_str("&#10;"),
        '\r' => out.push_str("&#13;"),
        char if is_xml_char(char) => out.push(char),
        _ => out.push('\u{FFFD}'),
    }
}

/// Whether a document may hold `char` (XML 1.0 section 2.2).
pub(super) fn is_xml_char(char: char) -> bool {
    matches!(char, '\t' | '\n' | '\r' | ' '..='\u{FFFD}' | '\u{10000}'..)
}

fn hex(bytes: [u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
