//! Maps a packet's CCI to a place in the schedule: the wave of the packet, and the scheduled departure time.

use headwater_wire::cci::WebrcCci;

use super::{DynamicChannels, DynamicConfig, DynamicConfigError, Layering, Slot, Wave};
use crate::time::{Duration, Instant};

/// Modulus of the short CCI's sequence numbers.
const SEQUENCES: u64 = 1 << 16;
/// Offset between the receiver's time and schedule time: a session may have begun long before the receiver's
/// clock.
const AHEAD: Duration = Duration::from_nanos(1 << 60);
/// Maximum time by which a packet can be early: the possible delay of the packet that started the clock. A
/// clock that drifts further is restarted.
const EARLY: Duration = Duration::from_secs(1);
/// Maximum time by which a packet can be late, or half a slot if longer.
const LATE: Duration = Duration::from_secs(5);
/// Time between the departures of two packets of which the earlier one does not arrive after the later one:
/// channels of a session may take paths with different queues.
const REORDERED: Duration = Duration::from_millis(250);
/// Slots before the newest one whose packets are late, not far ahead, in a session with few quiescent slots:
/// at most a quarter of the slots.
const BEHIND: u64 = 2;
/// Silence after which no packet is stale: the sender may have restarted.
const SILENCE: Duration = Duration::from_secs(1);

/// Time from the first packet of a session in which a base packet earlier than [`BEFORE`] shows that the
/// clock started with a delayed packet, or with a replay. A new start of the clock does not lengthen this
/// time, so that nobody starts clocks for ever.
pub(crate) const YOUNG: Duration = Duration::from_secs(1);
/// Time before the schedule, in nanoseconds: more than queues shrink from one base packet to the next.
const BEFORE: i64 = 100_000_000;

/// Sender's schedule on a receiver's clock, from the first packet of the base channel on. Assumes that the
/// first packet had no delay.
///
/// Memory: 100 bytes for each channel of the session.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    pub(crate) channels: DynamicChannels,
    /// Wave used last on each channel: a wave takes several exponentials to compute, and has many packets.
    waves: Box<[Option<Wave>]>,
    /// Latest departure of a packet that has arrived, and time of this arrival.
    newest: (Instant, Instant),
    /// Whether a wave may send more packets in a slot than sequence numbers tell apart.
    wraps_in_slot: bool,
}

/// Place of a packet in the schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) slot: Slot,
    /// `None` on the base channel.
    pub(crate) wave: Option<Wave>,
    /// Sequence number on the packet's channel, modulo 2^16. For the base channel, the number continues where
    /// the sender's sequence number wraps, at a multiple of L.
    pub(crate) sequence: u16,
    /// Scheduled departure time.
    pub(crate) left: Instant,
    /// Time by which the packet left later, as far as known.
    pub(crate) lateness: Duration,
    /// Relative one-way delay in nanoseconds, if known.
    pub(crate) delay: i64,
}

impl Place {
    /// Whether a packet at this place arrived before the time of the place: the clock started with a packet
    /// that was delayed, or with a replay.
    pub(crate) fn is_early(&self) -> bool {
        self.delay < -BEFORE
    }

    /// Returns the place of a packet that left late by `lateness` and arrived at `at`, of schedule time.
    pub(crate) fn arrived(self, at: Instant, lateness: Duration) -> Self {
        Self { lateness, delay: delay(at - lateness, self.left), ..self }
    }

    /// Returns when the packet left and arrived, of schedule time, however late the sender was.
    pub(crate) fn real(&self) -> (Instant, Instant) {
        let departed = self.left + self.lateness;
        let delay = Duration::from_nanos(self.delay.unsigned_abs());
        (departed, if self.delay < 0 { departed - delay } else { departed + delay })
    }
}

/// Converts the driver's time to schedule time.
pub(crate) fn shifted(now: Instant) -> Instant {
    now + AHEAD
}

/// Converts schedule time to the driver's time.
pub(crate) fn unshifted(at: Instant) -> Instant {
    at - AHEAD
}

