//! RLC sender: all layers, with bursts.
//!
//! Layers with bursts and synchronisation points, in closed form.

use headwater_proto::control::{Departure, SenderControl};
use headwater_proto::layering::turns::{Schedule, Turns};
use headwater_proto::layering::{Layering, StaticLayers, Unchanging};
use headwater_proto::machine::{ChannelId, Ecn};
use headwater_proto::rate::Rate;
use headwater_proto::time::{Duration, Instant};
use headwater_wire::cci::RlcCci;

use super::{ConfigError, RlcConfig};

/// Sends on [`Layers`] by schedule. The schedule determines each packet's number, so packets skipped by a
/// late sender look lost. Time per packet: O(layers).
#[derive(Clone, Debug)]
pub struct RlcSender(Turns<Layers>);

impl RlcSender {
    /// Creates a sender that starts with `layers`.
    pub fn new(layers: Layers) -> Self {
        Self(Turns::new(layers))
    }

    /// Returns the layers, for queries of the schedule.
    pub fn layers(&self) -> &Layers {
        self.0.schedule()
    }
}

impl SenderControl for RlcSender {
    fn channels(&self) -> u16 {
        self.levels()
    }

    fn levels(&self) -> u16 {
        self.layers().level_count()
    }

    fn layering(&self) -> Option<&dyn Layering> {
        Some(self.layers())
    }

    fn next_departure(&self) -> Option<Instant> {
        Some(self.0.due())
    }

    fn departure(&self, now: Instant) -> Option<Departure> {
        let (level, number) = (self.0.level(), self.0.number());
        #[expect(clippy::cast_possible_truncation, reason = "numbers wrap, and layers are at most 24")]
        let cci = RlcCci {
            synchronization_point: self.layers().is_point(level, number),
            layer: level as u8,
            sequence: number as u16,
        };
        let (channel, ecn) = (ChannelId(level), Ecn::NotCapable);
        (self.0.due() <= now).then(|| Departure {
            channel,
            level,
            at: self.0.at(),
            cci: cci.into(),
            ecn,
            levels: None,
            tells_levels: false,
            lateness: None,
        })
    }

    fn departed(&mut self, now: Instant, _bytes: usize) {
        self.0.departed(now);
    }

    fn timeout(&mut self, now: Instant) {
        self.0.give_up(now);
    }
}

/// Number of packets that a burst adds.
const BURST_PACKETS: u64 = 8;
/// Divisor of the lowest layer's spacing that gives the maximum duration of a burst.
const BURST_PART: u64 = 4;

/// Layers of an RLC session from its start on. Layer i is channel i.
///
/// A burst is a warp of time: packets planned within b before and b after a multiple of the layer's spacing
/// leave within b before the multiple, at twice the rate. The first packet afterwards is a synchronisation
/// point. If layers below have a burst at the same multiple, all bursts end together, and the burst of a
/// higher layer is no longer than those below. All layers of a receiver therefore double together.
#[derive(Clone, Debug)]
pub struct Layers {
    levels: StaticLayers,
    /// b of each layer; zero for the highest layer.
    bursts: Vec<Duration>,
    spacing: Duration,
    start: Instant,
}

impl Layers {
    /// Creates the layers of a session that starts at `start`.
    ///
    /// # Errors
    /// [`ConfigError`], if the parameters are inconsistent.
    pub fn new(config: &RlcConfig, start: Instant) -> Result<Self, ConfigError> {
        config.check()?;
        let rates = config.rates();
        let longest = Duration::from_nanos(config.spacing.as_nanos() / BURST_PART);
        let burst = |rate: &Rate| rate.time_of(BURST_PACKETS * u64::from(config.packet_bytes)).min(longest);
        let mut bursts: Vec<Duration> = rates.iter().map(burst).collect();
        if let Some(highest) = bursts.last_mut() {
            *highest = Duration::ZERO;
        }
        let levels = StaticLayers::new(&rates, config.packet_bytes, start);
        Ok(Self { levels, bursts, spacing: config.spacing, start })
    }

    /// Whether a packet of a layer is a synchronisation point.
    pub fn is_point(&self, level: u16, number: u64) -> bool {
        let Some((burst, spacing)) = self.burst(level) else { return false };
        let passed = |number: u64| self.planned(level, number).saturating_sub(burst) / spacing;
        let now = passed(number);
        now > 0 && number.checked_sub(1).is_none_or(|before| passed(before) < now)
    }

    /// Whether a packet of a layer belongs to a burst.
    pub fn is_burst(&self, level: u16, number: u64) -> bool {
        self.burst(level).is_some_and(|burst| within(self.planned(level, number), burst).is_some())
    }

    /// Returns the full number of a layer's packet from the lower 16 bits; the packet departs near the base
    /// layer's packet `base`.
    pub(super) fn number(&self, level: u16, sequence: u16, base: u64) -> u64 {
        let expected = self.levels.before(level, self.levels.nth(0, base));
        expected.wrapping_add_signed(near(sequence, expected))
    }

    /// Returns b and the spacing of a layer's points, in nanoseconds; `None` for a layer without bursts.
    fn burst(&self, level: u16) -> Option<(u64, u64)> {
        let burst = self.bursts[usize::from(level)].as_nanos();
        (burst > 0).then(|| (burst, self.spacing.as_nanos().saturating_mul(1 << level)))
    }

    /// Returns the departure time of a packet without bursts, in nanoseconds after the start.
    fn planned(&self, level: u16, number: u64) -> u64 {
        self.levels.nth(level, number).since(self.start).as_nanos()
    }
}

/// Returns the smallest distance from `expected` to a number with the low bits `sequence`.
pub(super) fn near(sequence: u16, expected: u64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "the low 16 bits are what is wanted")]
    let low = expected as u16;
    let distance = i64::from(sequence.wrapping_sub(low).cast_signed());
    if expected.checked_add_signed(distance).is_some() { distance } else { distance + (1 << 16) }
}

/// Returns the start of the burst that a planned time falls into, and the offset of the planned time in the
/// burst. The first burst is at one spacing.
fn within(planned: u64, (burst, spacing): (u64, u64)) -> Option<(u64, u64)> {
    let shifted = planned.saturating_add(burst);
    let into = shifted % spacing;
    (shifted >= spacing && into < 2 * burst).then(|| (planned - into, into))
}

impl Schedule for Layers {
    fn level_count(&self) -> u16 {
        self.levels.level_count()
    }

    fn nth(&self, level: u16, number: u64) -> Instant {
        let planned = self.planned(level, number);
        let inside = self.burst(level).and_then(|burst| within(planned, burst));
        let nanos = inside.map_or(planned, |(from, into)| from + into / 2);
        self.start + Duration::from_nanos(nanos)
    }

    fn before(&self, level: u16, at: Instant) -> u64 {
        let left = at.since(self.start).as_nanos();
        let inside = self.burst(level).and_then(|burst| Some((within(left, burst)?, burst)));
        // Packets departed by a time in a burst were planned for up to twice the offset.
        let planned = inside.map_or(left, |((from, into), (burst, _))| from + (2 * into).min(2 * burst));
        self.levels.before(level, self.start + Duration::from_nanos(planned))
    }

    fn rate_most(&self, level: u16) -> f64 {
        2.0 * self.levels.rate_most(level)
    }
}

impl Unchanging for Layers {
    fn rate(&self, level: u16) -> f64 {
        self.levels.rate(level)
    }
}
