//! A stream of bytes: packets without messages.

/// Fills packets with consecutive bytes, each packet as full as possible.
#[derive(Clone, Debug)]
pub struct Filler {
    packet: Vec<u8>,
    packet_bytes: usize,
    /// First bytes of each packet.
    head: &'static [u8],
}

impl Filler {
    /// Creates a filler for packets of at most `packet_bytes`, at least 1.
    pub fn new(packet_bytes: u16) -> Self {
        Self::with_head(packet_bytes, &[])
    }

    /// Creates a filler for packets of at most `packet_bytes`, including the head, and of at least a byte
    /// after the head.
    pub(super) fn with_head(packet_bytes: u16, head: &'static [u8]) -> Self {
        let packet_bytes = usize::from(packet_bytes).max(head.len() + 1);
        let mut packet = Vec::with_capacity(packet_bytes);
        packet.extend_from_slice(head);
        Self { packet, packet_bytes, head }
    }

    /// Maximum number of packets for `bytes` further bytes and the bytes already present.
    pub const fn packets(&self, bytes: usize) -> usize {
        (self.packet.len() - self.head.len() + bytes).div_ceil(self.packet_bytes - self.head.len())
    }

    /// Adds bytes, and passes full packets to `packet`.
    pub fn push(&mut self, mut bytes: &[u8], mut packet: impl FnMut(&[u8])) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(self.packet_bytes - self.packet.len()));
            self.packet.extend_from_slice(now);
            bytes = later;
            if self.packet.len() == self.packet_bytes {
                self.flush(&mut packet);
            }
        }
    }

    /// Whether there is a last packet, which is not full.
    pub const fn has_rest(&self) -> bool {
        self.packet.len() > self.head.len()
    }

    /// Passes the last packet, which is not full, to `packet`, if there is a last packet.
    pub fn flush(&mut self, mut packet: impl FnMut(&[u8])) {
        if self.has_rest() {
            packet(&self.packet);
            self.packet.truncate(self.head.len());
            self.packet.copy_from_slice(self.head);
        }
    }

    /// Returns the packet under way, including the head.
    pub(super) fn packet_mut(&mut self) -> &mut [u8] {
        &mut self.packet
    }
}

/// Bytes from the packets of a [`Filler`]: the stream from the first packet received up to the first packet
/// lost for good. Bytes after a gap have no known place in a stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteStream {
    is_broken: bool,
}

impl ByteStream {
    /// Whether there was a gap, after which no bytes follow.
    pub const fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Records that packets were lost before the next packet.
    pub const fn lost(&mut self) {
        self.is_broken = true;
    }

