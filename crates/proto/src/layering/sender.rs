//! Sending control of M2C and WEBRC: all waves and the base, packet by packet.

use headwater_wire::cci::WebrcCci;
use headwater_wire::{Cci, fdt};

use super::Layering;
use super::ceiling::Ceiling;
use super::channels::{DynamicChannels, Slot, Wave};
use super::spacing::Spacing;
use crate::admission::AdmissionKey;
use crate::auth::lead;
use crate::control::{DemandRates, DemandStatus, Departure, Overload, SenderControl};
use crate::machine::{ChannelId, Datagram, Ecn, Transmit};
use crate::pacing::lateness;
use crate::rtt::Answers;
use crate::time::{Duration, Instant};

/// Multiple of the rate that a driver sustains, up to which a level is added to a schedule that slips. No
/// packet is lost there, and between levels that are 1.155 apart a link would be idle in part. Less than
/// 1 / [`crate::pacing::BUSY`], so that the driver is on time.
const ROOM_TO_SLIP: f64 = 1.06;
/// Modulus of the short CCI's sequence numbers.
const SEQUENCES: u64 = 1 << 16;

/// Sends on [`DynamicChannels`] by their schedule, at most at 1.25 times their total rate. A driver that
/// cannot send all levels in time sends the lowest levels, up to a ceiling. A wave that falls to the ceiling
/// resumes at its current place in the schedule. If packets tell how late they leave, the schedule slips by
/// the time that a late driver gives up, and no packet is skipped.
///
/// A packet carries the slot index, channel number and sequence number of its place in the schedule, even if
/// the packet leaves some packets later. Time per packet: O(levels).
#[derive(Clone, Debug)]
pub struct DynamicSender {
    channels: DynamicChannels,
    slot: Slot,
    base: Base,
    waves: Vec<Active>,
    /// By wave: scheduled time of the wave's next packet. Each packet searches all of these.
    due: Vec<Instant>,
    /// Source of the next packet: an index into `waves`, or the base.
    next: Option<usize>,
    /// Scheduled time of the earliest packet that has not left.
    earliest: Instant,
    ceiling: Ceiling,
    /// Whether the ceiling has moved since the last packet of the base channel, by reports or by the driver:
    /// starts wait for the levels.
    has_news: bool,
    spacing: Spacing,
    /// Lead of the schedule.
    lead: Duration,
    answers: Answers,
    description: Option<fdt::ControlAttributes>,
}

#[derive(Clone, Copy, Debug)]
struct Base {
    number: u64,
    at: Instant,
}

/// A wave that still has packets to send.
#[derive(Clone, Copy, Debug)]
struct Active {
    wave: Wave,
    /// Packets after the next packet.
    left: u64,
}

impl DynamicSender {
    /// Returns a sender whose first slot begins at the start of `channels`.
    pub fn new(channels: DynamicChannels) -> Self {
        let top = channels.levels() - 1;
        let mut sender = Self {
            channels,
            slot: 0,
            base: Base { number: 0, at: channels.base_departure(0) },
            waves: Vec::new(),
            due: Vec::new(),
            next: None,
            earliest: channels.base_departure(0),
            ceiling: Ceiling::new(top),
            has_news: false,
            spacing: Spacing::default(),
            lead: lead(channels.cumulative_rate(top, channels.slot_start(0)), top + 1),
            answers: Answers::default(),
            description: None,
        };
        sender.begin(1, channels.slot_start(0));
        sender.choose();
        sender
    }

    /// Sets the channel description for receivers: [`crate::described::Description::to_fdt`]. Default: none.
    #[must_use]
    pub fn with_description(mut self, description: Option<fdt::ControlAttributes>) -> Self {
        self.description = description;
        self
    }

    /// Returns the channels, with the schedule of future packets.
    pub fn channels(&self) -> &DynamicChannels {
        &self.channels
    }

    /// Adds the waves of levels from `lowest` to the ceiling that are not active, starting with their packets
    /// from an instant on.
    fn begin(&mut self, lowest: u16, from: Instant) {
        let channels = &self.channels;
        for level in lowest.max(1)..=self.ceiling.level() {
            let wave = channels.wave_at(level, self.slot);
            if self.waves.iter().any(|active| active.wave.number == wave.number) {
                continue;
            }
            if let Some(left) = channels.wave_left(&wave, from).checked_sub(1) {
                self.waves.push(Active { wave, left });
                self.due.push(channels.wave_departure(&wave, left));
            }
        }
    }

