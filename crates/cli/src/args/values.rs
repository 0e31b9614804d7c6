//! Values of options: parsers, with an error message for invalid values.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use headwater::relay::{AMT_PORT, RELAY_PORT};
use headwater::{ReceiveOptions, RosterEnd, SOURCE_PORT};
use headwater_proto::control::Rules;
use headwater_proto::controls::{CONTROLS, Control};
use headwater_proto::{DATAGRAM_BYTES_MAX, Rate, Size};
use headwater_wire::roster::{NAME_BYTES_MAX, is_name};

use super::{PORT_DEFAULT, SendRate};
use crate::exit::{Exit, Failure};

/// Room for the LCT header and the FEC payload ID beside a symbol, as in the runtime: content takes 16 bytes,
/// the FDT 40.
const HEADER_BYTES: usize = 92;
const SYMBOL_SIZE_MIN: u16 = 64;
/// Default port of an HTTP server.
pub const HTTP_PORT: u16 = 7280;
/// Least port at which a receiver serves: senders name no lower port to others.
const SERVING_PORT_MIN: u16 = 1024;

/// `10M`, `2.5Gbit/s`.
pub fn rate(text: &str) -> Result<Rate, String> {
    text.parse::<Rate>().map_err(|error| error.to_string())
}

/// `10M`, `auto`.
pub fn send_rate(text: &str) -> Result<SendRate, String> {
    if text == "auto" { Ok(SendRate::Auto) } else { rate(text).map(SendRate::Constant) }
}

/// Names and help of the table of congestion controls.
pub fn control() -> impl TypedValueParser<Value = &'static Control> {
    let value = |control: &Control| PossibleValue::new(control.name).help(control.help);
    let names = PossibleValuesParser::new(CONTROLS.iter().map(value));
    names.try_map(|name| Control::of(&name).ok_or("no congestion control"))
}

/// Names of the sets of rules, with their help.
pub fn rules() -> impl TypedValueParser<Value = Rules> {
    let value = |(name, rules): (&'static str, Rules)| PossibleValue::new(name).help(rules.help());
    let names = PossibleValuesParser::new(Rules::NAMES.map(value));
    names.try_map(|name| Rules::of(&name).ok_or("no set of rules"))
}

/// `20MB`, `64MiB`.
pub fn size(text: &str) -> Result<Size, String> {
    text.parse::<Size>().map_err(|error| error.to_string())
}

/// `500ms`, `10s`, `1h 30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("a duration must be longer than 0; write for example 10s".into()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(format!("{error}; write for example 500ms, 10s or 5m")),
    }
}

/// `0s`, `10s`, `2m`: a time in whole seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time.subsec_nanos() == 0 => Ok(time),
        Ok(_) => Err("the time is told to receivers in whole seconds; write for example 10s".into()),
        Err(error) => Err(format!("{error}; write for example 0s, 10s or 5m")),
    }
}

/// Base URL of an HTTP server.
pub fn base_url(text: &str) -> Result<String, String> {
    let is_url = headwater::RepairOptions::is_base_url(text);
    is_url
        .then(|| text.to_owned())
        .ok_or_else(|| "not a URL; write for example http://192.0.2.1/files/".into())
}

/// Parses an address at which an HTTP server listens.
pub fn http(text: &str) -> Result<SocketAddr, String> {
    own_address(text, HTTP_PORT)
}

/// Parses an address at which a receiver serves.
pub fn serving(text: &str) -> Result<SocketAddr, String> {
    let address = http(text)?;
    if (1..SERVING_PORT_MIN).contains(&address.port()) {
        return Err(format!(
            "senders name no port below {SERVING_PORT_MIN} to receivers; choose a higher one"
        ));
    }
    Ok(address)
}

/// Parses the number of receivers that are named as servers.
pub fn peers(text: &str) -> Result<usize, String> {
    let most = headwater::REPAIR_PEERS_MAX;
    let count = text.parse().ok().filter(|count| *count <= most);
    count.ok_or_else(|| format!("not a number from 0 to {most}"))
}

