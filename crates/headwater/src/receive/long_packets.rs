//! [`LongPacketsMissing`]: packets that are too long for the path to a receiver, judged by the shorter
//! packets that arrive.

use std::fmt;

use crate::net::Interface;
use crate::send::symbol_size_within;
use crate::system::InputLosses;

/// Least number of missing packets for a suspicion of their length.
const LOST_MIN: u64 = 20;
/// LCT header and FEC payload id of a content packet.
const HEADER_BYTES: u32 = 16;

/// Report that long packets of a session are missing while short packets arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongPacketsMissing {
    /// Least bytes of an IP packet with a whole symbol of the session.
    pub packet_bytes: u32,
    /// UDP payload of the longest packet of the session that arrived, in bytes.
    pub longest: u64,
    /// Interface that the session is received on, and the MTU if the system reports the MTU; `None` for a
    /// session on request by unicast.
    pub interface: Option<(String, Option<u32>)>,
    /// Whether packets arrived in incomplete sets of fragments.
    pub is_fragmented: bool,
    /// Symbol size with which a sender's packets fit the interface.
    symbol_size: u16,
}

/// Observations about a session's packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Symbol size of the session's content, once an FDT has arrived.
    pub symbol_size: Option<u16>,
    /// UDP payload of the longest received packet, in bytes.
    pub longest: u64,
    /// Packets received.
    pub packets: u64,
    /// Packets missing in the sequence numbers.
    pub lost: u64,
    pub is_ipv4: bool,
}

/// Judges whether long packets are missing: either no long packet came, or the interface is too narrow for
/// long packets and most packets are lost (some drivers pass runs that the kernel did not cut all the same).
pub(super) fn judge_long_packets(
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
    /// Formats the problem and advice for the user.
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
        let found = judge_long_packets(facts(), None, none).unwrap();
        assert_eq!((found.packet_bytes, found.symbol_size), (1_452, 1_088));
        assert!(found.to_string().contains("none arrives with more than 700 bytes"), "{found}");
        let fragments = InputLosses { frames: 0, fragments: 5 };
        assert!(
            judge_long_packets(facts(), None, || fragments).unwrap().to_string().contains("in fragments")
        );
        for harmless in [
            Facts { symbol_size: None, ..facts() },
            Facts { longest: 1_424, ..facts() },
            Facts { lost: 19, ..facts() },
        ] {
            assert_eq!(judge_long_packets(harmless, None, none), None);
        }
    }
}