    /// Adapts to a moved ceiling: removes waves above the ceiling, or adds waves below.
    fn follow_ceiling(&mut self, now: Instant, before: u16) {
        // The earliest packet may belong to the previous slot: a wave that has fallen to the ceiling since
        // then stays. It may also belong to the next slot, whose waves have begun: those stay.
        let slot = self.channels.slot_at(now).max(self.slot);
        let first = slot * self.channels.channels_per_slot();
        let above = first + u64::from(self.ceiling.level());
        self.retain(|wave| wave < above);
        self.begin(before + 1, now);
        self.choose();
    }

    /// Keeps the waves whose number `is_kept`.
    fn retain(&mut self, is_kept: impl Fn(u64) -> bool) {
        let mut waves = self.waves.iter();
        self.due.retain(|_| waves.next().is_some_and(|active| is_kept(active.wave.number)));
        self.waves.retain(|active| is_kept(active.wave.number));
    }

    /// Scheduled time of the earliest packet, which is also the next packet unless the driver is late.
    fn due(&self) -> Instant {
        self.earliest
    }

    /// Scheduled time of the next packet.
    fn at(&self) -> Instant {
        match self.next {
            Some(index) => self.due[index],
            None => self.base.at,
        }
    }

    /// Returns the wave with the earliest packet, the first of several.
    fn earliest_wave(&self) -> Option<usize> {
        let (mut earliest, mut least) = (None, Instant::from_nanos(u64::MAX));
        for (index, at) in self.due.iter().enumerate() {
            if *at < least {
                (earliest, least) = (Some(index), *at);
            }
        }
        earliest
    }

    /// Chooses the next packet. A new wave begins as soon as a packet of its slot could be next.
    fn choose(&mut self) {
        loop {
            self.next = self.earliest_wave().filter(|index| self.due[*index] < self.base.at);
            self.earliest = self.at();
            let slot = self.channels.slot_at(self.earliest);
            if slot <= self.slot {
                return;
            }
            self.slot += 1;
            let channels = self.channels;
            let start = channels.slot_start(self.slot);
            let room = self.room();
            self.ceiling.fit(false, &|level| channels.cumulative_rate(level, start) / room);
            let top = self.ceiling.level();
            let news = u16::try_from(self.channels.channels_per_slot()).unwrap_or(top);
            self.begin((top + 1).saturating_sub(news), self.channels.slot_start(self.slot));
        }
    }

    /// Multiple of the rate that the driver sustains up to which a level is added.
    fn room(&self) -> f64 {
        if self.spacing.slips() { ROOM_TO_SLIP } else { 1.0 }
    }

    /// Removes the next packet from the schedule.
    fn advance(&mut self) {
        match self.next {
            None => {
                self.base.number += 1;
                self.base.at = self.channels.base_departure(self.base.number);
            }
            Some(index) => {
                let active = &mut self.waves[index];
                match active.left.checked_sub(1) {
                    None => {
                        self.waves.swap_remove(index);
                        self.due.swap_remove(index);
                    }
                    Some(left) => {
                        active.left = left;
                        self.due[index] = self.channels.wave_departure(&active.wave, left);
                    }
                }
            }
        }
        self.choose();
    }

    /// If the driver is late, chooses the lowest level among the due packets.
    fn prefer_lowest(&mut self, now: Instant) {
        if self.spacing.backlog(now, self.earliest).is_none_or(|backlog| backlog == Duration::ZERO) {
            return;
        }
        let due = (0..self.due.len()).filter(|index| self.due[*index] <= now);
        let lowest = due.min_by_key(|index| self.waves[*index].wave.number);
        self.next = lowest.filter(|_| self.base.at > now);
    }

    /// Skips packets that are overdue. The cost does not depend on the length of the delay.
    fn give_up(&mut self, now: Instant) {
        let before = Spacing::given_up_before(self.spacing.schedule_time(now));
        if self.due() >= before {
            return;
        }
        let channels = self.channels;
        let begun = self.slot * channels.channels_per_slot() + u64::from(self.ceiling.level());
        self.slot = channels.slot_at(before);
        let (left, due) = (core::mem::take(&mut self.waves), core::mem::take(&mut self.due));
        self.begin(1, before);
        // Lower levels may be ahead of the schedule.
        for (active, at) in self.waves.iter_mut().zip(&mut self.due) {
            let mut known = left.iter().zip(&due);
            let same = known.find(|(other, _)| other.wave.number == active.wave.number);
            if let Some((same, due)) = same.filter(|(same, _)| same.left < active.left) {
                (*active, *at) = (*same, *due);
            }
        }
        // A lower level's wave may have ended before its last packets were due.
        self.retain(|wave| wave >= begun || left.iter().any(|active| active.wave.number == wave));
        let number = channels.base_before(before).max(self.base.number);
        self.base = Base { number, at: channels.base_departure(number) };
        self.choose();
    }

