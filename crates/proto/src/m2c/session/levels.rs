//! Subscribed levels: which waves, and since when.

use std::collections::VecDeque;

use super::Session;
use crate::layering::clock::Place;
use crate::layering::held::{Held, Joining};
use crate::layering::{DynamicChannels, Layering, Slot};
use crate::machine::ChannelId;
use crate::measure::Holes;
use crate::time::Instant;

/// Subscribed levels.
#[derive(Clone, Debug)]
pub(in crate::m2c) struct Levels {
    /// Highest level that the sender sends.
    pub(super) top: u16,
    /// Whether a report raises the highest level.
    pub(super) is_top_by_demand: bool,
    /// Time of the last change of the highest level.
    pub(super) top_changed: Instant,
    pub(in crate::m2c) slot: Slot,
    /// Subscribed waves, from the lowest level up; the last waves may be silent still.
    pub(super) waves: VecDeque<Held>,
    pub(super) joining: Option<Joining>,
    /// Arrival of the first packet of the last joined channels.
    pub(super) first: Instant,
    /// End of the time in which packets of channels left may take the room of other packets, and the last
    /// such packet.
    pub(super) leaving: Instant,
    pub(super) stray: Instant,
}

impl Levels {
    pub(super) fn new(channels: &DynamicChannels, now: Instant) -> Self {
        Self {
            top: channels.levels() - 1,
            is_top_by_demand: false,
            top_changed: now,
            slot: channels.slot_at(now),
            waves: VecDeque::new(),
            joining: None,
            first: now,
            leaving: Instant::ZERO,
            stray: Instant::ZERO,
        }
    }

    /// n: dynamic levels subscribed, without pending joins.
    pub(super) fn count(&self) -> u16 {
        let held = self.waves.len() - self.joining.map_or(0, |joining| joining.levels);
        u16::try_from(held).unwrap_or(u16::MAX)
    }

    /// Whether channels that were left still arrive, `rtt` seconds being a round trip.
    pub(super) fn is_leaving(&self, now: Instant, rtt: f64) -> bool {
        now < self.leaving && now.since(self.stray).as_secs_f64() < rtt
    }

    /// Dynamic channels subscribed or being joined.
    pub(in crate::m2c) fn channels(&self, channels: &DynamicChannels) -> impl Iterator<Item = ChannelId> {
        self.waves.iter().map(|wave| channels.channel_of(wave.number))
    }

    /// Returns the place of a wave. Subscribed waves have successive numbers.
    fn position(&self, wave: u64) -> Option<usize> {
        let ahead = wave.checked_sub(self.waves.front()?.number)?;
        let index = usize::try_from(ahead).ok()?;
        self.waves.get(index).filter(|held| held.number == wave).map(|_| index)
    }

    /// Begin of the current join: the driver's time, shifted.
    pub(in crate::m2c) fn join_time(&self) -> Option<Instant> {
        self.joining.map(|joining| joining.since)
    }

    /// Timeout of the current join.
    pub(in crate::m2c) fn patience(&self) -> Option<Instant> {
        self.joining.map(|joining| joining.until)
    }

    /// Advances to a new slot, whose lowest channels are silent. Returns the next channel to leave, if any,
    /// and the number of packets lost at its end.
    pub(in crate::m2c) fn quiescent(
        &mut self,
        channels: &DynamicChannels,
        slot: Slot,
    ) -> Option<(ChannelId, u64)> {
        self.slot = self.slot.max(slot);
        let first = self.slot * channels.channels_per_slot();
        if self.waves.front().is_none_or(|wave| wave.number >= first) {
            return None;
        }
        let mut wave = self.waves.pop_front()?;
        let silent = self.waves.len();
        self.keep_joining(|joining| joining.levels.min(silent));
        Some((channels.channel_of(wave.number), wave.holes.close()))
    }

    /// Changes the number of levels of the pending join; without levels the join ends.
    pub(super) fn keep_joining(&mut self, levels: impl FnOnce(Joining) -> usize) {
        let kept = self.joining.map(|joining| Joining { levels: levels(joining), ..joining });
        self.joining = kept.filter(|joining| joining.levels > 0);
    }
}

impl Session {
    /// Returns the loss tracker of a wave, if subscribed.
    pub(in crate::m2c) fn holes(&mut self, now: Instant, place: &Place, wave: u64) -> Option<&mut Holes> {
        self.joined(now, place, wave);
        let index = self.levels.position(wave);
        if index.is_none() && now < self.levels.leaving {
            self.levels.stray = now;
        }
        index.map(|index| &mut self.levels.waves[index].holes)
    }

    /// Ends the join if this is the first packet of the channels being joined; all these channels were
    /// requested together.
    fn joined(&mut self, now: Instant, place: &Place, wave: u64) {
        let Some(joining) = self.levels.joining else { return };
        let pending = self.levels.waves.len() - joining.levels;
        // A stray packet of another wave does not end the join.
        if !self.levels.waves.range(pending..).any(|held| held.number == wave) {
            return;
        }
        let before = self.levels.count();
        self.levels.joining = None;
        self.levels.first = now;
        self.start.joined(now, place.left);
        self.expect_queue(now, place);
        // A channel that was left a moment ago may never have stopped.
        if now >= self.levels.leaving {
            let (_, arrived) = place.real();
            let latency = arrived.since(joining.since).as_secs_f64();
            let rate = self.held_rate(now) - self.rate_of(before, now);
            let queueing = self.path.delay.queueing(place.delay);
            self.path.joins.record(latency, queueing, 1.0 / rate);
        }
    }
}