/// Relative one-way delay in nanoseconds of a packet that left at `left`.
pub(crate) fn delay(now: Instant, left: Instant) -> i64 {
    let signed = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    signed(now.since(left)) - signed(left.since(now))
}

impl Clock {
    /// Starts the clock with a packet of the base channel that arrives at `at`, of schedule time; `None` if
    /// the packet is of another channel, or invalid.
    pub(crate) fn start(
        config: DynamicConfig,
        at: Instant,
        cci: WebrcCci,
    ) -> Result<Option<Self>, DynamicConfigError> {
        let probe = DynamicChannels::new(config, Instant::ZERO)?;
        let slots = probe.slots_per_cycle();
        if cci.channel != probe.dynamic_channels() || u64::from(cci.slot) >= slots {
            return Ok(None);
        }
        let phase = probe.base_phase(u64::from(cci.sequence) % probe.base_per_slot());
        // Starts a full cycle before the first observed slot, so that no lookup refers to a slot before the
        // start.
        let slot_start = probe.slot_start(u64::from(cci.slot) + slots).since(Instant::ZERO);
        let start = (at - phase) - slot_start;
        let channels = DynamicChannels::new(config, start)?;
        let newest = (Instant::ZERO, Instant::ZERO);
        let waves = vec![None; usize::from(channels.dynamic_channels())].into();
        Ok(Some(Self { channels, waves, newest, wraps_in_slot: wraps_in_slot(&channels, slots) }))
    }

    /// Records that a packet that left at `left` has arrived at `now`.
    pub(crate) fn record(&mut self, now: Instant, left: Instant) {
        if left >= self.newest.0 && left <= now + EARLY {
            self.newest = (left, now);
        }
    }

    /// Returns whether a packet that arrived at `now`, while `slot` is the newest observed slot, left long
    /// before a packet that had arrived by then. Of a channel whose join began at `joined` (like `now`, of
    /// the session's time) a packet from before the join is stale if a later packet has arrived: if the
    /// packet were a replay, the gap up to the next packet would count as a loss.
    pub(crate) fn is_stale(&self, now: Instant, slot: Slot, cci: WebrcCci, joined: Option<Instant>) -> bool {
        let (newest, arrived) = self.newest;
        let place = || self.place_of(slot, cci, |channels, number| channels.wave(number));
        let is_old = |place: Place| {
            let is_from_before = joined.is_some_and(|joined| place.left < joined.min(newest));
            place.left + REORDERED < newest || is_from_before
        };
        now < arrived + SILENCE && place().is_some_and(is_old)
    }

    /// Returns whether a packet that arrived at `now` is plausible: at most five seconds (or half a slot, if
    /// longer) after the scheduled departure, and at most a second (or half a slot, if shorter) before.
    pub(crate) fn is_timely(&self, now: Instant, place: &Place) -> bool {
        let half_slot = self.channels.half_slot();
        now.since(place.left) <= half_slot.max(LATE) && place.left.since(now) <= half_slot.min(EARLY)
    }

    /// Returns the place of a packet that arrived while `slot` was the newest observed slot. `None` if the
    /// sender never sends such a packet.
    pub(crate) fn place(&mut self, slot: Slot, cci: WebrcCci) -> Option<Place> {
        let mut waves = core::mem::take(&mut self.waves);
        let place = self.place_of(slot, cci, |channels, number| {
            let kept = &mut waves[usize::from(channels.channel_number(number))];
            let wave = kept.filter(|wave| wave.number == number);
            *kept.insert(wave.unwrap_or_else(|| channels.wave(number)))
        });
        self.waves = waves;
        place
    }

