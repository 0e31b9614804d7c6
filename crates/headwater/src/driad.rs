//! Relays of AMT by DNS (RFC 8777): the operator of a multicast source names the relays that serve it, in
//! `AMTRELAY` records of the source's name in the reverse tree.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use headwater_wire::amt;
use headwater_wire::dns::{
    AmtRelay, DnsError, QUERY_BYTES_MAX, RelayName, emit_query, parse_response, reverse_name,
};

use crate::system;

/// File that names the DNS servers.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// UDP port of DNS servers.
const DNS_PORT: u16 = 53;
/// Most servers that are asked, as by the system's resolver.
const SERVERS_MAX: usize = 3;
/// Wait for an answer of a server, and number of questions to all servers.
const WAIT: Duration = Duration::from_secs(2);
const ROUNDS: usize = 2;
/// Most bytes of a response by UDP: longer responses are cut off by the server.
const RESPONSE_BYTES_MAX: usize = 4_096;

/// Reasons why no relay was found.
#[derive(Debug, thiserror::Error)]
pub enum DriadError {
    /// There is no DNS server.
    #[error("{RESOLV_CONF} names no DNS server; name the AMT relay by its address")]
    NoServer,
    /// No server answered.
    #[error("no DNS server answered when asked for the AMT relay of {0}; name the relay by its address")]
    Silent(IpAddr, #[source] io::Error),
    /// A server refused.
    #[error("the DNS server {1} knows no AMT relay of {0}; name the relay by its address")]
    Refused(IpAddr, SocketAddr, #[source] DnsError),
    /// There are no records, or no address for them.
    #[error("'{1}' has no AMTRELAY record with an address; name the AMT relay of {0} by its address")]
    NoRelay(IpAddr, String),
}

/// Finds the relay of a multicast source by the DNS servers of this host. May take 12 s.
///
/// # Errors
/// [`DriadError`].
pub fn find_amt_relay(source: IpAddr) -> Result<SocketAddr, DriadError> {
    find_amt_relay_at(&name_servers(), source)
}

/// Finds the relay of a multicast source by these DNS servers.
///
/// # Errors
/// [`DriadError`].
pub fn find_amt_relay_at(servers: &[SocketAddr], source: IpAddr) -> Result<SocketAddr, DriadError> {
    let mut error = DriadError::NoServer;
    for server in servers.iter().take(SERVERS_MAX).cycle().take(ROUNDS * servers.len().min(SERVERS_MAX)) {
        error = match ask(*server, source) {
            Ok(Ok(relays)) => {
                let address = relays.into_iter().find_map(|relay| address(&relay.relay));
                return address.ok_or_else(|| DriadError::NoRelay(source, reverse_name(source)));
            }
            // There is no such name: no other server knows better.
            Ok(Err(DnsError::Code(3))) => return Err(DriadError::NoRelay(source, reverse_name(source))),
            Ok(Err(refused)) => DriadError::Refused(source, *server, refused),
            Err(silent) => DriadError::Silent(source, silent),
        };
    }
    Err(error)
}

fn ask(server: SocketAddr, source: IpAddr) -> io::Result<Result<Vec<AmtRelay>, DnsError>> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Forged answers need the number and the port, both drawn at random.
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    let [high, low, ..] = system::random_u64().to_be_bytes();
    let mut query = [0; QUERY_BYTES_MAX];
    let bytes = emit_query(u16::from_be_bytes([high, low]), source, &mut query).unwrap_or(0);
    let query = &query[..bytes];
    socket.send(query)?;
    let deadline = Instant::now() + WAIT;
    let mut response = [0; RESPONSE_BYTES_MAX];
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(left))?;
        let bytes = socket.recv(&mut response)?;
        match parse_response(query, &response[..bytes]) {
            Err(DnsError::Foreign) if Instant::now() < deadline => {}
            read => return Ok(read),
        }
    }
}

/// Returns the address of a relay; looks a name up by the system's resolver.
fn address(relay: &RelayName) -> Option<SocketAddr> {
    match relay {
        RelayName::Address(ip) => Some((*ip, amt::PORT).into()),
        RelayName::Name(name) => (name.as_str(), amt::PORT).to_socket_addrs().ok()?.next(),
    }
    .filter(|relay| !relay.ip().is_unspecified() && !relay.ip().is_multicast())
}

fn name_servers() -> Vec<SocketAddr> {
    let text = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
    servers_of(&text)
}

fn servers_of(text: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and(words.next())?;
        Some(SocketAddr::new(address.parse().ok()?, DNS_PORT))
    };
    text.lines().filter_map(server).take(SERVERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// A DNS server that answers one query with records of the query's name.
    fn server(records: &'static [&'static [u8]], code: u8) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut query = [0; 512];
            let (bytes, from) = socket.recv_from(&mut query).unwrap();
            let mut response = query[..bytes].to_vec();
            response[2] |= 0x80;
            response[3] = code;
            response[7] = u8::try_from(records.len()).unwrap();
            for data in records {
                response.extend([0xC0, 12, 1, 4, 0, 1, 0, 0, 0, 60, 0, u8::try_from(data.len()).unwrap()]);
                response.extend(*data);
            }
            // An answer to another query comes first.
            let mut foreign = response.clone();
            foreign[0] ^= 1;
            socket.send_to(&foreign, from).unwrap();
            socket.send_to(&response, from).unwrap();
        });
        address
    }

    #[test]
    fn the_relay_of_the_lowest_precedence_with_an_address_is_found() {
        let records: &[&[u8]] =
            &[&[20, 1, 203, 0, 113, 7], &[10, 1, 203, 0, 113, 8], &[5, 0], &[1, 1, 224, 0, 0, 1]];
        let found = find_amt_relay_at(&[server(records, 0)], "192.0.2.1".parse().unwrap());
        assert_eq!(found.unwrap(), "203.0.113.8:2268".parse().unwrap());
        let by_name: &[&[u8]] = &[b"\x0a\x03\x09localhost\x00"];
        let found = find_amt_relay_at(&[server(by_name, 0)], "2001:db8::1".parse().unwrap());
        assert!(found.unwrap().ip().is_loopback());
    }

    #[test]
    fn missing_relays_and_servers_are_told() {
        let source = "192.0.2.1".parse().unwrap();
        let error = |servers: &[SocketAddr]| find_amt_relay_at(servers, source).unwrap_err().to_string();
        assert!(error(&[]).contains("resolv.conf"));
        let name = "'1.2.0.192.in-addr.arpa' has no AMTRELAY record";
        assert!(error(&[server(&[], 0)]).contains(name));
        assert!(error(&[server(&[], 3)]).contains(name));
        // Refused; then the port is closed.
        assert!(error(&[server(&[], 5)]).contains("no DNS server answered"));
    }

    #[test]
    fn servers_are_read_from_the_resolver_file() {
        let text =
            "# comment\nsearch example.org\nnameserver 192.0.2.53\nnameserver 2001:db8::53\nnameserver x\n";
        assert_eq!(
            servers_of(text),
            ["192.0.2.53:53".parse().unwrap(), "[2001:db8::53]:53".parse().unwrap()]
        );
    }
}
