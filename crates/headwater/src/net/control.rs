//! Control messages of a datagram to send: the traffic class octet and the segment size, as the kernel reads
//! them (cmsg(3)).
//!
//! `quinn-udp` writes the ECN field as the whole octet, which clears the code point of differentiated
//! services; hence this.

use std::mem::size_of;

/// `cmsg_len`, `cmsg_level`, `cmsg_type` as the kernel declares them.
const HEADER_BYTES: usize = size_of::<usize>() + 2 * size_of::<libc::c_int>();
/// Messages start at multiples of this.
const ALIGNMENT_BYTES: usize = size_of::<usize>();
/// Two messages, each of at most one aligned word of data.
const CAPACITY_BYTES: usize = 2 * (HEADER_BYTES + ALIGNMENT_BYTES);

/// The control messages of one datagram or run of datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Control {
    buffer: [u8; CAPACITY_BYTES],
    bytes: usize,
}

impl Control {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self { buffer: [0; CAPACITY_BYTES], bytes: 0 }
    }

    /// Sends with this traffic class octet: differentiated services (6 bits), ECN (2 bits).
    pub(super) fn traffic_class(&mut self, ipv4: bool, octet: u8) {
        let value = libc::c_int::from(octet).to_ne_bytes();
        if ipv4 {
            self.push(libc::IPPROTO_IP, libc::IP_TOS, &value);
        } else {
            self.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &value);
        }
    }

    /// Has the kernel cut the payload into datagrams of this many bytes.
    pub(super) fn segment_bytes(&mut self, bytes: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &bytes.to_ne_bytes());
    }

    /// What the kernel is given.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.buffer[..self.bytes]
    }

    fn push(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        self.put(&(HEADER_BYTES + data.len()).to_ne_bytes());
        self.put(&level.to_ne_bytes());
        self.put(&kind.to_ne_bytes());
        self.put(data);
        self.bytes = self.bytes.next_multiple_of(ALIGNMENT_BYTES);
    }

    fn put(&mut self, data: &[u8]) {
        let end = self.bytes + data.len();
        self.buffer[self.bytes..end].copy_from_slice(data);
        self.bytes = end;
    }
}