/// `40`, `idle`, `idle:2m`: the end of a session by its receivers.
pub fn until(text: &str) -> Result<RosterEnd, String> {
    const IDLE: Duration = Duration::from_secs(30);
    match text.split_once(':') {
        None if text == "idle" => Ok(RosterEnd::Idle(IDLE)),
        Some(("idle", time)) => duration(time).map(RosterEnd::Idle),
        _ => Ok(RosterEnd::Done(receivers(text)?)),
    }
}

/// `40`, `40:5m`: receivers to wait for, and the longest wait.
pub fn start_when(text: &str) -> Result<(u64, Duration), String> {
    const LONGEST: Duration = Duration::from_secs(60);
    match text.split_once(':') {
        None => Ok((receivers(text)?, LONGEST)),
        Some((count, time)) => Ok((receivers(count)?, duration(time)?)),
    }
}

fn receivers(text: &str) -> Result<u64, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "not a number of receivers; write for example 40".to_owned())
}

/// Rule for the name of a receiver.
pub const NAME_RULE: &str = "a name has 1 to 63 bytes, without control characters and invisible characters";
const _: () = assert!(NAME_BYTES_MAX == 63, "as the rule says");

/// Name of a receiver.
pub fn name(text: &str) -> Result<String, String> {
    if is_name(text) { Ok(text.to_owned()) } else { Err(NAME_RULE.to_owned()) }
}

/// Parses a multicast address, with or without a port.
pub fn group(text: &str) -> Result<SocketAddr, String> {
    let without_port = || text.trim_matches(['[', ']']).parse::<IpAddr>().map(|ip| (ip, PORT_DEFAULT).into());
    let group = text.parse::<SocketAddr>().or_else(|_| without_port()).map_err(|_| {
        "not ADDR:PORT; write for example 239.255.72.87:7287, or [ff15::4857]:7287 for IPv6".to_owned()
    })?;
    if !group.ip().is_multicast() {
        return Err(format!(
            "{} is not a multicast address; multicast addresses are 224.0.0.0 to 239.255.255.255 and ff00::/8",
            group.ip()
        ));
    }
    if group.port() == 0 {
        return Err("port 0 cannot be sent to; write a port from 1 to 65535".into());
    }
    Ok(group)
}

/// Parses an address of this machine, with or without a port.
pub fn own_address(text: &str, port: u16) -> Result<SocketAddr, String> {
    literal(text, port).ok_or_else(|| {
        format!("not an address; write for example 192.0.2.1, 192.0.2.1:{port} or [2001:db8::1]:{port}")
    })
}

/// Parses an address at which a source listens.
pub fn own_source(text: &str) -> Result<SocketAddr, String> {
    own_address(text, SOURCE_PORT)
}

/// Parses an address at which a relay listens.
pub fn own_relay(text: &str) -> Result<ListenAddress, String> {
    let bare = text.trim_matches(['[', ']']).parse().map(|ip| ListenAddress { ip, port: None });
    bare.or_else(|_| {
        own_address(text, RELAY_PORT).map(|at| ListenAddress { ip: at.ip(), port: Some(at.port()) })
    })
}

/// Address to listen at; the port depends on other options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    ip: IpAddr,
    port: Option<u16>,
}

impl ListenAddress {
    /// Returns the address with a port, which counts if the user gave no port.
    pub fn with_port(self, default: u16) -> SocketAddr {
        SocketAddr::new(self.ip, self.port.unwrap_or(default))
    }
}

/// AMT relay to receive through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmtRelayName {
    /// The relay that DNS names for the source.
    Auto,
    /// Address and port.
    At(SocketAddr),
}

/// Parses an AMT relay, by address or name, or `auto`.
pub fn amt_relay(text: &str) -> Result<AmtRelayName, String> {
    if text == "auto" { Ok(AmtRelayName::Auto) } else { address(text, AMT_PORT).map(AmtRelayName::At) }
}

