//! Description of a session (SDP) at a URL or in a file, and the URLs that the description names.

use std::net::IpAddr;

use headwater_wire::sdp::{SDP_BYTES_MAX, SdpError, SessionDescription};
use ureq::http::Uri;

use super::http::{AddressRule, FetchFailure, fetch_document};

/// Name of a description in a folder.
const NAME: &str = "session.sdp";

/// Description of a session that was found at a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedDescription {
    /// The description. Its URLs are absolute.
    pub description: SessionDescription,
    /// URL of the description.
    pub url: String,
    /// Entity tag of the document.
    tag: Option<String>,
}

/// Advice after a failure at the port that a URL without a port means.
const HTTP_PORT_HINT: &str =
    " (at port 80, since the URL has no port; `headwater send --http` listens at port 7280 by default)";

/// Reason for which a URL gave no description.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// The text is no URL of a server.
    #[error("'{0}' is no URL; write for example http://192.0.2.1:7280/")]
    Url(String),
    /// The server did not give the description.
    #[error(
        "cannot fetch '{url}': {reason}; the URL is that of a description (SDP), or of a folder with {NAME}"
    )]
    Fetch {
        /// URL of the request.
        url: String,
        /// Reason.
        reason: String,
    },
    /// The answer is no description.
    #[error("'{url}' is no description of a session: {source}")]
    Sdp {
        /// URL or file.
        url: String,
        /// Reason.
        source: SdpError,
    },
}

impl FetchedDescription {
    /// Fetches the description at a URL: the URL of a description, which ends in `.sdp`, or of a folder.
    /// Blocks the caller for some 40 s at most.
    ///
    /// # Errors
    /// If the server does not give a description.
    pub fn fetch(url: &str) -> Result<Self, DescriptionError> {
        let uri: Uri = url.parse().map_err(|_| DescriptionError::Url(url.to_owned()))?;
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        let has_user = uri.authority().is_none_or(|authority| authority.as_str().contains('@'));
        if !is_http || has_user || uri.query().is_some() {
            return Err(DescriptionError::Url(url.to_owned()));
        }
        let is_description = uri.path().ends_with(".sdp");
        let slash = if url.ends_with('/') { "" } else { "/" };
        let url = if is_description { url.to_owned() } else { format!("{url}{slash}{NAME}") };
        let fetched = fetch_document(&url, SDP_BYTES_MAX, None).map_err(|failure| failed(&url, failure))?;
        let Some((bytes, tag)) = fetched else {
            return Err(failed(&url, FetchFailure::Refused("status 304".to_owned())));
        };
        Ok(Self { tag, ..Self::parse(url, &bytes)? })
    }

    /// Fetches the description again, unless the document is the same. Returns the description of another
    /// session: another group, source or identifier. Blocks the caller for some seconds at most.
    ///
    /// # Errors
    /// If the server does not give a description.
    pub fn fetch_again(&mut self) -> Result<Option<Self>, DescriptionError> {
        let fetched = fetch_document(&self.url, SDP_BYTES_MAX, Some(self.tag.as_deref()));
        let Some((bytes, tag)) = fetched.map_err(|failure| failed(&self.url, failure))? else {
            return Ok(None);
        };
        let found = Self { tag: tag.clone(), ..Self::parse(self.url.clone(), &bytes)? };
        let session =
            |found: &SessionDescription| (found.groups.map(|groups| groups.base), found.source, found.tsi);
        if session(&found.description) == session(&self.description) {
            self.tag = tag;
            return Ok(None);
        }
        Ok(Some(found))
    }

    /// Parses the description that was found at a URL. The folder of the URL is the place of the files unless
    /// the description names another.
    ///
    /// # Errors
    /// If the bytes are no description.
    pub fn parse(url: String, bytes: &[u8]) -> Result<Self, DescriptionError> {
        let parsed = SessionDescription::parse(bytes);
        let mut description = parsed.map_err(|source| DescriptionError::Sdp { url: url.clone(), source })?;
        let http = description.http.as_deref().unwrap_or("./");
        description.http = resolve(&url, http);
        description.fdt = description.fdt.as_deref().and_then(|fdt| resolve(&url, fdt));
        Ok(Self { description, url, tag: None })
    }

