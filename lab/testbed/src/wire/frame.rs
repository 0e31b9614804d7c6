//! Properties of a frame that the wire uses: length, ECN field, and whether the frame carries a membership
//! message.

use headwater_proto::Ecn;

/// `struct virtio_net_hdr` in front of each frame.
pub(super) const OFFLOADS_BYTES: usize = 10;
const ETHERNET_BYTES: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xDD];
const IPV6_BYTES: usize = 40;
const IGMP: u8 = 2;
const PIM: u8 = 103;
const HOP_BY_HOP: u8 = 0;
const ICMPV6: u8 = 58;
/// ICMPv6 types of MLD: query, report, done (RFC 2710), and report of version 2 (RFC 3810).
const MLD: [u8; 4] = [130, 131, 132, 143];

/// IP packet of a frame of this type; `None` if the frame is of another type or the header is incomplete.
fn packet(frame: &[u8], kind: [u8; 2], version: u8, header_bytes: usize) -> Option<&[u8]> {
    let packet = frame.get(OFFLOADS_BYTES + ETHERNET_BYTES..)?;
    let found = frame.get(OFFLOADS_BYTES + 12..OFFLOADS_BYTES + 14)?;
    (found == kind && packet.len() >= header_bytes && packet[0] >> 4 == version).then_some(packet)
}

fn ipv4(frame: &[u8]) -> Option<&[u8]> {
    packet(frame, IPV4, 4, 20)
}

fn ipv6(frame: &[u8]) -> Option<&[u8]> {
    packet(frame, IPV6, 6, IPV6_BYTES)
}

/// Bytes on the wire, Ethernet header included, as token buckets count.
pub(super) fn wire_bytes(frame: &[u8]) -> u32 {
    u32::try_from(frame.len().saturating_sub(OFFLOADS_BYTES)).unwrap_or(u32::MAX)
}

/// ECN field of a frame.
pub(super) fn ecn(frame: &[u8]) -> Ecn {
    let of_ipv4 = ipv4(frame).map(|packet| packet[1]);
    let class = of_ipv4.or_else(|| ipv6(frame).map(|packet| packet[1] >> 4));
    class.map_or(Ecn::NotCapable, Ecn::from_bits)
}

/// Whether the frame carries a membership message: IGMP or MLD towards hosts, or PIM between routers.
pub(super) fn is_membership(frame: &[u8]) -> bool {
    ipv4(frame).is_some_and(|packet| matches!(packet[9], IGMP | PIM)) || ipv6(frame).is_some_and(is_mld)
}

/// Whether a packet is a message of MLD, which has a hop-by-hop header of 8 bytes (RFC 2710, section 3).
fn is_mld(packet: &[u8]) -> bool {
    let message = packet.get(IPV6_BYTES + 8);
    packet[6] == HOP_BY_HOP
        && packet.get(IPV6_BYTES) == Some(&ICMPV6)
        && message.is_some_and(|kind| MLD.contains(kind))
}

/// Sets congestion experienced, and the checksum of an IPv4 header right.
pub(super) fn mark(frame: &mut [u8]) {
    if ipv6(frame).is_some() {
        frame[OFFLOADS_BYTES + ETHERNET_BYTES + 1] |= (Ecn::CongestionExperienced as u8) << 4;
        return;
    }
    if ipv4(frame).is_none() {
        return;
    }
    let packet = &mut frame[OFFLOADS_BYTES + ETHERNET_BYTES..];
    let before = u16::from_be_bytes([packet[0], packet[1]]);
    packet[1] |= Ecn::CongestionExperienced as u8;
    let after = u16::from_be_bytes([packet[0], packet[1]]);
    // RFC 1624, equation 3.
    let checksum = u16::from_be_bytes([packet[10], packet[11]]);
    let mut sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    let checksum = !u16::try_from(sum).unwrap_or(u16::MAX);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with an IPv4 header of this traffic class and protocol, its checksum right.
    fn frame(class: u8, protocol: u8) -> Vec<u8> {
        let mut header = [0x45, class, 0, 40, 1, 2, 0x40, 0, 8, protocol, 0, 0, 10, 72, 0, 1, 232, 72, 0, 1];
        let checksum = !sum(&header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        let mut frame = vec![0; OFFLOADS_BYTES + 12];
        frame.extend(IPV4);
        frame.extend(header);
        frame.extend([0; 20]);
        frame
    }

    fn sum(header: &[u8]) -> u16 {
        let words = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let sum: u32 = words.sum();
        u16::try_from((sum & 0xFFFF) + (sum >> 16)).unwrap()
    }

    #[test]
    fn a_marked_header_is_whole() {
        for class in [0b01, 0b10, 0xB9, 0xFE] {
            let mut marked = frame(class, 17);
            assert_eq!(ecn(&marked) as u8, class & 3);
            mark(&mut marked);
            assert_eq!(ecn(&marked), Ecn::CongestionExperienced);
            let header = &marked[OFFLOADS_BYTES + ETHERNET_BYTES..][..20];
            assert_eq!((sum(header), header[1] >> 2), (0xFFFF, class >> 2));
        }
    }

    /// A frame with an IPv6 header of this traffic class, a hop-by-hop header, and an ICMPv6 message.
    fn frame6(class: u8, message: u8) -> Vec<u8> {
        let mut frame = vec![0; OFFLOADS_BYTES + 12];
        frame.extend(IPV6);
        frame.extend([0x60 | class >> 4, class << 4, 0, 0, 0, 32, HOP_BY_HOP, 1]);
        frame.extend([0; 32]);
        frame.extend([ICMPV6, 0, 5, 2, 0, 0, 1, 0, message]);
        frame.extend([0; 23]);
        frame
    }

    #[test]
    fn ipv6_is_marked_and_mld_is_found() {
        for class in [0b01, 0b10, 0xB9, 0xFE] {
            let mut marked = frame6(class, 143);
            assert_eq!(ecn(&marked) as u8, class & 3);
            mark(&mut marked);
            assert_eq!(marked, frame6(class | 3, 143));
            assert_eq!(ecn(&marked), Ecn::CongestionExperienced);
        }
        for (message, is) in [(130, true), (131, true), (132, true), (143, true), (128, false), (135, false)]
        {
            assert_eq!(is_membership(&frame6(0, message)), is, "{message}");
        }
        for length in 0..OFFLOADS_BYTES + ETHERNET_BYTES + IPV6_BYTES + 9 {
            assert!(!is_membership(&frame6(0, 130)[..length]));
            mark(&mut frame6(0, 130)[..length]);
        }
    }

    #[test]
    fn frames_are_told_apart() {
        assert!(is_membership(&frame(0xC0, 2)));
        assert!(is_membership(&frame(0xC0, 103)), "a join that a router passes on");
        assert!(!is_membership(&frame(0, 17)));
        assert_eq!(wire_bytes(&frame(0, 17)), 54);
        // ARP, and what ends in the middle.
        let mut other = frame(2, 2);
        other[OFFLOADS_BYTES + 13] = 6;
        mark(&mut other);
        assert_eq!((ecn(&other), is_membership(&other)), (Ecn::NotCapable, false));
        for length in 0..OFFLOADS_BYTES + ETHERNET_BYTES + 20 {
            assert!(!is_membership(&frame(0, 2)[..length]));
            mark(&mut frame(0, 2)[..length]);
        }
    }
}