/// Parses an AMT relay as receivers are to look it up, by address or name, or `auto`.
pub fn described_amt_relay(text: &str) -> Result<String, String> {
    if !text.is_empty() && ReceiveOptions::is_amt_relay(text) {
        Ok(text.to_owned())
    } else {
        Err(not_a_host(text))
    }
}

/// Parses a source, by address or name.
pub fn source(text: &str) -> Result<SocketAddr, String> {
    address(text, SOURCE_PORT)
}

/// Parses a relay, by address or name.
pub fn relay(text: &str) -> Result<SocketAddr, String> {
    address(text, RELAY_PORT)
}

/// Parses the address or name of another host, with or without a port. If a name has several addresses, the
/// system's first choice counts.
fn address(text: &str, port: u16) -> Result<SocketAddr, String> {
    if let Some(address) = literal(text, port) {
        return Ok(address);
    }
    let (name, port) = match text.rsplit_once(':') {
        Some((name, own_port)) => (name, own_port.parse().map_err(|_| not_a_host(text))?),
        None => (text, port),
    };
    Ok((look_up(name)?[0], port).into())
}

fn literal(text: &str, port: u16) -> Option<SocketAddr> {
    let without_port = || Some((text.trim_matches(['[', ']']).parse::<IpAddr>().ok()?, port).into());
    text.parse().ok().or_else(without_port)
}

/// Host, by address or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name or address as written by the user.
    name: String,
    /// Addresses, in the system's order; at least one.
    addresses: Vec<IpAddr>,
}

/// Parses a host, by address or name.
pub fn host(text: &str) -> Result<Host, String> {
    let addresses = match text.trim_matches(['[', ']']).parse() {
        Ok(address) => vec![address],
        Err(_) => look_up(text)?,
    };
    Ok(Host { name: text.to_owned(), addresses })
}

impl Host {
    /// Returns the first address of the group's IP version, for an option.
    ///
    /// # Errors
    /// If the host has no such address.
    pub fn for_option(&self, option: &str, group: IpAddr) -> Result<IpAddr, Failure> {
        self.address_for(group).map_err(|error| Failure::new(Exit::Usage, format!("{option}: {error}")))
    }

