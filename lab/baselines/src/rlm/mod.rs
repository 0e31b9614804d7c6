//! RLM (McCanne, Jacobson, Vetterli 1996): receivers of constant layers learn from failed joins, including
//! joins of other receivers. Baseline.
//!
//! | module | subject |
//! |---|---|
//! | [`RlmSender`] | layers at constant rates; forwards the announcements of receivers |
//! | [`RlmReceiver`] | steady, hysteresis, measure, drop: times to try the next layer, and to drop a layer |
//!
//! Behaviour and constants are those of ns-2's implementation. In ns-2, receivers announce joins on a
//! separate group. Here, groups are source-specific, so receivers announce joins to the sender, which
//! forwards the announcements to all receivers: `lab/baselines/errata.md`. Anybody who can write to the
//! sender can therefore hold receivers back for the longest join timer, like anybody who can write to the
//! group in RLM.

mod receiver;
#[cfg(test)]
mod tests;

use headwater_proto::control::{Departure, SenderControl};
use headwater_proto::layering::turns::{Schedule, Turns};
use headwater_proto::layering::{Layering, StaticLayers, Unchanging};
use headwater_proto::machine::{ChannelId, Datagram, Destination, Ecn, Transmit};
use headwater_proto::rate::Rate;
use headwater_proto::time::{Duration, Instant};
use headwater_wire::Cci;
use headwater_wire::cci::FlidSlCci;
use rand::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

pub use receiver::{RlmReceiver, RlmReceiverCounters, State};

/// Maximum number of layers of a session.
pub const LAYERS_MAX: u16 = 64;

/// Prefix of a receiver's announcement, which the sender forwards to all receivers: the receiver joins a
/// layer, counted from 1.
const ANNOUNCEMENT: [u8; 3] = *b"RLM";

/// Layers of a session: the rate of each layer, bit/s of UDP payload, at most [`LAYERS_MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RlmConfig {
    rates: Vec<Rate>,
    packet_bytes: u16,
}

impl RlmConfig {
    /// Creates layers of these rates with packets of `packet_bytes` of UDP payload; `None` without a layer,
    /// with more than [`LAYERS_MAX`], or for empty packets.
    pub fn new(rates: Vec<Rate>, packet_bytes: u16) -> Option<Self> {
        let is_sound = (1..=usize::from(LAYERS_MAX)).contains(&rates.len()) && packet_bytes > 0;
        is_sound.then_some(Self { rates, packet_bytes })
    }

    /// Number of layers.
    pub fn layers(&self) -> u16 {
        u16::try_from(self.rates.len()).unwrap_or(LAYERS_MAX)
    }
}

/// State increment of SplitMix64 per output.
const SPLIT_MIX_STEP: u64 = 0x9E37_79B9_7F4A_7C15;
/// Length of an announcement to receivers in bytes, as in ns-2.
const ANNOUNCEMENT_BYTES: usize = 180;

/// Sends on all layers by schedule. The congestion control information is FLID-SL's, without slots; an
/// announcement has the trigger set, and the layer in place of the slot.
#[derive(Clone, Debug)]
pub struct RlmSender {
    config: RlmConfig,
    turns: Turns<Spaced>,
    sequences: Vec<u16>,
    /// Highest layer announced and not forwarded yet. Receivers need only the highest layer.
    announced: Option<u8>,
}

impl RlmSender {
    /// Creates a sender that starts at `now`.
    pub fn new(config: RlmConfig, now: Instant) -> Self {
        let turns = Turns::new(Spaced(StaticLayers::new(&config.rates, config.packet_bytes, now)));
        Self { turns, sequences: vec![0; config.rates.len()], announced: None, config }
    }

    /// Returns the rates of the layers.
    pub fn rates(&self) -> &[Rate] {
        &self.config.rates
    }
}

/// Layers with packets delayed by up to half a gap, pseudo-randomly. With evenly spaced layers, the same
/// layer would always lose packets at a full drop-tail queue.
#[derive(Clone, Debug)]
struct Spaced(StaticLayers);

impl Schedule for Spaced {
    fn level_count(&self) -> u16 {
        self.0.level_count()
    }

    fn nth(&self, level: u16, number: u64) -> Instant {
        let [turn, next] = [number, number + 1].map(|number| self.0.nth(level, number));
        let gap = next.since(turn).as_nanos();
        let delay = (u128::from(gap) * u128::from(scatter(level, number))) >> 65;
        turn + Duration::from_nanos(u64::try_from(delay).unwrap_or(0))
    }

    fn before(&self, level: u16, at: Instant) -> u64 {
        let turns = self.0.before(level, at);
        // The last packet may be delayed beyond `at`.
        turns.checked_sub(1).filter(|last| self.nth(level, *last) >= at).unwrap_or(turns)
    }

    fn rate_most(&self, level: u16) -> f64 {
        self.0.rate_most(level)
    }
}

impl Unchanging for Spaced {
    fn rate(&self, level: u16) -> f64 {
        self.0.rate(level)
    }
}

/// Returns the SplitMix64 output of a packet's number. The outputs are the same in every session, and random
/// enough to break phase effects.
fn scatter(level: u16, number: u64) -> u64 {
    let outputs_before = (u64::from(level) << 48) ^ number;
    SplitMix64::seed_from_u64(outputs_before.wrapping_mul(SPLIT_MIX_STEP)).next_u64()
}

/// Returns the congestion control information of a packet, or of an announcement.
fn cci(layer: u16, sequence: u16, announced: Option<u8>) -> Cci {
    let (increase_trigger, slot) = (announced.is_some(), announced.unwrap_or(0) & 0x7F);
    let group = u8::try_from(layer).unwrap_or(u8::MAX);
    let flid = FlidSlCci { increase_trigger, slot, group, sequence };
    Cci::try_from(flid).unwrap_or(Cci::ZERO)
}

impl SenderControl for RlmSender {
    fn channels(&self) -> u16 {
        self.config.layers()
    }

    fn levels(&self) -> u16 {
        self.config.layers()
    }

    fn layering(&self) -> Option<&dyn Layering> {
        Some(self.turns.schedule())
    }

    fn next_departure(&self) -> Option<Instant> {
        Some(self.turns.due())
    }

    fn departure(&self, now: Instant) -> Option<Departure> {
        let level = self.turns.level();
        (self.turns.due() <= now).then(|| Departure {
            channel: ChannelId(level),
            level,
            at: self.turns.at(),
            cci: cci(level, self.sequences[usize::from(level)], None),
            ecn: Ecn::NotCapable,
            levels: None,
            tells_levels: false,
            lateness: None,
        })
    }

    fn departed(&mut self, now: Instant, _bytes: usize) {
        let sequence = &mut self.sequences[usize::from(self.turns.level())];
        *sequence = sequence.wrapping_add(1);
        self.turns.departed(now);
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
        buffer[..ANNOUNCEMENT_BYTES].fill(0);
        buffer[..bytes.len()].copy_from_slice(bytes);
        let destination = Destination::Channel(ChannelId::BASE);
        Some(Transmit { destination, bytes: ANNOUNCEMENT_BYTES, ecn: Ecn::NotCapable })
    }

    fn timeout(&mut self, now: Instant) {
        self.turns.give_up(now);
    }
}
