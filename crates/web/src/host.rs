//! Protection of pages against other sites: names in `Host`, and headers of answers.

use axum::http::{HeaderMap, HeaderName, header};

/// Content security policy of pages: own scripts, styles and data alone, in no frame.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Headers of each answer to a browser.
pub(crate) const HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Whether a request names this server: by an address, as `localhost`, or by one of these names. A foreign
/// name resolves to this machine only if another site wants to read the server's answers (DNS rebinding).
pub(crate) fn is_own(fields: &HeaderMap, names: &[String]) -> bool {
    let Some(host) = fields.get(header::HOST).and_then(|host| host.to_str().ok()) else { return false };
    if host.parse::<std::net::SocketAddr>().is_ok() || host.parse::<std::net::IpAddr>().is_ok() {
        return true;
    }
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _port)| name);
    name.eq_ignore_ascii_case("localhost") || names.iter().any(|own| own.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_are_no_names_of_this_server() {
        let names = ["media.example.org".to_owned()];
        let names_server = |host: &str| {
            let mut fields = HeaderMap::new();
            fields.insert(header::HOST, host.parse().unwrap());
            is_own(&fields, &names)
        };
        for own in [
            "127.0.0.1:8080",
            "192.0.2.1",
            "[::1]:8080",
            "[::1]",
            "localhost:8080",
            "LOCALHOST",
            "Media.Example.org:80",
        ] {
            assert!(names_server(own), "{own}");
        }
        for foreign in [
            "evil.example",
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "",
            "localhost.evil:80",
            "[::1].evil",
        ] {
            assert!(!names_server(foreign), "{foreign}");
        }
        assert!(!is_own(&HeaderMap::new(), &names));
    }
}
