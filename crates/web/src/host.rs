//! Protection of pages against other sites: names in `Host`, and headers of answers.

use std::net::IpAddr;

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderName, header};

/// Content security policy of pages: own scripts, styles and data alone, in no frame.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Headers of each answer to a browser.
pub(crate) const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Whether a request names this server: by an address, as `localhost`, or by one of these names. A foreign
/// name resolves to this machine only if another site wants to read the server's answers (DNS rebinding).
pub(crate) fn is_own(request: &Parts, names: &[String]) -> bool {
    let mut hosts = request.headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let authority = request.uri.authority().map(Authority::as_str);
    let is_own = |authority: &str| {
        let host = host_of(authority);
        let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        is_address
            || host.eq_ignore_ascii_case("localhost")
            || names.iter().any(|own| own.eq_ignore_ascii_case(host))
    };
    host.to_str().is_ok_and(is_own) && authority.is_none_or(is_own)
}

/// Returns the host of `host:port`; the whole text if no port follows.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port))
            if port.bytes().all(|byte| byte.is_ascii_digit())
                && (!host.contains(':') || host.ends_with(']')) =>
        {
            host
        }
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn is_own_by(uri: &str, hosts: &[&str]) -> bool {
        let mut request = Request::builder().uri(uri);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        is_own(&request.body(()).unwrap().into_parts().0, &["media.example.org".to_owned()])
    }

    #[test]
    fn foreign_names_are_no_names_of_this_server() {
        for own in [
            "127.0.0.1:8080",
            "192.0.2.1",
            "[::1]:8080",
            "[::1]",
            "localhost:8080",
            "LOCALHOST",
            // An empty port means the default port (RFC 3986, section 3.2.3).
            "localhost:",
            "Media.Example.org:80",
        ] {
            assert!(is_own_by("/", &[own]), "{own}");
        }
        for foreign in [
            "evil.example",
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "127.0.0.1:9720@evil.example",
            "",
            "localhost.evil:80",
            "[::1].evil",
            "2130706433",
        ] {
            assert!(!is_own_by("/", &[foreign]), "{foreign}");
        }
        assert!(!is_own_by("/", &[]) && !is_own_by("/", &["localhost", "evil.example"]));
        assert!(!is_own_by("http://evil.example/", &["localhost"]));
    }
}
