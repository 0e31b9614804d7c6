//! Multicast groups of a session: a base address, and one group per channel counting up from the base
//! address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use headwater_proto::ChannelId;

/// Maximum number of channels of a session: the range of the short congestion control information (RFC 3738,
/// section 5).
pub const CHANNELS_MAX: u16 = 256;

/// The groups of a session: channel `i` is sent to the base address plus `i`, always to the same port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    base: SocketAddr,
    count: u16,
}

/// Reasons why a base address and a count are no set of channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelsError {
    /// The base address is a unicast address.
    #[error("{0} is not a multicast address; use one of 239.0.0.0/8 or 232.0.0.0/8 (IPv4), ff00::/8 (IPv6)")]
    NotMulticast(IpAddr),
    /// A session needs at least one channel.
    #[error("a session needs at least one channel, not 0")]
    NoChannel,
    /// Port 0 cannot be sent to.
    #[error("port 0 cannot be sent to; give the groups a port from 1 to 65535")]
    NoPort,
    /// The last channel's address would lie outside the block of the base address.
    #[error(
        "{count} channels from {base} leave the range of its multicast addresses; choose a lower base address"
    )]
    OutOfRange {
        /// Address of channel 0.
        base: IpAddr,
        /// Requested number of channels.
        count: u16,
    },
}

impl Channels {
    /// Returns `count` channels from `base`, the group and port of channel 0.
    ///
    /// # Errors
    /// When `base` is not multicast or has no port, or the channels do not fit above it. An IPv6 set may not
    /// change flags or scope (the first 16 bits, RFC 4291 section 2.7), nor an IPv4 set enter or leave
    /// 232.0.0.0/8 (RFC 4607).
    pub fn new(base: SocketAddr, count: u16) -> Result<Self, ChannelsError> {
        if !base.ip().is_multicast() {
            return Err(ChannelsError::NotMulticast(base.ip()));
        }
        if base.port() == 0 {
            return Err(ChannelsError::NoPort);
        }
        let last = count.checked_sub(1).ok_or(ChannelsError::NoChannel)?;
        match offset(base.ip(), last) {
            Some(end) if same_block(base.ip(), end) => Ok(Self { base, count }),
            _ => Err(ChannelsError::OutOfRange { base: base.ip(), count }),
        }
    }

    /// Returns the maximum number of channels of a session, `CHANNELS_MAX`, or as many as fit above `base`:
    /// for receivers that do not know the number of channels yet.
    ///
    /// # Errors
    /// When `base` is not multicast or has no port.
    pub fn all_from(base: SocketAddr) -> Result<Self, ChannelsError> {
        let one = Self::new(base, 1)?;
        let fits = |count: u16| Self::new(base, count).ok();
        Ok((2..=CHANNELS_MAX).rev().find_map(fits).unwrap_or(one))
    }

    /// Returns group and port of channel 0.
    pub const fn base(&self) -> SocketAddr {
        self.base
    }

    /// Returns the number of channels, at least 1.
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// Returns the port that all channels share.
    pub const fn port(&self) -> u16 {
        self.base.port()
    }

    /// Whether the groups are IPv4 groups.
    pub const fn is_ipv4(&self) -> bool {
        self.base.is_ipv4()
    }

    /// Whether the groups are of the range that routers serve only to receivers that name a source (RFC 4607:
    /// 232.0.0.0/8 and ff3x::/32).
    pub fn is_source_specific(&self) -> bool {
        is_source_specific(self.base.ip())
    }

    /// Returns group and port of a channel; `None` when the session has no such channel.
    pub fn address(&self, channel: ChannelId) -> Option<SocketAddr> {
        if channel.0 >= self.count {
            return None;
        }
        let address = offset(self.base.ip(), channel.0)?;
        Some(match (address, self.base) {
            (IpAddr::V6(address), SocketAddr::V6(base)) => {
                SocketAddrV6::new(address, base.port(), 0, base.scope_id()).into()
            }
            (address, base) => SocketAddr::new(address, base.port()),
        })
    }