    /// Returns the first address of the group's IP version.
    ///
    /// # Errors
    /// If the host has no such address; the message lists the host's addresses.
    pub fn address_for(&self, group: IpAddr) -> Result<IpAddr, String> {
        let fits = |address: &&IpAddr| address.is_ipv4() == group.is_ipv4();
        self.addresses.iter().find(fits).copied().ok_or_else(|| {
            let family = if group.is_ipv4() { "IPv4" } else { "IPv6" };
            let addresses = self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            format!(
                "'{}' has no {family} address, which the group {group} needs, only {addresses}; name another host or group",
                self.name
            )
        })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Returns the addresses of a name, by the system's resolver; at least one.
fn look_up(name: &str) -> Result<Vec<IpAddr>, String> {
    let is_name = |octet: u8| octet.is_ascii_alphanumeric() || b"-._".contains(&octet);
    // Digits and dots alone are a mistyped address.
    let is_number = name.bytes().all(|octet| octet.is_ascii_digit() || octet == b'.');
    if is_number || !name.bytes().all(is_name) {
        return Err(not_a_host(name));
    }
    let found = (name, 0).to_socket_addrs().map(|addresses| addresses.map(|at| at.ip()).collect::<Vec<_>>());
    match found {
        Ok(addresses) if !addresses.is_empty() => Ok(addresses),
        Ok(_) => Err(format!("the name '{name}' has no address; write an address instead")),
        Err(error) => Err(format!(
            "cannot look up the name '{name}': {error}; check the name, or write an address instead"
        )),
    }
}

fn not_a_host(text: &str) -> String {
    format!(
        "'{text}' is neither an address nor a host name; write for example 192.0.2.1, [2001:db8::1] or host.example.org"
    )
}

/// Parses the size of a symbol that fits a datagram with headers.
pub fn symbol_size(text: &str) -> Result<u16, String> {
    let max = DATAGRAM_BYTES_MAX - HEADER_BYTES;
    let range = || format!("symbols have {SYMBOL_SIZE_MIN} to {max} bytes");
    let bytes = text.parse::<u16>().map_err(|_| range())?;
    if bytes < SYMBOL_SIZE_MIN || usize::from(bytes) > max { Err(range()) } else { Ok(bytes) }
}

/// Parses a probability from 0 to less than 1, at which no packet would arrive.
pub fn probability(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(probability) if (0.0..1.0).contains(&probability) => Ok(probability),
        _ => Err("a probability is at least 0 and below 1, for example 0.1".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_take_the_default_port() {
        assert_eq!(group("239.1.2.3").unwrap(), "239.1.2.3:7287".parse().unwrap());
        assert_eq!(group("239.1.2.3:5000").unwrap(), "239.1.2.3:5000".parse().unwrap());
        assert_eq!(group("[ff15::1]:5000").unwrap(), "[ff15::1]:5000".parse().unwrap());
        assert_eq!(group("ff15::1").unwrap(), "[ff15::1]:7287".parse().unwrap());
        assert_eq!(group("[ff15::1]").unwrap(), "[ff15::1]:7287".parse().unwrap());
    }

    #[test]
    fn hosts_take_the_default_port_of_what_they_are() {
        assert_eq!(relay("192.0.2.1").unwrap(), "192.0.2.1:7289".parse().unwrap());
        assert_eq!(source("192.0.2.1").unwrap(), "192.0.2.1:7288".parse().unwrap());
        assert_eq!(relay("[::1]:5").unwrap(), "[::1]:5".parse().unwrap());
        assert_eq!(relay("::1").unwrap(), "[::1]:7289".parse().unwrap());
        assert!(own_relay("relay.example.org").unwrap_err().contains("192.0.2.1:7289"));
    }

    #[test]
    fn names_are_looked_up_and_mistakes_explained() {
        assert!(source("localhost").unwrap().ip().is_loopback());
        assert_eq!(source("localhost:5").unwrap().port(), 5);
        for wrong in ["192.0.2", "192.0.2.256", "a b", "", "http://host", "host:http"] {
            assert!(source(wrong).unwrap_err().contains("neither an address nor a host name"), "{wrong}");
            assert!(wrong.contains(':') || host(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_host_has_an_address_of_the_groups_ip_version_or_an_error_says_what_it_has() {
        let (v4, v6) = ("239.1.2.3".parse().unwrap(), "ff15::1".parse().unwrap());
        let both = Host {
            name: "both".into(),
            addresses: vec!["2001:db8::1".parse().unwrap(), "192.0.2.1".parse().unwrap()],
        };
        assert_eq!(both.address_for(v4), Ok("192.0.2.1".parse().unwrap()));
        assert_eq!(both.address_for(v6), Ok("2001:db8::1".parse().unwrap()));
        assert!(host("localhost").unwrap().address_for(v4).unwrap().is_loopback());
        let error = host("192.0.2.1").unwrap().address_for(v6).unwrap_err();
        assert!(error.contains("no IPv6 address") && error.contains("192.0.2.1"), "{error}");
    }

    #[test]
    fn what_is_no_group_is_explained() {
        assert!(group("192.0.2.1:7287").unwrap_err().contains("not a multicast address"));
        assert!(group("example.org:7287").unwrap_err().contains("239.255.72.87:7287"));
        assert!(group("239.1.2.3:0").unwrap_err().contains("port 0"));
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(duration("5m").unwrap(), Duration::from_secs(300));
        assert!(duration("10").unwrap_err().contains("10s"));
        assert!(duration("0s").is_err());
    }

    #[test]
    fn symbols_fit_a_datagram() {
        assert_eq!(symbol_size("8880"), Ok(8_880));
        assert!(symbol_size("8881").is_err() && symbol_size("63").is_err() && symbol_size("99999").is_err());
    }

    #[test]
    fn a_probability_is_below_one() {
        assert_eq!(probability("0.1"), Ok(0.1));
        assert!(probability("1").is_err() && probability("-0.1").is_err() && probability("NaN").is_err());
    }
}
