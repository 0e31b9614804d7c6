//! Clients and hosts that get answers about sessions.

use std::net::IpAddr;

use axum::http::header;
use axum::http::request::Parts;

use super::ViewAccess;

impl ViewAccess {
    /// Whether the client is on this machine, or has reached the address of `--http-view`.
    pub(super) fn admits_client(&self) -> bool {
        let (client, local) = (self.client.ip().to_canonical(), self.local.ip().to_canonical());
        client.is_loopback() && local.is_loopback() || self.is_opened(local)
    }

    fn is_opened(&self, local: IpAddr) -> bool {
        self.view.is_some_and(|view| view.is_unspecified() || view.to_canonical() == local)
    }

    /// Whether the request names a host that no stranger's DNS can give to a page of his: `localhost`, or the
    /// address that the client has reached.
    pub(super) fn admits_host(&self, request: &Parts) -> bool {
        let mut hosts = request.headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let named = host.to_str().ok();
        let authority = request.uri.authority().map(axum::http::uri::Authority::as_str);
        let is_own = |host: &str| self.is_own_host(host_of(host));
        named.is_some_and(is_own) && authority.is_none_or(is_own)
    }

    fn is_own_host(&self, host: &str) -> bool {
        let local = self.local.ip().to_canonical();
        let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match ip {
            Ok(ip) => ip.to_canonical() == local || ip.is_loopback() && local.is_loopback(),
            Err(_) => host.eq_ignore_ascii_case("localhost"),
        }
    }
}

/// Returns the host of `host:port`; the whole text if no port follows.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.contains(':') => host,
        Some((host, port)) if host.ends_with(']') && port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn access(client: &str, local: &str, view: Option<&str>) -> ViewAccess {
        ViewAccess {
            view: view.map(|view| view.parse().unwrap()),
            client: client.parse().unwrap(),
            local: local.parse().unwrap(),
        }
    }

    fn admits(access: ViewAccess, uri: &str, hosts: &[&str]) -> bool {
        let mut request = Request::builder().uri(uri);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        access.admits_host(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn clients_of_this_machine_and_of_an_opened_address_are_answered() {
        for (client, local, view, expected) in [
            ("127.0.0.1:5", "127.0.0.1:9720", None, true),
            ("[::1]:5", "[::1]:9720", None, true),
            ("[::ffff:127.0.0.1]:5", "[::ffff:127.0.0.1]:9720", None, true),
            ("192.0.2.7:5", "192.0.2.1:9720", None, false),
            // The own address of this machine is no loopback address: proxies and containers arrive there.
            ("192.0.2.1:5", "192.0.2.1:9720", None, false),
            ("192.0.2.7:5", "192.0.2.1:9720", Some("192.0.2.1"), true),
            ("192.0.2.7:5", "192.0.2.1:9720", Some("192.0.2.2"), false),
            ("192.0.2.7:5", "192.0.2.1:9720", Some("0.0.0.0"), true),
        ] {
            assert_eq!(
                access(client, local, view).admits_client(),
                expected,
                "{client} at {local}, {view:?}"
            );
        }
    }

    #[test]
    fn names_of_strangers_are_refused() {
        let local = access("127.0.0.1:5", "127.0.0.1:9720", None);
        for host in ["127.0.0.1:9720", "localhost", "LocalHost:9720", "127.0.0.1", "[::1]:9720"] {
            assert!(admits(local, "/", &[host]), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9720",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1:9720@evil.example",
            "192.0.2.1:9720",
            "localhost:",
            "",
            "2130706433",
        ] {
            // An empty port means the default port (RFC 3986, section 3.2.3).
            assert_eq!(admits(local, "/", &[host]), host == "localhost:", "{host}");
        }
        assert!(!admits(local, "/", &[]) && !admits(local, "/", &["localhost", "evil.example"]));
        assert!(!admits(local, "http://evil.example/", &["localhost"]));
        let remote = access("192.0.2.7:5", "192.0.2.1:9720", Some("192.0.2.1"));
        assert!(admits(remote, "/", &["192.0.2.1:9720"]) && !admits(remote, "/", &["192.0.2.2"]));
        let ipv6 = access("[2001:db8::7]:5", "[2001:db8::1]:9720", Some("2001:db8::1"));
        assert!(admits(ipv6, "/", &["[2001:db8::1]:9720"]) && !admits(ipv6, "/", &["[2001:db8::2]"]));
    }
}