    /// Returns the place of a packet, with a wave from `wave`.
    fn place_of(
        &self,
        slot: Slot,
        cci: WebrcCci,
        wave: impl FnOnce(&DynamicChannels, u64) -> Wave,
    ) -> Option<Place> {
        let channels = &self.channels;
        let slot = self.slot(slot, cci.slot)?;
        let sequence = u16::try_from(cci.sequence).ok()?;
        if cci.channel == channels.dynamic_channels() {
            let packet = u64::from(sequence) % channels.base_per_slot();
            let left = channels.slot_start(slot) + channels.base_phase(packet);
            let number = slot * channels.base_per_slot() + packet;
            let sequence = u16::try_from(number % SEQUENCES).ok()?;
            return Some(Place { slot, wave: None, sequence, left, lateness: Duration::ZERO, delay: 0 });
        }
        let cycle = u64::from(channels.dynamic_channels());
        let first = slot * channels.channels_per_slot();
        let ahead = (u64::from(cci.channel) + cycle - first % cycle) % cycle;
        if u64::from(cci.channel) >= cycle || ahead + 1 >= u64::from(channels.levels()) {
            return None;
        }
        let wave = wave(channels, first + ahead);
        let left = self.left(&wave, slot, sequence)?;
        let left = channels.wave_departure(&wave, left);
        Some(Place { slot, wave: Some(wave), sequence, left, lateness: Duration::ZERO, delay: 0 })
    }

    /// Returns the scheduled departure time of an earlier packet of the same channel, by sequence number.
    pub(crate) fn left_of(&self, place: &Place, sequence: u16) -> Instant {
        let channels = &self.channels;
        let before = u64::from(place.sequence.wrapping_sub(sequence));
        if let Some(wave) = &place.wave {
            let left = self.left(wave, place.slot, place.sequence);
            return left
                .map_or(place.left, |left| channels.wave_departure(wave, (left + before).min(wave.packets)));
        }
        let per_slot = channels.base_per_slot();
        let first = place.slot * per_slot;
        let packet = (u64::from(place.sequence) + SEQUENCES - first % SEQUENCES) % SEQUENCES;
        let number = (first + packet).saturating_sub(before);
        channels.slot_start(number / per_slot) + channels.base_phase(number % per_slot)
    }

    /// Returns the slot with this index nearest to `newest`. RFC 3738's test excludes packets a cycle old.
    fn slot(&self, newest: Slot, index: u16) -> Option<Slot> {
        let slots = self.channels.slots_per_cycle();
        let ahead = (u64::from(index) + slots - newest % slots) % slots;
        // Late packets of the last slots are recognized also where the RFC's bound leaves no slot.
        let behind = (self.channels.quiescent_slots() / 2).max((slots / 4).min(BEHIND) + 1);
        if u64::from(index) >= slots {
            None
        } else if ahead <= slots - behind {
            Some(newest + ahead)
        } else {
            newest.checked_sub(slots - ahead)
        }
    }

    /// Returns the number of packets of the wave that follow: the only number with these low 16 bits that
    /// fits a packet of this slot. If there are several such numbers, the nearest to the newest departure.
    fn left(&self, wave: &Wave, slot: Slot, sequence: u16) -> Option<u64> {
        let low = SEQUENCES - 1 - u64::from(sequence);
        let (begins, half) = (self.channels.slot_start(slot), self.channels.half_slot());
        let about = if self.wraps_in_slot {
            self.newest.0.clamp(begins, begins + half.saturating_mul(2))
        } else {
            begins + half
        };
        let near = self.channels.wave_left_about(wave, about);
        let base = near - near % SEQUENCES + low;
        let candidates = [base.checked_sub(SEQUENCES), Some(base), Some(base + SEQUENCES)];
        let nearest = candidates.into_iter().flatten().min_by_key(|left| left.abs_diff(near))?;
        (nearest < wave.packets).then_some(nearest)
    }
}

