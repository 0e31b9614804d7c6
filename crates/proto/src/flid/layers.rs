//! Levels of a FLID session: rates, channels, and triggers.

use super::INDICES;
use super::{FlidConfig, FlidConfigError, FlidKind};
use crate::layering::clock::shifted;
use crate::layering::turns::Schedule;
use crate::layering::{Layering, StaticLayers, Unchanging};
use crate::machine::ChannelId;
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// Trigger frequency: lets a rate rise by `TRIGGERS * (ratio - 1)` packets per second each second, which is
/// 6.
const TRIGGERS: f64 = 20.0;

/// Layers of a FLID session from the session's start on.
///
/// A level sends at a constant rate, whichever channel carries the level. Dynamic channel i (from 1) is at
/// level l in the slots s with `s + l = i modulo T`. T is the smallest power of two with room for all levels
/// and the leave latency, so that the slot modulo 128 in each packet determines the level of a channel.
#[derive(Clone, Debug)]
pub struct Layers {
    levels: StaticLayers,
    slot: Duration,
    start: Instant,
    /// T; 0 with static layers.
    cycle: u64,
}

impl Layers {
    /// Returns the layers of a session whose first slot begins at `start`.
    ///
    /// # Errors
    /// Returns an error if the parameters are inconsistent.
    pub fn new(config: &FlidConfig, start: Instant) -> Result<Self, FlidConfigError> {
        check(config)?;
        let cumulative = cumulative(config);
        let dynamic = cumulative.len() as u64 - 1;
        let quiescent = match config.kind {
            FlidKind::Static => 0,
            FlidKind::Dynamic => config.leave.as_nanos().div_ceil(config.slot.as_nanos()),
        };
        let channels = dynamic.saturating_add(quiescent);
        if channels > INDICES {
            return Err(FlidConfigError::Channels { channels, most: INDICES });
        }
        let cycle = match config.kind {
            FlidKind::Static => 0,
            FlidKind::Dynamic => channels.next_power_of_two(),
        };
        let mut below = 0;
        let rates: Vec<Rate> = cumulative
            .iter()
            .filter_map(|bits| Rate::from_bits(bits - core::mem::replace(&mut below, *bits)))
            .collect();
        let levels = StaticLayers::new(&rates, config.packet_bytes, start);
        Ok(Self { levels, slot: config.slot, start, cycle })
    }

    /// Number of channels of the session, the base included.
    pub fn channels(&self) -> u16 {
        if self.is_dynamic() { narrow(self.cycle) + 1 } else { self.levels.level_count() }
    }

    /// Rate of all levels, in packets per second.
    pub fn rate_max(&self) -> f64 {
        self.levels.rate(self.levels.level_count() - 1)
    }

    /// Rate of levels 0..=`level`, in packets per second.
    pub fn rate(&self, level: u16) -> f64 {
        self.levels.rate(level)
    }

    /// Whether channels fall by a level in each slot.
    pub fn is_dynamic(&self) -> bool {
        self.cycle > 0
    }

    /// Returns the slot that contains an instant; the first slot if the instant is before the session's
    /// start.
    pub fn slot_at(&self, at: Instant) -> u64 {
        at.since(self.start).as_nanos() / self.slot.as_nanos()
    }

    /// Whether a level's packets carry the trigger in a slot. A receiver with this level as its highest may
    /// then rise. A trigger on a level implies a trigger on all lower levels.
    pub fn is_trigger(&self, level: u16, slot: u64) -> bool {
        if level + 1 >= self.levels.level_count() {
            return false;
        }
        // The bits of the slot's number in reverse, as a fraction: any 2^k successive slots include a
        // fraction below 2^-k.
        #[expect(clippy::cast_precision_loss, reason = "the first 53 bits of a fraction")]
        let fraction = slot.reverse_bits() as f64 / 18_446_744_073_709_551_616.0;
        fraction <= TRIGGERS * self.slot.as_secs_f64() / self.rate(level)
    }

    /// TSD.
    pub(super) fn slot(&self) -> Duration {
        self.slot
    }

    /// Returns the channel at a level in a slot.
    pub(super) fn channel_in(&self, level: u16, slot: u64) -> ChannelId {
        match u64::from(level).checked_sub(1) {
            Some(above) if self.is_dynamic() => ChannelId(1 + narrow((slot + above) % self.cycle)),
            _ => ChannelId(level),
        }
    }
}

impl Schedule for Layers {
    fn level_count(&self) -> u16 {
        self.levels.level_count()
    }

