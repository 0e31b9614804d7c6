//! PGMCC receiver.

use core::convert::Infallible;
use core::net::SocketAddr;

use headwater_wire::pgm::{Body, CongestionData, CongestionFeedback, Gsi, Options, Packet, PgmReport};

use super::PgmccReceiverConfig;
use super::sender::NOBODY;
use crate::later_us;
use headwater_proto::machine::{ChannelId, Datagram, Destination, Ecn, Input, Machine, Output, Transmit};
use headwater_proto::rng::{self, Stream};
use headwater_proto::time::{Duration, Instant};

/// Maximum delay of the offers to become the acker.
const ELECTION: Duration = Duration::from_millis(500);
/// Number of receivers that the delays of offers are designed for.
const RECEIVERS: f64 = 10_000.0;
/// Distance behind the highest number beyond which a packet is not late but starts a new sequence.
const ANEW: u32 = 1 << 16;
/// Bits of an acknowledgement's bitmap.
const MAP: u32 = u32::BITS;

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PgmccReceiverCounters {
    /// Packets received, without duplicates.
    pub packets: u64,
    /// Packets that did not arrive in sequence.
    pub lost: u64,
    /// Acknowledgements sent, including offers to become the acker.
    pub acks: u64,
    /// NAKs sent.
    pub naks: u64,
    /// Datagrams that are not PGM data with PGMCC's option.
    pub malformed: u64,
    /// Packets of sessions other than the first session heard.
    pub foreign: u64,
}

/// Received session.
#[derive(Clone, Copy, Debug)]
struct Peer {
    address: SocketAddr,
    gsi: Gsi,
    port: u16,
    highest: u32,
    /// Bit i: `highest - i` was received.
    map: u32,
    /// Option of the last packet, and the packet's arrival time.
    last: (CongestionData, Instant),
}

/// Receives packets, and reports losses to the sender.
#[derive(Clone, Debug)]
pub struct PgmccReceiver {
    config: PgmccReceiverConfig,
    draw: Stream,
    is_joined: bool,
    peer: Option<Peer>,
    /// Recent loss rate: lost packets per packet.
    loss: f64,
    /// Whether an acknowledgement is due.
    is_due: bool,
    /// Time of the next NAK, and the NAK's packet.
    nak: Option<(Instant, u32)>,
    /// Time of the offer to become the acker.
    offer: Option<Instant>,
    counters: PgmccReceiverCounters,
}

impl PgmccReceiver {
    /// Creates a receiver; delays are drawn from `draw`.
    pub fn new(config: PgmccReceiverConfig, draw: Stream) -> Self {
        let counters = PgmccReceiverCounters::default();
        let (is_joined, is_due) = (false, false);
        Self { config, draw, is_joined, peer: None, loss: 0.0, is_due, nak: None, offer: None, counters }
    }

    /// Returns the recent loss rate: lost packets per packet.
    pub const fn loss(&self) -> f64 {
        self.loss
    }

    /// Returns the receiver's counters.
    pub const fn counters(&self) -> &PgmccReceiverCounters {
        &self.counters
    }

    fn datagram(&mut self, now: Instant, datagram: &Datagram<'_>) {
        let packet = Packet::parse(datagram.payload).ok();
        let data = packet.and_then(|packet| match (packet.body, packet.options.congestion_data) {
            (Body::Odata { sequence, .. }, Some(data)) => Some((packet, sequence, data)),
            _ => None,
        });
        let Some((packet, sequence, data)) = data else {
            self.counters.malformed += 1;
            return;
        };
        let peer = self.peer.get_or_insert(Peer {
            address: datagram.source,
            gsi: packet.gsi,
            port: packet.source_port,
            highest: sequence.wrapping_sub(1),
            map: 0,
            last: (data, now),
        });
        let is_known =
            (peer.address, peer.gsi, peer.port) == (datagram.source, packet.gsi, packet.source_port);
        if packet.destination_port != self.config.destination_port || !is_known {
            self.counters.foreign += 1;
            return;
        }
        let steps = sequence.wrapping_sub(peer.highest).cast_signed();
        if self.note(sequence, steps) {
            self.counters.packets += 1;
            if steps > 1 {
                self.lose(now, sequence, steps.unsigned_abs() - 1);
            }
            self.loss *= 1.0 - self.config.loss_weight;
        }
        self.turn(now, data);
    }

