//! A stream of bytes: messages without their boundaries.

use super::receiver::Deliver;
use super::source::Source;
use crate::time::Instant;

impl Source {
    /// Takes bytes of a stream, as many as there is room for now, in packets as full as they come; says how many. Boundaries of calls
    /// mean nothing to a receiver that takes a stream.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        for packet in bytes.chunks(self.payload_bytes()) {
            if !self.send(packet) {
                break;
            }
            taken += packet.len();
        }
        taken
    }
}

/// Hands bytes that [`Source::write`] took to `F` in order, from the first packet that came on and up to the first one that is lost for good: what follows a hole is
/// no part of the stream any more.
#[derive(Clone, Copy, Debug)]
pub struct ByteStream<F> {
    take: F,
    is_broken: bool,
}

impl<F: FnMut(&[u8])> ByteStream<F> {
    /// A stream into `take`.
    pub const fn new(take: F) -> Self {
        Self { take, is_broken: false }
    }

    /// Whether there was a hole: nothing is handed over any more.
    pub const fn is_broken(&self) -> bool {
        self.is_broken
    }
}

impl<F: FnMut(&[u8])> Deliver for ByteStream<F> {
    fn message(&mut self, _now: Instant, message: &[u8]) {
        if !self.is_broken {
            (self.take)(message);
        }
    }

    fn lost(&mut self, _now: Instant, _packets: u64) {
        self.is_broken = true;
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr, SocketAddr};

    use headwater_wire::pgm::{Body, Gsi, Packet};
    use proptest::prelude::*;

    use super::*;
    use crate::machine::{DATAGRAM_BYTES_MAX, Datagram, Destination, Ecn, Input, Machine, Output};
    use crate::pgm::{Control, Mode, Receiver, ReceiverConfig, Session, SourceConfig};
    use crate::rate::Rate;
    use crate::rng::{Seed, unit};
    use crate::time::Duration;

    const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 255, 72, 87));
    const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 3_056);

    /// Writes pieces of a stream and runs until all was sent and repaired; what came, and whether there was a hole. `is_lost` says so of data.
    fn carry(pieces: &[Vec<u8>], mut is_lost: impl FnMut(u32) -> bool) -> (Vec<u8>, bool) {
        let session =
            Session { gsi: Gsi([1; 6]), source_port: 40_000, destination_port: 7_500, group: GROUP };
        let config =
            SourceConfig::new(session, HERE.ip(), 100).with_mode(Mode::Pgm).with_window_packets(1_024);
        let control = Control::Fixed(Rate::from_kilobits(800));
        let mut source = Source::new(config, control, Instant::ZERO);
        let mut came = Vec::new();
        let config = ReceiverConfig::new(7_500, GROUP)
            .with_window_packets(1_024)
            .with_back_off(Duration::from_millis(5))
            .with_waits(Duration::from_millis(50), Duration::from_millis(50))
            .with_retries(20, 20);
        let stream = ByteStream::new(|bytes: &[u8]| came.extend_from_slice(bytes));
        let mut receiver = Receiver::new(config, stream, Seed(1).stream("receiver", 0));
        let (mut now, mut buffer) = (Instant::ZERO, vec![0; DATAGRAM_BYTES_MAX]);
        let mut left = pieces.iter().flat_map(|piece| piece.chunks(37)).peekable();
        let mut rest: &[u8] = &[];
        let end = Instant::ZERO + Duration::from_secs(60);
        while now < end {
            while !rest.is_empty() || left.peek().is_some() {
                if rest.is_empty() {
                    rest = left.next().unwrap_or_default();
                }
                let taken = source.write(rest);
                rest = &rest[taken..];
                if taken == 0 {
                    break;
                }
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
        let is_broken = receiver.deliver().is_broken();
        drop(receiver);
        (came, is_broken)
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
        assert_eq!(came, pieces[..20].concat());
    }
}
