//! The sending end: layers at constant rates.

use headwater_wire::Cci;
use headwater_wire::cci::FlidSlCci;

use super::{ANNOUNCEMENT, Config};
use crate::control::{Departure, SenderControl};
use crate::layering::spacing::Spacing;
use crate::layering::{Layering, StaticLayers};
use crate::machine::{ChannelId, Datagram, Destination, Ecn, Transmit};
use crate::rate::Rate;
use crate::time::Instant;

/// Sends on all layers as they are due. Congestion control information is FLID-SL's, without slots; an announcement has its trigger set, and
/// the layer in place of the slot.
#[derive(Clone, Debug)]
pub struct Sender {
    config: Config,
    layers: StaticLayers,
    /// The next packet of each layer.
    next: Vec<u64>,
    sequences: Vec<u16>,
    spacing: Spacing,
    /// The layer that somebody joins. One is enough: who hears of the highest hears enough.
    announced: Option<u8>,
    rate: f64,
}

impl Sender {
    /// Begins at `now`.
    pub fn new(config: Config, now: Instant) -> Self {
        let count = config.rates.len();
        let packets = config.rates.iter().map(|rate| rate.packets_per_second(config.packet_bytes.into()));
        Self {
            rate: packets.sum(),
            layers: StaticLayers::new(&config.rates, config.packet_bytes, now),
            next: vec![0; count],
            sequences: vec![0; count],
            spacing: Spacing::default(),
            announced: None,
            config,
        }
    }

    fn first(&self) -> Option<(u16, Instant)> {
        let due = (0..).zip(&self.next).map(|(layer, number)| (self.layers.nth(layer, *number), layer));
        due.min().map(|(at, layer)| (layer, at))
    }

    fn give_up(&mut self, now: Instant) {
        let before = Spacing::given_up_before(now);
        for (layer, number) in (0..).zip(&mut self.next) {
            *number = (*number).max(self.layers.before(layer, before));
        }
    }

    /// The rates of its layers.
    pub fn rates(&self) -> &[Rate] {
        &self.config.rates
    }
}

/// Congestion control information of a packet, or of an announcement.
fn cci(layer: u16, sequence: u16, announced: Option<u8>) -> Cci {
    let (increase_trigger, slot) = (announced.is_some(), announced.unwrap_or(0) & 0x7F);
    let group = u8::try_from(layer).unwrap_or(u8::MAX);
    let flid = FlidSlCci { increase_trigger, slot, group, sequence };
    Cci::try_from(flid).unwrap_or(Cci::ZERO)
}

impl SenderControl for Sender {
    fn channels(&self) -> u16 {
        self.config.layers()
    }

    fn levels(&self) -> u16 {
        self.config.layers()
    }

    fn layering(&self) -> Option<&dyn Layering> {
        Some(&self.layers)
    }

    fn next_departure(&self) -> Option<Instant> {
        self.first().map(|(_, at)| self.spacing.due(at))
    }

    fn departure(&self, now: Instant) -> Option<Departure> {
        let (level, at) = self.first()?;
        (self.spacing.due(at) <= now).then(|| Departure {
            channel: ChannelId(level),
            level,
            at,
            cci: cci(level, self.sequences[usize::from(level)], None),
            ecn: Ecn::NotCapable,
        })
    }

    fn departed(&mut self, now: Instant, _bytes: usize) {
        let Some((level, at)) = self.first() else { return };
        self.spacing.sent(now, at, self.rate);
        let index = usize::from(level);
        self.next[index] += 1;
        self.sequences[index] = self.sequences[index].wrapping_add(1);
        self.give_up(now);
    }

    fn feedback(&mut self, _now: Instant, datagram: &Datagram<'_>) {
        if let [a, b, c, layer] = *datagram.payload
            && [a, b, c] == ANNOUNCEMENT
            && u16::from(layer) <= self.config.layers()
        {
            self.announced = Some(self.announced.map_or(layer, |other| other.max(layer)));
        }
    }

    fn poll_transmit(&mut self, _now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let cci = cci(0, 0, Some(self.announced.take()?));
        let bytes = cci.as_bytes();
        buffer[..bytes.len()].copy_from_slice(bytes);
        let destination = Destination::Channel(ChannelId::BASE);
        Some(Transmit { destination, bytes: bytes.len(), ecn: Ecn::NotCapable })
    }

    fn timeout(&mut self, now: Instant) {
        self.give_up(now);
    }
}