    /// Records a packet that is `steps` ahead of the highest number, for acknowledgements. Returns whether
    /// the packet is known to be no duplicate.
    fn note(&mut self, sequence: u32, steps: i32) -> bool {
        let Some(peer) = &mut self.peer else { return false };
        match (steps, steps.unsigned_abs()) {
            (1.., ahead) => {
                (peer.map, peer.highest) = (peer.map.checked_shl(ahead).unwrap_or(0) | 1, sequence);
                true
            }
            (_, behind @ 0..MAP) => {
                let bit = 1 << behind;
                let is_new = peer.map & bit == 0;
                peer.map |= bit;
                is_new
            }
            // No packet is this late: the sender was restarted.
            (_, behind) if behind > ANEW => {
                (peer.map, peer.highest) = (1, sequence);
                true
            }
            _ => false,
        }
    }

    /// Records that the `lost` packets before `sequence` did not arrive.
    fn lose(&mut self, now: Instant, sequence: u32, lost: u32) {
        self.counters.lost += u64::from(lost);
        self.loss = 1.0 - (1.0 - self.loss) * libm::pow(1.0 - self.config.loss_weight, f64::from(lost));
        let wait = rng::unit(&mut self.draw) * self.config.back_off.as_secs_f64();
        let first = sequence.wrapping_sub(lost);
        // A waiting NAK covers these losses as well, because the NAK reports the loss rate.
        self.nak.get_or_insert((now + Duration::from_secs_f64(wait), first));
    }

    /// Schedules an acknowledgement if the packet names this receiver as the acker, or an offer if the packet
    /// names no acker.
    fn turn(&mut self, now: Instant, data: CongestionData) {
        let Some(peer) = &mut self.peer else { return };
        peer.last = (data, now);
        self.is_due |= data.acker == self.config.address;
        if data.acker != NOBODY {
            self.offer = None;
        } else if self.offer.is_none() {
            let drawn = rng::unit_above_zero(&mut self.draw);
            let part = (1.0 + libm::log(drawn) / libm::log(RECEIVERS)).max(0.0);
            self.offer = Some(now + Duration::from_secs_f64(part * ELECTION.as_secs_f64()));
        }
    }

    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let peer = self.peer?;
        if self.offer.is_some_and(|offer| offer <= now) {
            (self.offer, self.is_due) = (None, true);
        }
        let body = if core::mem::take(&mut self.is_due) {
            self.counters.acks += 1;
            Body::Ack { highest: peer.highest, bitmap: peer.map }
        } else {
            let (_, sequence) = self.nak.filter(|(due, _)| *due <= now)?;
            self.nak = None;
            self.counters.naks += 1;
            Body::Nak(PgmReport { sequence, source: peer.address.ip(), group: self.config.group })
        };
        let (data, at) = peer.last;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let loss_rate = (self.loss * 65_536.0) as u16;
        let feedback = CongestionFeedback {
            timestamp: later_us(data.timestamp, at, now),
            loss_rate,
            receiver: self.config.address,
        };
        let options = Options { congestion_feedback: Some(feedback), ..Options::default() };
        let packet = Packet::new(self.config.destination_port, peer.port, peer.gsi, body);
        let bytes = Packet { options, ..packet }.emit(buffer).ok()?;
        Some(Transmit { destination: Destination::Unicast(peer.address), bytes, ecn: Ecn::NotCapable })
    }
}

impl Machine for PgmccReceiver {
    type Event = Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        if let Input::Datagram(datagram) = input {
            self.datagram(now, &datagram);
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Infallible>> {
        if !self.is_joined {
            self.is_joined = true;
            return Some(Output::Join(ChannelId::BASE));
        }
        self.poll_transmit(now, buffer).map(Output::Transmit)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.offer.into_iter().chain(self.nak.map(|(due, _)| due)).min()
    }
}