    /// Passes the bytes of the next packet to `bytes`, if the bytes are part of the stream.
    pub fn packet(&self, packet: &[u8], bytes: impl FnOnce(&[u8])) {
        if !self.is_broken {
            bytes(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr, SocketAddr};

    use headwater_wire::pgm::{Body, Gsi, Packet};
    use proptest::prelude::*;

    use super::*;
    use crate::machine::{DATAGRAM_BYTES_MAX, Datagram, Destination, Ecn, Input, Machine, Output};
    use crate::pgm::{
        Deliver, Mode, PgmReceiverConfig, PgmReceiverMachine, PgmSession, PgmSource, SourceConfig,
        SourceControl,
    };
    use crate::rate::Rate;
    use crate::rng::{Seed, unit};
    use crate::time::{Duration, Instant};

    const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 255, 72, 87));
    const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 3_056);

    #[derive(Default)]
    struct Came {
        stream: ByteStream,
        bytes: Vec<u8>,
    }

    impl Deliver for Came {
        fn message(&mut self, _now: Instant, message: &[u8]) {
            self.stream.packet(message, |bytes| self.bytes.extend_from_slice(bytes));
        }

        fn lost(&mut self, _now: Instant, _packets: u64) {
            self.stream.lost();
        }
    }

    /// Writes pieces of a stream and runs until all was sent and repaired; what came, and whether there was a
    /// hole. `is_lost` says so of data.
    fn carry(pieces: &[Vec<u8>], mut is_lost: impl FnMut(u32) -> bool) -> (Vec<u8>, bool) {
        let session =
            PgmSession { gsi: Gsi([1; 6]), source_port: 40_000, destination_port: 7_500, group: GROUP };
        let config =
            SourceConfig::new(session, HERE.ip(), 100).with_mode(Mode::Pgm).with_window_packets(1_024);
        let control = SourceControl::Fixed(Rate::from_kilobits(800));
        let mut source = PgmSource::new(config, control, Instant::ZERO);
        let config = PgmReceiverConfig::new(7_500, GROUP)
            .with_window_packets(1_024)
            .with_back_off(Duration::from_millis(5))
            .with_waits(Duration::from_millis(50), Duration::from_millis(50))
            .with_retries(20, 20);
        let mut receiver = PgmReceiverMachine::new(config, Came::default(), Seed(1).stream("receiver", 0));
        let (mut now, mut buffer) = (Instant::ZERO, vec![0; DATAGRAM_BYTES_MAX]);
        let (mut filler, mut left) = (Filler::new(100), pieces.iter().peekable());
        let end = Instant::ZERO + Duration::from_secs(60);
        while now < end {
            while let Some(piece) = left.next_if(|piece| filler.packets(piece.len()) < source.room() as usize)
            {
                filler.push(piece, |packet| assert!(source.send(packet), "there is room"));
            }
            if left.peek().is_none() {
                filler.flush(|packet| assert!(source.send(packet), "there is room"));
            }
            source.handle(now, Input::Timeout);
            receiver.handle(now, Input::Timeout);
            while let Some(output) = source.poll_output(now, &mut buffer) {
                let Output::Transmit(transmit) = output else { continue };
                let payload = buffer[..transmit.bytes].to_vec();
                let packet = Packet::parse(&payload).expect("what we send can be read");
                let lost = match packet.body {
                    Body::Odata { sequence, .. } | Body::Rdata { sequence, .. } => is_lost(sequence),
                    _ => false,
                };
                if !lost {
                    let datagram =
                        Datagram { source: HERE, channel: None, ecn: Ecn::NotCapable, payload: &payload };
                    receiver.handle(now, Input::Datagram(datagram));
                }
            }
            while let Some(output) = receiver.poll_output(now, &mut buffer) {
                let Output::Transmit(transmit) = output else { continue };
                assert_eq!(transmit.destination, Destination::Unicast(HERE));
                let payload = buffer[..transmit.bytes].to_vec();
                let datagram =
                    Datagram { source: HERE, channel: None, ecn: Ecn::NotCapable, payload: &payload };
                source.handle(now, Input::Datagram(datagram));
            }
            let next = source.poll_timeout().into_iter().chain(receiver.poll_timeout()).min();
            now = next.map_or(end, |next| next.max(now + Duration::from_micros(1)));
        }
        let came = receiver.deliver();
        (came.bytes.clone(), came.stream.is_broken())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]

        #[test]
        fn bytes_come_in_order_whatever_they_were_written_in(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 1..30), seed in any::<u64>(),
        ) {
            let mut draw = Seed(seed).stream("loss", 0);
            // The first packet comes, or the stream begins with the second.
            let (came, is_broken) = carry(&pieces, |sequence| sequence > 0 && unit(&mut draw) < 0.1);
            prop_assert!(!is_broken);
            prop_assert_eq!(came, pieces.concat());
        }
    }

    #[test]
    fn nothing_follows_a_hole() {
        let pieces: Vec<_> = (0..200_u8).map(|number| vec![number; 37]).collect();
        let (came, is_broken) = carry(&pieces, |sequence| sequence == 20);
        assert!(is_broken);
        assert_eq!(came, pieces.concat()[..2_000], "packets of 100 bytes");
    }
}