    /// Returns the addresses that a host which the description names may have: as of HTTP servers that a
    /// session names, unless the user has named the same host.
    pub(super) fn rule_of_host(&self, host: &str) -> AddressRule {
        let own = self.url.parse::<Uri>().ok().and_then(|url| url.host().map(str::to_ascii_lowercase));
        let own = own.unwrap_or_default();
        let own = own.trim_matches(['[', ']']);
        let ip = own.parse::<IpAddr>().ok();
        if (own == host && !host.is_empty()) || (ip.is_some() && ip == host.parse().ok()) {
            return AddressRule::Any;
        }
        let is_local = own == "localhost" || ip.is_some_and(|ip| ip.is_loopback());
        if is_local { AddressRule::RemoteOrLoopback } else { AddressRule::Remote }
    }

    /// Whether a URL is on the host of the description, which the user named.
    pub fn is_same_host(&self, url: &str) -> bool {
        let host = |url: &str| url.parse::<Uri>().ok()?.host().map(str::to_ascii_lowercase);
        host(url).is_some() && host(url) == host(&self.url)
    }
}

fn failed(url: &str, failure: FetchFailure) -> DescriptionError {
    let reason = match failure {
        FetchFailure::Busy(_) => "the server is busy".to_owned(),
        FetchFailure::Unreachable(reason) | FetchFailure::Refused(reason) => reason,
    };
    let uri = url.parse::<Uri>().ok();
    let has_no_port = uri.is_some_and(|uri| uri.scheme_str() == Some("http") && uri.port().is_none());
    let port = if has_no_port { HTTP_PORT_HINT } else { "" };
    DescriptionError::Fetch { url: url.to_owned(), reason: reason + port }
}

/// Resolves a reference: an absolute URL, an absolute path, or a name below the folder of `base`. `None` for
/// any other reference (RFC 3986 has more kinds) and for an unusable base.
fn resolve(base: &str, reference: &str) -> Option<String> {
    if reference.starts_with("http://") || reference.starts_with("https://") {
        return Some(reference.to_owned());
    }
    let authority = base.find("://")? + 3;
    let path = base[authority..].find('/').map(|at| authority + at)?;
    if reference.starts_with("//") || reference.split('/').any(|part| part == "..") || reference.contains(':')
    {
        return None;
    }
    if reference.starts_with('/') {
        return Some(format!("{}{reference}", &base[..path]));
    }
    let folder = base.rfind('/').filter(|at| *at >= path)?;
    Some(format!("{}{}", &base[..=folder], reference.strip_prefix("./").unwrap_or(reference)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_below_the_folder_of_the_description() {
        let base = "http://h:1/a/session.sdp";
        for (reference, url) in [
            ("files/", Some("http://h:1/a/files/")),
            ("./", Some("http://h:1/a/")),
            ("/files/", Some("http://h:1/files/")),
            ("https://g/x", Some("https://g/x")),
            ("../x", None),
            ("//g/x", None),
            ("file:x", None),
        ] {
            assert_eq!(resolve(base, reference).as_deref(), url, "{reference}");
        }
        assert_eq!(resolve("session.sdp", "files/"), None, "a file has no server");
    }

    #[test]
    fn a_folder_of_a_server_has_the_files_unless_the_description_says_otherwise() {
        let sdp = "v=0\r\nm=application 5 FLUTE/UDP 0\r\nc=IN IP4 239.1.2.3/1\r\n";
        let found = FetchedDescription::parse("http://h/d/session.sdp".to_owned(), sdp.as_bytes()).unwrap();
        assert_eq!(found.description.http.as_deref(), Some("http://h/d/"));
        assert!(found.is_same_host("http://H:80/x") && !found.is_same_host("http://g/x"));
        assert_eq!(found.rule_of_host("h"), AddressRule::Any);
        assert_eq!(found.rule_of_host("127.0.0.1"), AddressRule::Remote);
        let local = FetchedDescription { url: "http://[::1]:80/session.sdp".to_owned(), ..found };
        assert_eq!(local.rule_of_host("::1"), AddressRule::Any);
        assert_eq!(local.rule_of_host("127.0.0.1"), AddressRule::RemoteOrLoopback);
        assert!(matches!(FetchedDescription::fetch("ftp://h/"), Err(DescriptionError::Url(_))));
        let hints =
            |url| failed(url, FetchFailure::Unreachable("x".to_owned())).to_string().contains("port 7280");
        assert!(
            hints("http://h/session.sdp")
                && !hints("http://h:80/session.sdp")
                && !hints("https://h/session.sdp")
        );
    }
}
