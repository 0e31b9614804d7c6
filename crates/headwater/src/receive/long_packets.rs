//! Packets that are too long for the way to a receiver: told by those that do arrive.

use std::fmt;

use crate::kernel_files::InputLosses;
use crate::net::Interface;
use crate::send::symbol_size_within;

/// Least packets missing before their length is suspected.
const LOST_MIN: u64 = 20;
/// LCT header and FEC payload id of a packet of content.
const HEADER_BYTES: u32 = 16;

/// Long packets of a session are missing, while short ones arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongPacketsMissing {
    /// Bytes of an IP packet that carries a whole symbol of the session, at least.
    pub packet_bytes: u32,
    /// UDP payload of the longest packet of the session that arrived, in bytes.
    pub longest: u64,
    /// The interface that it is received on, and its MTU if the system tells; nothing where packets are asked
    /// for by unicast.
    pub interface: Option<(String, Option<u32>)>,
    /// Whether packets came in fragments, of which some are missing.
    pub is_fragmented: bool,
    /// Symbol size with which a sender's packets fit the interface.
    symbol_size: u16,
}

/// What is known of a session's packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Symbol size of the session's content, once the FDT has told.
    pub symbol_size: Option<u16>,
    /// UDP payload of the longest packet that came, in bytes.
    pub longest: u64,
    /// Packets received.
    pub packets: u64,
    /// Packets missing in the sequence numbers.
    pub lost: u64,
    pub is_ipv4: bool,
}

/// Judges whether long packets are missing: either none of them came, or the interface is too narrow for them
/// and most are lost (runs that the kernel did not cut pass some drivers all the same).
pub(super) fn judge(
    facts: Facts,
    interface: Option<&Interface>,
    losses: impl FnOnce() -> InputLosses,
) -> Option<LongPacketsMissing> {
    let symbol_size = facts.symbol_size?;
    if facts.lost < LOST_MIN {
        return None;
    }
    let ip_and_udp = if facts.is_ipv4 { 28 } else { 48 };
    let packet_bytes = u32::from(symbol_size) + HEADER_BYTES + ip_and_udp;
    let mtu = interface.and_then(Interface::mtu);
    let is_narrow = mtu.is_some_and(|mtu| mtu < packet_bytes);
    let none_came = facts.longest < u64::from(symbol_size);
    let most_are_lost = facts.lost > facts.packets;
    if !(none_came || (is_narrow && most_are_lost)) {
        return None;
    }
    Some(LongPacketsMissing {
        packet_bytes,
        longest: facts.longest,
        interface: interface.map(|interface| (interface.name.clone(), mtu)),
        is_fragmented: losses().fragments > 0,
        symbol_size: symbol_size_within(mtu.filter(|_| is_narrow).or(Some(1_280)), facts.is_ipv4),
    })
}

impl fmt::Display for LongPacketsMissing {
    /// What is wrong, and what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { packet_bytes, longest, symbol_size, .. } = self;
        write!(
            f,
            "long packets of the session are lost: its content comes in packets of {packet_bytes} bytes, "
        )?;
        match &self.interface {
            Some((name, Some(mtu))) if mtu < packet_bytes => write!(
                f,
                "and the MTU of {name} is {mtu}; give it the MTU of the sender's network (ip link set dev {name} mtu 1500), or let the \
                 sender send with --symbol-size {symbol_size}"
            ),
            _ => {
                let fragments = if self.is_fragmented {
                    ", some of them in fragments that are not all there"
                } else {
                    ""
                };
                write!(
                    f,
                    "and none arrives with more than {longest} bytes of payload{fragments}; an MTU on the way is smaller than the \
                     sender's: raise it, or let the sender send with --symbol-size {symbol_size}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts { symbol_size: Some(1_408), longest: 700, packets: 60, lost: 90, is_ipv4: true }
    }

    #[test]
    fn long_packets_are_missed_when_none_of_them_comes() {
        let none = InputLosses::default;
        let found = judge(facts(), None, none).unwrap();
        assert_eq!((found.packet_bytes, found.symbol_size), (1_452, 1_216));
        assert!(found.to_string().contains("none arrives with more than 700 bytes"), "{found}");
        let fragments = InputLosses { frames: 0, fragments: 5 };
        assert!(judge(facts(), None, || fragments).unwrap().to_string().contains("in fragments"));
        for harmless in [
            Facts { symbol_size: None, ..facts() },
            Facts { longest: 1_424, ..facts() },
            Facts { lost: 19, ..facts() },
        ] {
            assert_eq!(judge(harmless, None, none), None);
        }
    }
}