    fn nth(&self, level: u16, number: u64) -> Instant {
        self.levels.nth(level, number)
    }

    fn before(&self, level: u16, at: Instant) -> u64 {
        self.levels.before(level, at)
    }

    fn rate_most(&self, level: u16) -> f64 {
        self.rate(level)
    }
}

impl Layering for Layers {
    fn levels(&self) -> u16 {
        self.levels.level_count()
    }

    fn next_boundary(&self, after: Instant) -> Option<Instant> {
        self.is_dynamic().then(|| {
            let slot = if after < self.start { 0 } else { self.slot_at(after) + 1 };
            self.start + self.slot.saturating_mul(slot)
        })
    }

    fn channel(&self, level: u16, at: Instant) -> ChannelId {
        self.channel_in(level, self.slot_at(at))
    }

    fn packets(&self, level: u16, from: Instant, to: Instant) -> u64 {
        self.levels.packets(level, from, to)
    }

    fn departure(&self, level: u16, from: Instant, n: u64) -> Instant {
        self.levels.departure(level, from, n)
    }

    fn cumulative_rate(&self, level: u16, _at: Instant) -> f64 {
        self.rate(level)
    }

    fn cumulative_rate_before(&self, level: u16, _at: Instant) -> f64 {
        self.rate(level)
    }
}

fn check(config: &FlidConfig) -> Result<(), FlidConfigError> {
    if !(1.05..=4.0).contains(&config.ratio) {
        return Err(FlidConfigError::Ratio(config.ratio));
    }
    if config.packet_bytes == 0 {
        return Err(FlidConfigError::PacketBytes);
    }
    if !(Duration::from_millis(50)..=Duration::from_secs(60)).contains(&config.slot) {
        return Err(FlidConfigError::Slot(config.slot));
    }
    let (base, max) = (config.packets(config.base_rate()), config.packets(config.max_rate));
    let least = 1.0 / config.slot.as_secs_f64();
    if base < least {
        return Err(FlidConfigError::BaseRate { base, least });
    }
    if max <= base {
        return Err(FlidConfigError::Rates { base, max });
    }
    Ok(())
}

/// Returns cumulative rates in bit/s: the base rate times powers of the ratio, rising, and finally the
/// maximum.
fn cumulative(config: &FlidConfig) -> Vec<u64> {
    let max = config.max_rate.as_bits();
    #[expect(clippy::cast_precision_loss, reason = "a rate inside an equation")]
    let base = config.base_rate().as_bits() as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    let power = |level: u32| libm::round(base * libm::pow(config.ratio, f64::from(level))) as u64;
    let mut rates: Vec<u64> = (0..).map(power).take_while(|rate| *rate < max).collect();
    rates.push(max);
    rates
}

fn narrow(channel: u64) -> u16 {
    u16::try_from(channel).expect("checked to be at most 128")
}

/// Maximum age of a packet in slots, relative to the newest slot: no packet is delayed for longer than its
/// neighbours.
const LATE: u64 = 2;
/// Successive packets with an implausible slot after which the sender counts as restarted.
const STRANGE: u8 = 8;
/// Maximum lag of a receiver's clock against the sender's: one part in this number.
const DRIFT: u64 = 64;

/// Maps slot indices modulo 128 to slots, and rejects implausible indices.
///
/// Slots are counted from a cycle of indices before the first observed slot; the numbers have no meaning
/// outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots {
    length: Duration,
    /// Start of slot 0, estimated from packets with the least delay: no packet belongs to a slot that has not
    /// begun.
    origin: Instant,
    newest: u64,
    strange: u8,
}

/// Result of looking up a packet's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotMatch {
    /// Slot of the packet: later than the newest slot so far, equal, or slightly older.
    Slot(u64),
    /// No plausible slot at this time.
    Nonsense,
    /// Implausible slots in successive packets: another sender, or a restart of the sender.
    Restart,
}

impl Slots {
    /// Begins with a packet of this index.
    pub(super) fn new(now: Instant, length: Duration, index: u8) -> Self {
        let newest = INDICES + u64::from(index);
        Self { length, origin: shifted(now) - length.saturating_mul(newest), newest, strange: 0 }
    }

    /// The newest slot.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns the slot of a packet. The clock bridges a stall of any length.
    pub(super) fn tell(&mut self, now: Instant, index: u8) -> SlotMatch {
        let (by_clock, slot) = self.nearest(now, index);
        if slot > by_clock + 1 || slot + LATE < self.newest {
            self.strange += 1;
            if self.strange < STRANGE {
                return SlotMatch::Nonsense;
            }
            *self = Self::new(now, self.length, index);
            return SlotMatch::Restart;
        }
        self.strange = 0;
        SlotMatch::Slot(slot)
    }

