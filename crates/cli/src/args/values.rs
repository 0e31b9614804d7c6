//! Values of options: what is taken, and what is said of what is not.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use headwater::SOURCE_PORT;
use headwater::relay::RELAY_PORT;
use headwater_proto::{DATAGRAM_BYTES_MAX, Rate, Size};

use super::{PORT_DEFAULT, Shard};

/// Room for the LCT header and the FEC payload ID beside a symbol, as the runtime keeps it: those of content take 16
/// bytes, those of the FDT 40.
const HEADER_BYTES: usize = 92;
const SYMBOL_SIZE_MIN: u16 = 64;

/// `10M`, `2.5Gbit/s`.
pub fn rate(text: &str) -> Result<Rate, String> {
    text.parse::<Rate>().map_err(|error| error.to_string())
}

/// `20MB`, `64MiB`.
pub fn size(text: &str) -> Result<Size, String> {
    text.parse::<Size>().map_err(|error| error.to_string())
}

/// `500ms`, `10s`, `1h 30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("no time at all; write for example 10s".into()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(format!("{error}; write for example 500ms, 10s or 5m")),
    }
}

/// A multicast address, with or without a port.
pub fn group(text: &str) -> Result<SocketAddr, String> {
    let without_port = || text.trim_matches(['[', ']']).parse::<IpAddr>().map(|ip| (ip, PORT_DEFAULT).into());
    let group = text.parse::<SocketAddr>().or_else(|_| without_port()).map_err(|_| {
        "not ADDR:PORT; write for example 239.255.72.87:7287, or [ff15::4857]:7287 for IPv6".to_owned()
    })?;
    if !group.ip().is_multicast() {
        return Err(format!(
            "{} is not a multicast address; those are 224.0.0.0 to 239.255.255.255 and ff00::/8",
            group.ip()
        ));
    }
    if group.port() == 0 {
        return Err("port 0 cannot be sent to; give one from 1 to 65535".into());
    }
    Ok(group)
}

/// A host's address, with or without a port.
pub fn address(text: &str, port: u16) -> Result<SocketAddr, String> {
    let without_port = || text.trim_matches(['[', ']']).parse::<IpAddr>().map(|ip| (ip, port).into());
    text.parse::<SocketAddr>().or_else(|_| without_port()).map_err(|_| {
        format!("not an address; write for example 192.0.2.1, 192.0.2.1:{port} or [2001:db8::1]:{port}")
    })
}

/// A source's address.
pub fn source(text: &str) -> Result<SocketAddr, String> {
    address(text, SOURCE_PORT)
}

/// A relay's address.
pub fn relay(text: &str) -> Result<SocketAddr, String> {
    address(text, RELAY_PORT)
}

/// A symbol that fits a datagram with its headers.
pub fn symbol_size(text: &str) -> Result<u16, String> {
    let max = DATAGRAM_BYTES_MAX - HEADER_BYTES;
    let range = || format!("symbols have {SYMBOL_SIZE_MIN} to {max} bytes");
    let bytes = text.parse::<u16>().map_err(|_| range())?;
    if bytes < SYMBOL_SIZE_MIN || usize::from(bytes) > max { Err(range()) } else { Ok(bytes) }
}

/// 0 to 1, 1 itself left out: nothing would ever arrive.
pub fn probability(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(probability) if (0.0..1.0).contains(&probability) => Ok(probability),
        _ => Err("a probability is at least 0 and below 1, for example 0.1".into()),
    }
}

/// `0/8`: part 0 of 8.
pub fn shard(text: &str) -> Result<Shard, String> {
    let parts =
        text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    match parts {
        Some((index, count)) if index < count => Ok(Shard { index, count }),
        _ => Err("a shard is I/N with I from 0 to N - 1, for example 0/8".into()),
    }
}

/// The key of a run, or its beginning.
pub fn key(text: &str) -> Result<String, String> {
    if (4..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("a key is 4 to 32 hexadecimal digits, as --list prints them".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_counted_from_0() {
        assert_eq!(shard("0/8"), Ok(Shard { index: 0, count: 8 }));
        assert!(
            shard("8/8").is_err() && shard("1").is_err() && shard("0/0").is_err() && shard("-1/2").is_err()
        );
    }

    #[test]
    fn keys_are_hexadecimal() {
        assert_eq!(key("3F9a"), Ok("3f9a".into()));
        assert!(key("3f9").is_err() && key("3f9g").is_err() && key(&"0".repeat(33)).is_err());
    }

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
        assert!(relay("relay.example.org").unwrap_err().contains("192.0.2.1:7289"));
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