    fn cci(&self) -> Cci {
        let (channel, sequence, at) = match self.next {
            None => {
                // Receivers learn the phase of the slot from the sequence number modulo L.
                let per_slot = self.channels.base_per_slot();
                let modulus = SEQUENCES - SEQUENCES % per_slot;
                (self.channels.dynamic_channels(), self.base.number % modulus, self.base.at)
            }
            Some(index) => {
                let Active { wave, left } = self.waves[index];
                let at = self.due[index];
                (self.channels.channel_number(wave.number), SEQUENCES - 1 - left % SEQUENCES, at)
            }
        };
        let slot = self.channels.slot_index(self.channels.slot_at(at));
        let sequence = u32::try_from(sequence).expect("below 2^16");
        WebrcCci { slot, channel, sequence }.short().expect("channels and slots are below 2^8")
    }
}

impl SenderControl for DynamicSender {
    fn channels(&self) -> u16 {
        self.channels.dynamic_channels() + 1
    }

    fn levels(&self) -> u16 {
        self.channels.levels()
    }

    fn description(&self) -> Option<fdt::ControlAttributes> {
        self.description.clone()
    }

    fn layering(&self) -> Option<&dyn Layering> {
        Some(&self.channels)
    }

    fn lead(&self) -> Duration {
        self.ceiling.lead(self.lead)
    }

    fn overload(&self) -> Option<Overload> {
        let peak = self.channels.slot_start(self.slot);
        self.ceiling.overload(|level| self.channels.cumulative_rate(level, peak) / self.room())
    }

    fn next_departure(&self) -> Option<Instant> {
        Some(self.spacing.due(self.due()))
    }

    fn departure(&self, now: Instant) -> Option<Departure> {
        if self.spacing.due(self.due()) > now {
            return None;
        }
        let at = self.at();
        let (channel, level) = match self.next {
            None => (ChannelId::BASE, 0),
            Some(index) => {
                let wave = self.waves[index].wave.number;
                let first = self.channels.slot_at(at) * self.channels.channels_per_slot();
                let level = u16::try_from(wave + 1 - first).expect("below the number of levels");
                (self.channels.channel_of(wave), level)
            }
        };
        let levels = self.ceiling.announced(self.base.number);
        let lateness = self.spacing.slips().then(|| lateness(now, at));
        Some(Departure {
            channel,
            level,
            at,
            cci: self.cci(),
            ecn: Ecn::NotCapable,
            levels,
            tells_levels: channel == ChannelId::BASE || self.has_news,
            lateness,
        })
    }

    fn departed(&mut self, now: Instant, _bytes: usize) {
        let before = self.ceiling.level();
        let rate = self.channels.cumulative_rate(before, self.due());
        let given_up = self.spacing.sent(now, self.due(), rate);
        self.has_news &= self.next.is_some();
        self.advance();
        self.give_up(now);
        // A slot that began may have lowered the ceiling.
        let before = self.ceiling.level();
        let backlog = self.spacing.backlog(now, self.earliest);
        let time = self.spacing.schedule_time(now);
        // Rates are highest when a slot begins.
        let peak = self.channels.slot_start(self.slot);
        let rate = |level| self.channels.cumulative_rate(level, peak);
        let room = self.room();
        let load = |level| self.channels.cumulative_rate(level, time) / room;
        if self.ceiling.departed(now, given_up, backlog, rate, load).is_some() {
            self.has_news = true;
            self.follow_ceiling(time, before);
        }
        self.prefer_lowest(now);
    }

    fn timeout(&mut self, now: Instant) {
        self.give_up(now);
    }

    fn set_admission_key(&mut self, key: AdmissionKey) {
        self.answers.set_key(key);
    }

    fn follow_demand(&mut self, rates: DemandRates) {
        let (before, at) = (self.ceiling.level(), self.channels.slot_start(self.slot));
        // The start's room is a mean: a level above counts if its rate falls to less within the slot.
        let rates = DemandRates { start: rates.start / self.channels.mean_of_decay(), ..rates };
        self.ceiling.follow_demand(rates, |level| self.channels.cumulative_rate(level, at));
        self.follow_ceiling(at, before);
    }

    fn stamp_departures(&mut self) {
        self.spacing.slip();
    }

    fn demand(&self) -> Option<DemandStatus> {
        self.ceiling.status()
    }