    /// Returns the channel of a destination address; `None` for an address outside the session's groups.
    pub fn channel_of(&self, address: IpAddr) -> Option<ChannelId> {
        let distance = match (address, self.base.ip()) {
            (IpAddr::V4(address), IpAddr::V4(base)) => {
                u128::from(address.to_bits().checked_sub(base.to_bits())?)
            }
            (IpAddr::V6(address), IpAddr::V6(base)) => address.to_bits().checked_sub(base.to_bits())?,
            _ => return None,
        };
        let index = u16::try_from(distance).ok()?;
        (index < self.count).then_some(ChannelId(index))
    }
}

fn offset(base: IpAddr, by: u16) -> Option<IpAddr> {
    Some(match base {
        IpAddr::V4(base) => Ipv4Addr::from_bits(base.to_bits().checked_add(u32::from(by))?).into(),
        IpAddr::V6(base) => Ipv6Addr::from_bits(base.to_bits().checked_add(u128::from(by))?).into(),
    })
}

/// Whether hosts and routers treat both addresses alike.
fn same_block(first: IpAddr, last: IpAddr) -> bool {
    let same_scope = match (first, last) {
        (IpAddr::V6(first), IpAddr::V6(last)) => first.segments()[0] == last.segments()[0],
        _ => last.is_multicast(),
    };
    same_scope && is_source_specific(first) == is_source_specific(last)
}

fn is_source_specific(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[0] == 232,
        IpAddr::V6(address) => {
            let [prefix, second, ..] = address.segments();
            prefix & 0xfff0 == 0xff30 && second == 0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channels(base: &str, count: u16) -> Result<Channels, ChannelsError> {
        Channels::new(base.parse().unwrap(), count)
    }

    #[test]
    fn counts_up_over_octets_and_back() {
        for (base, last) in
            [("239.1.2.250:4001", "239.1.3.5:4001"), ("[ff15::fffa]:4001", "[ff15::1:5]:4001")]
        {
            let channels = channels(base, 12).unwrap();
            assert_eq!(channels.address(ChannelId(0)), Some(base.parse().unwrap()));
            let address = channels.address(ChannelId(11)).unwrap();
            assert_eq!(address, last.parse().unwrap());
            assert_eq!(channels.channel_of(address.ip()), Some(ChannelId(11)));
            assert_eq!(channels.address(ChannelId(12)), None);
            let beyond = offset(address.ip(), 1).unwrap();
            assert_eq!(channels.channel_of(beyond), None);
        }
    }

    #[test]
    fn other_family_and_lower_addresses_are_foreign() {
        let channels = channels("239.0.0.5:1", 4).unwrap();
        assert_eq!(channels.channel_of("239.0.0.4".parse().unwrap()), None);
        assert_eq!(channels.channel_of("ff15::5".parse().unwrap()), None);
    }

    #[test]
    fn all_are_as_many_as_fit() {
        let all = |base: &str| Channels::all_from(base.parse().unwrap()).map(|channels| channels.count());
        assert_eq!(all("239.1.2.3:1"), Ok(256));
        assert_eq!(all("239.255.255.250:1"), Ok(6));
        assert_eq!(all("231.255.255.255:1"), Ok(1));
        assert_eq!(all("239.1.2.3:0"), Err(ChannelsError::NoPort));
    }

    #[test]
    fn refuses_what_cannot_be_addressed() {
        assert!(matches!(channels("10.0.0.1:1", 1), Err(ChannelsError::NotMulticast(_))));
        assert_eq!(channels("239.0.0.1:0", 1), Err(ChannelsError::NoPort));
        assert_eq!(channels("239.0.0.1:1", 0), Err(ChannelsError::NoChannel));
        for (base, fits) in [
            ("239.255.255.250:1", 6),
            ("231.255.255.255:1", 1),
            ("232.255.255.255:1", 1),
            ("[ff15:ffff:ffff:ffff:ffff:ffff:ffff:fffe]:1", 2),
        ] {
            assert!(channels(base, fits).is_ok(), "{base}");
            assert!(matches!(channels(base, fits + 1), Err(ChannelsError::OutOfRange { .. })), "{base}");
        }
    }

    #[test]
    fn knows_the_source_specific_ranges() {
        for (base, specific) in [
            ("232.1.1.1:1", true),
            ("239.1.1.1:1", false),
            ("[ff3e::8000:1]:1", true),
            ("[ff35:40::1]:1", false),
            ("[ff15::1]:1", false),
        ] {
            assert_eq!(channels(base, 1).unwrap().is_source_specific(), specific, "{base}");
        }
    }
}