/// Returns whether the highest wave sends more packets in a half of a slot than half of the sequence numbers:
/// a wave that is fed sends most in the second half.
fn wraps_in_slot(channels: &DynamicChannels, slot: Slot) -> bool {
    let begins = channels.slot_start(slot);
    let wave = channels.wave_at(channels.levels() - 1, slot);
    let middle = begins + channels.half_slot();
    let left = [begins, middle, channels.slot_start(slot + 1)].map(|at| channels.wave_left(&wave, at));
    left.windows(2).any(|half| half[0] - half[1] > SEQUENCES / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::SenderControl;
    use crate::layering::{DynamicSender, Shape};
    use crate::machine::ChannelId;
    use crate::rate::Rate;

    /// L = 87 packets a slot: the sender's numbers wrap at 65 511, after two hours.
    #[test]
    fn numbers_of_the_base_follow_each_other_where_the_senders_wrap() {
        let config = DynamicConfig::new(1_000, Rate::from_kilobits(400))
            .with_base_rate(Rate::from_kilobits(80))
            .with_shape(Shape::Webrc);
        let mut sender = DynamicSender::new(DynamicChannels::new(config, Instant::ZERO).unwrap());
        let (mut clock, mut slot, mut last, mut wraps) = (None::<Clock>, 0, None::<WebrcCci>, 0);
        let mut expected = None::<u16>;
        while let Some(now) = sender.next_departure().filter(|at| at.as_nanos() < 7_600_000_000_000) {
            let departure = sender.departure(now).unwrap();
            sender.departed(now, 1_000);
            if departure.channel != ChannelId::BASE {
                continue;
            }
            let cci = departure.cci.webrc().unwrap();
            let clock =
                clock.get_or_insert_with(|| Clock::start(config, shifted(now), cci).unwrap().unwrap());
            let place = clock
                .place(if expected.is_none() { clock.channels.slot_at(shifted(now)) } else { slot }, cci);
            let place = place.unwrap();
            slot = place.slot;
            assert!(expected.is_none_or(|expected| expected == place.sequence), "at {now:?}");
            expected = Some(place.sequence.wrapping_add(1));
            wraps += u32::from(last.is_some_and(|last| cci.sequence < last.sequence));
            last = Some(cci);
        }
        assert_eq!(wraps, 1);
    }

    /// Of the base across slots, and of waves.
    #[test]
    fn it_is_known_when_a_packet_left_that_never_came() {
        let config =
            DynamicConfig::fine(1_000, Rate::from_kilobits(400)).with_base_rate(Rate::from_kilobits(80));
        let mut sender = DynamicSender::new(DynamicChannels::new(config, Instant::ZERO).unwrap());
        let (mut clock, mut places) = (None::<Clock>, Vec::<(ChannelId, Place)>::new());
        while let Some(now) = sender.next_departure().filter(|at| at.as_nanos() < 60_000_000_000) {
            let departure = sender.departure(now).unwrap();
            sender.departed(now, 1_000);
            let cci = departure.cci.webrc().unwrap();
            let clock =
                clock.get_or_insert_with(|| Clock::start(config, shifted(now), cci).unwrap().unwrap());
            let newest = clock.channels.slot_at(shifted(now));
            if let Some(place) = clock.place(newest, cci) {
                places.push((departure.channel, place));
            }
        }
        let (clock, mut compared) = (clock.unwrap(), [0, 0]);
        for (i, (channel, place)) in places.iter().enumerate() {
            let same = |other: &&(ChannelId, Place)| {
                other.0 == *channel
                    && other.1.wave.map(|wave| wave.number) == place.wave.map(|wave| wave.number)
            };
            for (_, earlier) in places[..i].iter().rev().take(400).filter(same).take(3) {
                let off = clock.left_of(place, earlier.sequence);
                let off = off.since(earlier.left).max(earlier.left.since(off));
                assert!(off <= Duration::from_micros(1), "{place:?}, {earlier:?}: {off:?}");
                compared[usize::from(place.wave.is_some())] += 1;
            }
        }
        assert!(compared.iter().all(|compared| *compared > 1_000), "{compared:?}");
    }

    #[test]
    fn a_wave_may_send_more_packets_in_a_slot_than_there_are_numbers() {
        let config = |config: DynamicConfig, slot| {
            let config = config.with_base_rate(Rate::from_kilobits(800)).with_quiescent_slots(1);
            config.with_slot(Duration::from_secs(slot))
        };
        // 8000 packets/s in the highest wave in the first half of a slot, 2500 in the second half.
        for (config, slot) in [
            (config(DynamicConfig::new(1_000, Rate::from_kilobits(128_000)).with_ratio(0.5), 24), 24),
            (config(DynamicConfig::fine(1_000, Rate::from_kilobits(192_000)), 30), 30),
        ] {
            let end = Instant::ZERO + Duration::from_secs(slot + 2);
            let mut sender = DynamicSender::new(DynamicChannels::new(config, Instant::ZERO).unwrap());
            let (mut clock, mut slot, mut compared) = (None::<Clock>, 0, 0);
            while let Some(now) = sender.next_departure().filter(|at| *at < end) {
                let cci = sender.departure(now).unwrap().cci.webrc().unwrap();
                sender.departed(now, 1_000);
                if clock.is_none() {
                    clock = Clock::start(config, shifted(now), cci).unwrap();
                    slot = clock.as_ref().map_or(0, |clock| clock.channels.slot_at(shifted(now)));
                }
                let Some(clock) = &mut clock else { continue };
                assert!(clock.wraps_in_slot);
                let place = clock.place(slot, cci).unwrap();
                slot = place.slot;
                let off = place.left.since(shifted(now)).max(shifted(now).since(place.left));
                assert!(off <= Duration::from_millis(1), "at {now:?}: {off:?}");
                clock.record(shifted(now), place.left);
                compared += 1;
            }
            assert!(compared > 200_000);
        }
    }

    /// A packet of the last slot that arrives after the first packet of the next.
    #[test]
    fn late_packets_are_recognized_with_any_number_of_quiescent_slots() {
        for quiescent in [1, 2, 3, 5, 6, 30] {
            let config = DynamicConfig::new(1_000, Rate::from_kilobits(800)).with_quiescent_slots(quiescent);
            let mut sender = DynamicSender::new(DynamicChannels::new(config, Instant::ZERO).unwrap());
            let (mut clock, mut last) = (None::<Clock>, None);
            while let Some(now) = sender.next_departure().filter(|at| at.as_nanos() < 100_000_000_000) {
                let cci = sender.departure(now).unwrap().cci.webrc().unwrap();
                sender.departed(now, 1_000);
                let clock = match &mut clock {
                    Some(clock) => clock,
                    None => clock.insert(Clock::start(config, shifted(now), cci).unwrap().unwrap()),
                };
                // A burst at the end of a slot may leave a little late.
                let newest = clock.channels.slot_at(shifted(now));
                let slot = clock.place(newest, cci).unwrap().slot;
                assert!(slot == newest || slot + 1 == newest, "{slot} for {newest}");
                if let Some((before, cci)) = last.replace((slot, cci)) {
                    let found = clock.place(slot, cci).map(|place| place.slot);
                    assert_eq!(found, Some(before), "{quiescent} quiescent slots");
                }
            }
        }
    }

    /// 25 packets wait three seconds before a link of 100 kbit/s, which is more than half of a short slot.
    #[test]
    fn what_waited_for_seconds_is_timely() {
        for (slot, late) in [(2, 5), (5, 5), (10, 5), (20, 10)] {
            let config =
                DynamicConfig::fine(1_000, Rate::from_kilobits(400)).with_slot(Duration::from_secs(slot));
            let sender = DynamicSender::new(DynamicChannels::new(config, Instant::ZERO).unwrap());
            let now = sender.next_departure().unwrap();
            let cci = sender.departure(now).unwrap().cci.webrc().unwrap();
            let mut clock = Clock::start(config, shifted(now), cci).unwrap().unwrap();
            let newest = clock.channels.slot_at(shifted(now));
            let place = clock.place(newest, cci).unwrap();
            assert!(clock.is_timely(place.left + Duration::from_secs(late), &place), "slots of {slot} s");
            assert!(!clock.is_timely(place.left + Duration::from_millis(1_000 * late + 1), &place));
            assert!(clock.is_timely(place.left - Duration::from_millis(990), &place));
            assert!(!clock.is_timely(place.left - Duration::from_millis(1_001), &place));
        }
    }
}