    fn slack(&self) -> Duration {
        self.ceiling.slack()
    }

    fn on_full_link(&mut self, packets_per_second: f64) {
        self.ceiling.on_full_link(packets_per_second);
    }

    fn set_packets_needed(&mut self, now: Instant, are_needed: bool) {
        self.ceiling.set_packets_needed(now, are_needed);
    }

    fn feedback(&mut self, now: Instant, datagram: &Datagram<'_>) {
        let Some(report) = self.answers.asked(now, datagram) else { return };
        let peak = self.channels.slot_start(self.slot);
        self.ceiling.report(now, report, |level| self.channels.cumulative_rate(level, peak));
    }

    fn poll_transmit(&mut self, _now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.answers.poll_transmit(buffer)
    }
}

#[cfg(test)]
mod tests {
    use headwater_wire::rtt;

    use super::*;
    use crate::layering::{DynamicConfig, Shape};
    use crate::rate::Rate;

    fn channels(shape: Shape, per_slot: u16) -> DynamicChannels {
        channels_from(Instant::ZERO, shape, per_slot)
    }

    fn channels_from(start: Instant, shape: Shape, per_slot: u16) -> DynamicChannels {
        let config = DynamicConfig::new(1_000, Rate::from_kilobits(4_000))
            .with_shape(shape)
            .with_channels_per_slot(per_slot)
            .with_quiescent_slots(5);
        DynamicChannels::new(config, start).unwrap()
    }

    /// Departures until `end`, taken when they are due.
    fn departures(channels: DynamicChannels, end: Instant) -> Vec<(Instant, Departure)> {
        let mut sender = DynamicSender::new(channels);
        let mut all = Vec::new();
        while let Some(now) = sender.next_departure().filter(|at| *at < end) {
            let departure = sender.departure(now).expect("due");
            all.push((now, departure));
            sender.departed(now, 1_000);
        }
        all
    }

    #[test]
    fn every_channel_sends_what_the_schedule_counts() {
        for (shape, per_slot) in [(Shape::Geometric, 1), (Shape::Geometric, 2), (Shape::Webrc, 1)] {
            let channels = channels(shape, per_slot);
            let all = departures(channels, Instant::ZERO + Duration::from_secs(45));
            let mut from = Instant::ZERO;
            while from < Instant::ZERO + Duration::from_secs(40) {
                let to = channels.next_boundary(from).unwrap();
                for level in 0..channels.levels() {
                    let sent: Vec<&Departure> = all
                        .iter()
                        .map(|(_, departure)| departure)
                        .filter(|departure| departure.level == level && (from..to).contains(&departure.at))
                        .collect();
                    assert_eq!(sent.len() as u64, channels.packets(level, from, to), "level {level}");
                    let channel = channels.channel(level, from);
                    assert!(sent.iter().all(|departure| departure.channel == channel));
                    let slot = channels.slot_index(channels.slot_at(from));
                    assert!(sent.iter().all(|departure| departure.cci.webrc().unwrap().slot == slot));
                }
                from = to;
            }
        }
    }

    #[test]
    fn sequence_numbers_count_up_to_the_end_of_a_wave() {
        let channels = channels(Shape::Geometric, 1);
        let wave = channels.wave_at(3, 0);
        let all = departures(channels, wave.ends + Duration::from_secs(1));
        let numbers: Vec<u32> = all
            .iter()
            .filter(|(_, departure)| departure.channel == channels.channel_of(wave.number))
            .map(|(_, departure)| departure.cci.webrc().unwrap().sequence)
            .collect();
        assert_eq!(numbers.len() as u64, wave.packets);
        assert_eq!(numbers.last(), Some(&0xFFFF));
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
    }

    #[test]
    fn packets_of_many_waves_do_not_leave_together() {
        let channels = channels(Shape::Geometric, 2);
        let all = departures(channels, Instant::ZERO + Duration::from_secs(30));
        let top = channels.levels() - 1;
        for pair in all.windows(2) {
            let gap = pair[1].0.since(pair[0].0).as_secs_f64();
            let fair = 1.0 / channels.cumulative_rate(top, pair[0].1.at);
            assert!(gap >= 0.79 * fair, "{gap} s where the rate gives {fair} s");
        }
        // What smoothing costs is little: no packet waits for more than one of each wave.
        for (now, departure) in &all {
            let fair = 1.0 / channels.cumulative_rate(top, departure.at);
            assert!(now.since(departure.at).as_secs_f64() <= f64::from(top) * fair);
        }
    }

