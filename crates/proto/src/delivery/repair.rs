//! Servers of whole files, for receivers that miss symbols at the end of a session (3GPP TS 26.346,
//! clause 9.3).

use headwater_wire::fdt::{File, Instance};

use crate::delivery::name::RelativePath;
use crate::delivery::object::{Digest, hex};
use crate::time::Duration;

/// Servers that a session names for repair, and the times by which receivers spread their requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairServers {
    /// Base URLs, in the order of preference; at most [`URLS_MAX`](headwater_wire::fdt::URLS_MAX). A file has
    /// the URL of a base and its percent-encoded name.
    pub base_urls: Vec<String>,
    /// Base URLs of receivers that serve the files, in no order; at most
    /// [`PEERS_MAX`](headwater_wire::fdt::PEERS_MAX). Only a receiver fills this list: the sender names peers
    /// while the session runs ([`DeliverySender::name_peers`](super::DeliverySender::name_peers)).
    pub peer_urls: Vec<String>,
    /// Whether all servers answer with the digest of the file as entity tag ([`entity_tag`]).
    pub has_etags: bool,
    /// Time from the end of reception to the earliest request.
    pub offset: Duration,
    /// Time over which receivers spread their first requests.
    pub random: Duration,
}

impl RepairServers {
    /// Returns the servers of an instance; `None` if the instance names no server.
    pub(crate) fn of(instance: &Instance) -> Option<Self> {
        let seconds = |time: Option<u32>| Duration::from_secs(time.unwrap_or_default().into());
        let is_any = !instance.base_urls.is_empty() || !instance.peer_urls.is_empty();
        is_any.then(|| Self {
            base_urls: instance.base_urls.clone(),
            peer_urls: instance.peer_urls.clone(),
            has_etags: instance.files.iter().any(|file| file.etag.is_some()),
            offset: seconds(instance.repair_offset),
            random: seconds(instance.repair_random),
        })
    }

    /// Adds the servers to an instance.
    pub(crate) fn describe(&self, instance: &mut Instance) {
        instance.base_urls.clone_from(&self.base_urls);
        describe_times(instance, self.offset, self.random);
        for file in &mut instance.files {
            // Only receivers of Headwater know a file of several segments by its name.
            if file.headwater.segment.is_none() {
                file.alternate_locations = vec![file.content_location.clone()];
            }
            if self.has_etags {
                file.etag = file.headwater.digest.as_ref().map(entity_tag);
            }
        }
    }
}

/// Adds the times by which receivers spread their requests to an instance.
pub(crate) fn describe_times(instance: &mut Instance, offset: Duration, random: Duration) {
    let seconds = |time: Duration| u32::try_from(time.as_nanos() / 1_000_000_000).unwrap_or(u32::MAX);
    instance.repair_offset = Some(seconds(offset)).filter(|seconds| *seconds > 0);
    instance.repair_random = Some(seconds(random));
}

/// Returns the entity tag of a file with this digest, quotes included.
pub fn entity_tag(digest: &Digest) -> String {
    format!("\"{}\"", hex(digest))
}

/// Longest entity tag that a receiver keeps, in bytes.
const ETAG_BYTES_MAX: usize = 128;

/// Location and entity tag of a file at the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileLocation {
    /// URI reference, if it differs from the file's percent-encoded name.
    pub(crate) alternate: Option<Box<str>>,
    pub(crate) etag: Option<Box<str>>,
}

impl FileLocation {
    pub(crate) fn of(entry: &File, path: &RelativePath) -> Self {
        // A reference that leaves the folder of the base URL is not followed.
        let is_below = |url: &str| !url.starts_with('/') && !url.contains(':') && !url.contains("..");
        let is_other = |url: &&String| is_below(url) && **url != path.to_content_location();
        let etag = entry.etag.as_deref().filter(|etag| is_etag(etag));
        Self {
            alternate: entry.alternate_locations.first().filter(is_other).map(|url| url.as_str().into()),
            etag: etag.map(Into::into),
        }
    }
}

/// Whether a text is a strong entity tag that may be written in a header (RFC 9110, section 8.8.3).
fn is_etag(text: &str) -> bool {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    text.len() <= ETAG_BYTES_MAX
        && inner.is_some_and(|inner| inner.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_and_broken_tags_are_no_tags() {
        assert!(is_etag(&entity_tag(&[7; 32])) && is_etag("\"\""));
        let long = format!("\"{}\"", "x".repeat(ETAG_BYTES_MAX));
        for text in ["", "\"", "W/\"a\"", "a", "\"a\r\nHost: b\"", "\"a\"b\"", "\"a b\"", long.as_str()] {
            assert!(!is_etag(text), "{text:?}");
        }
    }
}
