//! Ancillary data of a received message, from the control messages of Linux (cmsg(3)).
//!
//! `quinn-udp`, which sets the options, has no room for all four control messages at once.

use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::MessageMetadata;

/// `cmsg_len`, `cmsg_level`, `cmsg_type` as the kernel declares these fields.
const HEADER_BYTES: usize = size_of::<usize>() + 2 * size_of::<libc::c_int>();
/// Alignment of control messages.
const ALIGNMENT_BYTES: usize = size_of::<usize>();

impl MessageMetadata {
    /// Reads control messages. Unknown or malformed control messages are ignored.
    pub(super) fn parse(mut control: &[u8]) -> Self {
        let mut metadata = Self::default();
        while let Some((header, _)) = control.split_at_checked(HEADER_BYTES) {
            let (bytes, kind) = header.split_at(size_of::<usize>());
            let bytes = usize::from_ne_bytes(bytes.try_into().expect("a word"));
            let Some(data) = control.get(HEADER_BYTES..bytes) else { break };
            let (level, kind) = kind.split_at(size_of::<libc::c_int>());
            metadata.take(word(level), word(kind), data);
            control = control.get(bytes.next_multiple_of(ALIGNMENT_BYTES)..).unwrap_or_default();
        }
        metadata
    }

    fn take(&mut self, level: Option<i32>, kind: Option<i32>, data: &[u8]) {
        let (Some(level), Some(kind)) = (level, kind) else { return };
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_TOS) => self.traffic_class = data.first().copied().unwrap_or(0),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.traffic_class = word(data).and_then(|octet| u8::try_from(octet).ok()).unwrap_or(0);
            }
            // `in_pktinfo`: interface, local address, destination of the header.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let address = data.get(8..12).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
                self.destination = address.map(|bytes| Ipv4Addr::from(bytes).into());
            }
            // `in6_pktinfo`: destination, interface.
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let address = data.get(..16).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
                self.destination = address.map(|bytes| Ipv6Addr::from(bytes).into());
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                self.segment_bytes = word(data).and_then(|bytes| usize::try_from(bytes).ok());
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => self.arrived = time(data),
            _ => {}
        }
    }
}

fn word(data: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(data.get(..4)?.try_into().ok()?))
}

/// A `timespec`: two words of the machine.
fn time(data: &[u8]) -> Option<Duration> {
    let (seconds, nanos) = data.split_at_checked(data.len() / 2)?;
    let number = |bytes: &[u8]| match bytes.len() {
        4 => word(bytes).map(i64::from),
        8 => Some(i64::from_ne_bytes(bytes.try_into().ok()?)),
        _ => None,
    };
    let nanos = u32::try_from(number(nanos)?).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(number(seconds)?).ok()?, nanos))
}

#[cfg(test)]
mod metadata_tests {
    use super::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (HEADER_BYTES + data.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT_BYTES), 0xEE);
        bytes
    }

    fn all() -> Vec<u8> {
        let mut info = vec![0; 8];
        info.extend([232, 1, 2, 3]);
        let mut time = 1_700_000_000_i64.to_ne_bytes().to_vec();
        time.extend(123_456_789_i64.to_ne_bytes());
        [
            message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &time),
            message(libc::SOL_UDP, libc::UDP_GRO, &1_424_i32.to_ne_bytes()),
            message(77, 88, &[9; 5]),
            message(libc::IPPROTO_IP, libc::IP_PKTINFO, &info),
            message(libc::IPPROTO_IP, libc::IP_TOS, &[0b1011_1011]),
        ]
        .concat()
    }

    #[test]
    fn all_that_is_told_is_read() {
        let metadata = MessageMetadata::parse(&all());
        assert_eq!(metadata.destination, Some("232.1.2.3".parse().unwrap()));
        assert_eq!(metadata.traffic_class, 0b1011_1011);
        assert_eq!(metadata.segment_bytes, Some(1_424));
        assert_eq!(metadata.arrived, Some(Duration::new(1_700_000_000, 123_456_789)));
        let info = ["ff3e::8000:1".parse::<Ipv6Addr>().unwrap().octets().as_slice(), &[0; 4]].concat();
        let metadata = MessageMetadata::parse(&message(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info));
        assert_eq!(metadata.destination, Some("ff3e::8000:1".parse().unwrap()));
        let metadata =
            MessageMetadata::parse(&message(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &3_i32.to_ne_bytes()));
        assert_eq!(metadata.traffic_class, 3);
    }

    #[test]
    fn what_is_cut_off_or_makes_no_sense_tells_nothing() {
        let all = all();
        for bytes in 0..all.len() {
            let metadata = MessageMetadata::parse(&all[..bytes]);
            assert!(metadata.destination.is_none() || bytes > 100, "{bytes}");
        }
        for bytes in [0, 3, usize::MAX] {
            let mut wrong = all.clone();
            wrong[..size_of::<usize>()].copy_from_slice(&bytes.to_ne_bytes());
            assert_eq!(MessageMetadata::parse(&wrong), MessageMetadata::default());
        }
        let late = [0_i64.to_ne_bytes(), 1_000_000_000_i64.to_ne_bytes()].concat();
        assert_eq!(
            MessageMetadata::parse(&message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &late)).arrived,
            None
        );
        assert_eq!(
            MessageMetadata::parse(&message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &[])).arrived,
            None
        );
    }
}