    #[test]
    fn after_any_sleep_the_schedule_goes_on_as_if_there_had_been_none() {
        for (shape, per_slot) in [(Shape::Geometric, 1), (Shape::Geometric, 2), (Shape::Webrc, 1)] {
            let channels = channels(shape, per_slot);
            for milliseconds in [1_001, 9_999, 12_345, 60_000] {
                let now = Instant::ZERO + Duration::from_millis(milliseconds);
                let mut awake = DynamicSender::new(channels);
                while awake.due() < Spacing::given_up_before(now) {
                    awake.advance();
                }
                let mut asleep = DynamicSender::new(channels);
                asleep.timeout(now);
                for _ in 0..5_000 {
                    assert_eq!((awake.due(), awake.cci()), (asleep.due(), asleep.cci()), "{shape:?}");
                    awake.advance();
                    asleep.advance();
                }
            }
        }
    }

    /// Returns a level up to the ceiling whose wave has packets to send and is not sent.
    fn missing(sender: &DynamicSender) -> Option<u16> {
        (1..=sender.ceiling.level()).find(|level| {
            let wave = sender.channels.wave_at(*level, sender.slot);
            let is_sent = sender.waves.iter().any(|active| active.wave.number == wave.number);
            !is_sent && sender.channels.wave_left(&wave, sender.earliest) > 0
        })
    }

    #[test]
    fn a_ceiling_that_falls_at_the_end_of_a_slot_keeps_all_levels_below() {
        let end = Instant::ZERO + Duration::from_secs(25);
        let mut falls_early = 0;
        // The second round without a report ends some milliseconds before a slot ends, or after.
        for milliseconds in 0..50 {
            let start = Instant::ZERO + Duration::from_millis(milliseconds);
            let channels = channels_from(start, Shape::Geometric, 1);
            let mut sender = DynamicSender::new(channels);
            sender.follow_demand(DemandRates { idle: 100.0, start: 500.0 });
            let report = rtt::Demand { level: u8::MAX, is_starting: false, loss: rtt::LossClass::default() };
            sender.ceiling.report(start, report, |level| channels.cumulative_rate(level, start));
            let mut falls = 0;
            while let Some(now) = sender.next_departure().filter(|at| *at < end) {
                let before = sender.ceiling.level();
                sender.departed(now, 1_000);
                if sender.ceiling.level() < before {
                    falls += 1;
                    falls_early += u32::from(channels.slot_at(now) < sender.slot);
                    assert_eq!(missing(&sender), None, "{milliseconds} ms: at {now:?}");
                }
            }
            assert_eq!((falls, missing(&sender)), (1, None), "{milliseconds} ms");
        }
        assert!(falls_early > 0, "no fall came after the waves of the next slot had begun");
    }

    #[test]
    fn all_packets_tell_of_a_ceiling_that_moved_until_the_base_does() {
        let channels = channels(Shape::Geometric, 1);
        let mut sender = DynamicSender::new(channels);
        sender.follow_demand(DemandRates { idle: 100.0, start: 500.0 });
        let (mut told, mut ceiling, mut falls) = (0, sender.ceiling.level(), 0);
        for packet in 0..2_000 {
            let now = sender.next_departure().expect("a packet");
            let departure = sender.departure(now).expect("due");
            let is_base = departure.channel == ChannelId::BASE;
            let levels = departure.levels.filter(|_| departure.tells_levels);
            assert_eq!(levels.is_some(), is_base || ceiling != sender.ceiling.level(), "{packet}");
            told += u32::from(levels.is_some() && !is_base);
            if is_base {
                let before = core::mem::replace(&mut ceiling, levels.expect("the base tells").ceiling.into());
                falls += u32::from(ceiling < before);
            }
            if packet == 100 {
                let report = rtt::Demand { level: 2, is_starting: true, loss: rtt::LossClass::default() };
                sender.ceiling.report(now, report, |level| channels.cumulative_rate(level, now));
            }
            sender.departed(now, 1_000);
        }
        assert!(told > 0 && falls == 1, "{told} packets, {falls} falls");
    }

    #[test]
    fn a_driver_that_was_away_gives_up_what_it_missed() {
        let mut sender = DynamicSender::new(channels(Shape::Geometric, 1));
        let now = Instant::ZERO + Duration::from_secs(25);
        let mut sent = 0;
        while let Some(departure) = sender.departure(now) {
            sent += 1;
            assert!(sent == 1 || departure.at >= Spacing::given_up_before(now));
            sender.departed(now, 1_000);
        }
        // 10 ms of catching up at 1.25 times some 500 packets/s.
        assert!((2..20).contains(&sent), "{sent} packets at once");
    }
}
