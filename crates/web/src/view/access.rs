//! Clients that get answers about sessions.

use std::net::IpAddr;

use axum::http::request::Parts;

use super::ViewAccess;

/// Fields that proxies add.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

impl ViewAccess {
    /// Whether the client is on this machine, or has reached the address of `--http-view`. Requests that a
    /// proxy has marked come from elsewhere.
    pub(super) fn admits_client(&self, request: &Parts) -> bool {
        let (client, local) = (self.client.ip().to_canonical(), self.local.ip().to_canonical());
        let is_forwarded = FORWARDED.iter().any(|field| request.headers.contains_key(*field));
        client.is_loopback() && local.is_loopback() && !is_forwarded || self.is_opened(local)
    }

    fn is_opened(&self, local: IpAddr) -> bool {
        let is_at = |ip: IpAddr| ip.is_unspecified() || ip.to_canonical() == local;
        self.view.is_some_and(|(ip, port)| is_at(ip) && port == self.local.port())
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn admits(client: &str, local: &str, view: Option<&str>, field: Option<&str>) -> bool {
        let address = |text: &str| text.parse::<std::net::SocketAddr>().unwrap();
        let view = view.map(address).map(|view| (view.ip(), view.port()));
        let access = ViewAccess { view, client: address(client), local: address(local) };
        let request = field.into_iter().fold(Request::builder(), |request, field| request.header(field, "x"));
        access.admits_client(&request.body(()).unwrap().into_parts().0)
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
            ("192.0.2.7:5", "192.0.2.1:9720", Some("192.0.2.1:9720"), true),
            ("192.0.2.7:5", "192.0.2.1:9720", Some("192.0.2.2:9720"), false),
            // Files at another port of the same address.
            ("192.0.2.7:5", "192.0.2.1:7280", Some("192.0.2.1:9720"), false),
            ("192.0.2.7:5", "192.0.2.1:9720", Some("0.0.0.0:9720"), true),
        ] {
            assert_eq!(admits(client, local, view, None), expected, "{client} at {local}, {view:?}");
        }
    }

    #[test]
    fn requests_that_a_proxy_has_forwarded_are_of_other_machines() {
        let local = "127.0.0.1:9720";
        for field in ["Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"] {
            assert!(!admits("127.0.0.1:5", local, None, Some(field)), "{field}");
            assert!(admits("127.0.0.1:5", local, Some(local), Some(field)), "{field}");
        }
    }
}