    /// Returns the slot by the clock, and the slot with this index near that slot.
    fn nearest(&self, now: Instant, index: u8) -> (u64, u64) {
        let by_clock = shifted(now).since(self.origin).as_nanos() / self.length.as_nanos();
        let least = by_clock.saturating_sub(INDICES / 2);
        (by_clock, least + (u64::from(index) + INDICES - least % INDICES) % INDICES)
    }

    /// Whether the newest slot is not long over: otherwise the sender may have restarted.
    pub(super) fn is_current(&self, now: Instant) -> bool {
        self.nearest(now, 0).0 <= self.newest + LATE
    }

    /// Whether a packet with this index that arrived at `now` is of a slot before `since`, or of a slot that
    /// was over for a slot by then.
    pub(super) fn is_before(&self, now: Instant, since: u64, index: u8) -> bool {
        let (by_clock, slot) = self.nearest(now, index);
        slot < since || slot + 1 < by_clock.min(self.newest)
    }

    /// Advances to a later slot.
    pub(super) fn advance(&mut self, now: Instant, slot: u64) {
        self.newest = slot;
        let origin = shifted(now) - self.length.saturating_mul(slot);
        let slack = Duration::from_nanos(self.length.as_nanos() / DRIFT);
        self.origin = origin.min(self.origin + slack);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_millis(500);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn follow(slots: &mut Slots, ms: u64, index: u8) -> Option<u64> {
        match slots.tell(at(ms), index) {
            SlotMatch::Slot(slot) => {
                if slot > slots.newest() {
                    slots.advance(at(ms), slot);
                }
                Some(slot)
            }
            _ => None,
        }
    }

    #[test]
    fn slots_are_followed_around_the_cycle() {
        let mut slots = Slots::new(at(400), LENGTH, 120);
        let first = slots.newest();
        for k in 1..400 {
            let index = u8::try_from((120 + k) % 128).unwrap();
            assert_eq!(follow(&mut slots, 500 * k, index), Some(first + k));
        }
    }

    #[test]
    fn a_stall_is_followed_by_the_clock() {
        for seconds in [3, 20, 40, 64, 65, 600] {
            let mut slots = Slots::new(at(0), LENGTH, 5);
            let first = slots.newest();
            let index = u8::try_from((5 + 2 * seconds) % 128).unwrap();
            assert_eq!(follow(&mut slots, 1_000 * seconds, index), Some(first + 2 * seconds));
        }
    }

    #[test]
    fn packets_that_waited_in_a_queue_are_no_nonsense() {
        let mut slots = Slots::new(at(0), LENGTH, 0);
        let first = slots.newest();
        // Slots 1 to 6 come 5 s late, all at once, and the seventh in time.
        for k in 1..=6 {
            assert_eq!(follow(&mut slots, 5_000 + k, u8::try_from(k).unwrap()), Some(first + k));
        }
        assert_eq!(follow(&mut slots, 5_010, 10), Some(first + 10));
        assert_eq!(follow(&mut slots, 5_020, 8), Some(first + 8), "a little late");
        assert_eq!(follow(&mut slots, 5_030, 7), None, "too late");
    }

    #[test]
    fn slow_and_fast_clocks_are_followed() {
        for percent in [99, 101] {
            let mut slots = Slots::new(at(0), LENGTH, 0);
            for k in 1..2_000_u64 {
                let index = u8::try_from(k % 128).unwrap();
                assert!(follow(&mut slots, 5 * percent * k, index).is_some(), "slot {k} at {percent} %");
            }
        }
    }

    #[test]
    fn a_lie_is_passed_over_and_a_restart_is_believed() {
        let mut slots = Slots::new(at(0), LENGTH, 40);
        for index in [45, 20, 100, 127, 0, 3, 60] {
            assert_eq!(slots.tell(at(10), index), SlotMatch::Nonsense);
        }
        assert_eq!(
            slots.tell(at(11), 40),
            SlotMatch::Slot(128 + 40),
            "one that makes sense begins the count anew"
        );
        for _ in 0..7 {
            assert_eq!(slots.tell(at(12), 0), SlotMatch::Nonsense);
        }
        assert_eq!(slots.tell(at(12), 0), SlotMatch::Restart);
        assert_eq!(slots.tell(at(520), 1), SlotMatch::Slot(128 + 1));
    }
}
