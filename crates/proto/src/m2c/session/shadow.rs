//! Detects the levels above that the bottleneck already carries for other receivers.
//!
//! A receiver also knows the schedule of levels above its own. If packets of those levels pass the
//! bottleneck, each delays the following packet by its transmission time: from one subscribed packet to the
//! next, the delay grows by a packet's time for each packet that left in between. Therefore the growth of
//! delays is regressed on the number of intermediate packets of the levels up to each level above, minus the
//! number expected from the rate and the time between. The difference is a sum of sawteeth, independent of
//! any load. The slope is the transmission time of a packet on the shared bottleneck if the levels are
//! carried, and zero if no level is carried, whatever other traffic passes. If packets also wait in a private
//! queue of the receiver that is never empty, every trace is lost; if that queue is empty now and then, a
//! part remains.

use crate::layering::{DynamicChannels, Layering, Wave};
use crate::measure::seconds;
use crate::time::Instant;

/// Number of levels above that are searched: with fine levels, down to a tenth of the rate.
pub(super) const DEPTH: usize = 16;
/// Minimum packets of a batch.
const BATCH: f64 = 16.0;
/// Weight factor of older batches when a batch is added.
const KEPT: f64 = 0.8;
/// Minimum slope of each of the last two batches, in units of the mean time between carried packets. A
/// bottleneck half filled by other traffic has 0.5, less losses; a link three times as fast as the levels has
/// 0.33.
const SLOPE: f64 = 0.4;
/// Minimum slope over all batches, in standard errors. Carried levels reach 8 to 70 after half a second, and
/// more as batches add up. Without carried levels, chance reaches 3.3 in a thousand tests beside Poisson
/// arrivals, and 6.5 within minutes beside a TCP or another session, whose packets are correlated. The bound
/// adds half as much again for hours of operation and hundreds of receivers.
const CERTAIN: f64 = 10.0;

/// Weighted sums over pairs of successive subscribed packets; older pairs weigh less. Times are in units of
/// the mean time between subscribed packets.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    /// Time between the two packets, and the growth of the delay.
    gap: f64,
    growth: f64,
    gap_gap: f64,
    gap_growth: f64,
    growth_growth: f64,
    levels: [LevelSums; DEPTH],
}

/// Sums with the excess packets: packets of the levels up to a level that left in between, minus the number
/// expected from the rates.
#[derive(Clone, Copy, Debug, Default)]
struct LevelSums {
    more: f64,
    gap_more: f64,
    more_more: f64,
    more_growth: f64,
}

impl Sums {
    fn add(&mut self, gap: f64, growth: f64, more: &[f64; DEPTH]) {
        self.count += 1.0;
        self.gap += gap;
        self.growth += growth;
        self.gap_gap += gap * gap;
        self.gap_growth += gap * growth;
        self.growth_growth += growth * growth;
        for (level, more) in self.levels.iter_mut().zip(more) {
            level.more += more;
            level.gap_more += gap * more;
            level.more_more += more * more;
            level.more_growth += more * growth;
        }
    }

    /// Adds other sums with `weight`.
    fn join(&mut self, other: &Self, weight: f64) {
        self.count += weight * other.count;
        self.gap += weight * other.gap;
        self.growth += weight * other.growth;
        self.gap_gap += weight * other.gap_gap;
        self.gap_growth += weight * other.gap_growth;
        self.growth_growth += weight * other.growth_growth;
        for (level, other) in self.levels.iter_mut().zip(&other.levels) {
            level.more += weight * other.more;
            level.gap_more += weight * other.gap_more;
            level.more_more += weight * other.more_more;
            level.more_growth += weight * other.more_growth;
        }
    }

    /// Returns the delay growth per excess packet of the levels up to this level, and the standard error:
    /// least squares on the time between and the excess packets. `None` if the regression is singular.
    fn slope(&self, level: usize) -> Option<(f64, f64)> {
        let (n, level) = (self.count, &self.levels[level]);
        if n < BATCH {
            return None;
        }
        let gap_gap = self.gap_gap - self.gap * self.gap / n;
        let gap_more = level.gap_more - self.gap * level.more / n;
        let more_more = level.more_more - level.more * level.more / n;
        let gap_growth = self.gap_growth - self.gap * self.growth / n;
        let more_growth = level.more_growth - level.more * self.growth / n;
        let growth_growth = self.growth_growth - self.growth * self.growth / n;
        let determinant = gap_gap * more_more - gap_more * gap_more;
        if determinant <= 1e-6 * gap_gap * more_more || gap_gap <= 0.0 {
            return None;
        }
        let slope = (gap_gap * more_growth - gap_more * gap_growth) / determinant;
        let by_gap = (more_more * gap_growth - gap_more * more_growth) / determinant;
        let rest = (growth_growth - slope * more_growth - by_gap * gap_growth).max(1e-9 * growth_growth);
        Some((slope, libm::sqrt(rest / (n - 3.0) * gap_gap / determinant)))
    }
}

/// Regression of the delays of subscribed packets on the levels above.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shadow {
    /// Waves above the subscribed waves.
    waves: [Option<Wave>; DEPTH],
    /// Last subscribed packet: departure time, delay in nanoseconds, and each wave's fraction to its next
    /// packet.
    last: Option<(Instant, i64, [f64; DEPTH])>,
    /// Current batch, and its half epoch.
    filling: Sums,
    half: u64,
    /// Previous batch, and the weighted sum of earlier batches.
    batch: Sums,
    older: Sums,
    carried: usize,
}

impl Shadow {
    /// Records a subscribed packet that left at `left`, with a relative delay in nanoseconds. `number` is the
    /// first wave above the subscribed waves, `levels` the number of levels above, and `rate` the subscribed
    /// rate in packets per second.
    pub(super) fn record(
        &mut self,
        channels: &DynamicChannels,
        (number, levels): (u64, u16),
        rate: f64,
        (left, delay): (Instant, i64),
    ) {
        if self.waves[0].is_none_or(|wave| wave.number != number) {
            *self = Self::default();
            for (ahead, wave) in (0..u64::from(levels)).zip(&mut self.waves) {
                *wave = Some(channels.wave(number + ahead));
            }
        }
        let half = channels.half_epoch_at(left);
        if half != self.half {
            self.half = half;
            // The sender spaces packets of all levels, like a link that carries somewhat more than the
            // session.
            self.turn(channels.ratio(), rate / channels.cumulative_rate(channels.levels() - 1, left));
        }
        let mut parts = [0.0; DEPTH];
        for (part, wave) in parts.iter_mut().zip(self.waves.iter().flatten()) {
            *part = channels.wave_part(wave, left);
        }
        let before = self.last.replace((left, delay, parts));
        let Some((earlier, less, before)) = before.filter(|(earlier, ..)| *earlier < left) else { return };
        let mut more = [0.0; DEPTH];
        let mut sum = 0.0;
        for (more, (part, before)) in more.iter_mut().zip(parts.iter().zip(&before)) {
            // The fraction falls with the rate, and jumps by one at each packet.
            sum += part - before;
            *more = sum;
        }
        let gap = left.since(earlier).as_secs_f64() * rate;
        self.filling.add(gap, seconds(delay.saturating_sub(less)) * rate, &more);
    }

    /// Ends half an epoch. A trace in a single batch may be another receiver's trial. A link that could carry
    /// the whole session, with a slope of at most `whole`, is not a bottleneck.
    fn turn(&mut self, ratio: f64, whole: f64) {
        if self.filling.count < BATCH {
            return;
        }
        let mut all = self.filling;
        all.join(&self.batch, 1.0);
        all.join(&self.older, 1.0);
        self.carried = 0;
        let (mut best, mut least) = (CERTAIN, SLOPE);
        for (level, wave) in self.waves.iter().enumerate() {
            least *= ratio;
            let is_seen = |sums: &Sums| sums.slope(level).is_some_and(|(slope, _)| slope >= least.max(whole));
            let certainty = all.slope(level).map_or(0.0, |(slope, error)| slope / error);
            if wave.is_some() && certainty >= best && is_seen(&self.filling) && is_seen(&self.batch) {
                best = certainty;
                self.carried = level + 1;
            }
        }
        let batch = core::mem::replace(&mut self.batch, self.filling);
        let older = core::mem::replace(&mut self.older, batch);
        self.older.join(&older, KEPT);
        self.filling = Sums::default();
    }

    /// Number of levels above that the bottleneck is known to carry.
    pub(super) fn carried(&self) -> usize {
        self.carried
    }

    /// Discards all measurements.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layering::clock::delay;
    use crate::layering::{DynamicConfig, Layering};
    use crate::rate::Rate;
    use crate::rng::{Seed, unit};
    use crate::time::Duration;

    const HELD: u16 = 8;

    /// One queue before a link, and what others send over it.
    struct Link {
        /// Packets per second, and packets that may wait.
        rate: f64,
        waiting: f64,
        free: f64,
    }

    impl Link {
        fn new(rate: f64) -> Self {
            Self { rate, waiting: 25.0, free: 0.0 }
        }

        /// When a packet that comes at `at` has passed, in seconds; `None` where there is no room.
        fn pass(&mut self, at: f64) -> Option<f64> {
            if self.free - at > self.waiting / self.rate {
                return None;
            }
            self.free = self.free.max(at) + 1.0 / self.rate;
            Some(self.free)
        }
    }

    fn channels() -> DynamicChannels {
        let config =
            DynamicConfig::new(1_000, Rate::from_kilobits(8_000)).with_base_rate(Rate::from_kilobits(80));
        DynamicChannels::new(config, Instant::ZERO).unwrap()
    }

    /// Packets of levels 0..=`top` from 20 s on for some seconds, and of others by chance: when each leaves,
    /// and its level.
    fn traffic(
        channels: &DynamicChannels,
        top: u16,
        others: f64,
        seconds: u64,
        seed: u64,
    ) -> Vec<(Instant, Option<u16>)> {
        let mut all = Vec::new();
        for slot in 0..seconds.div_ceil(10) {
            let from = Instant::ZERO + Duration::from_secs(20 + 10 * slot);
            let until = from + Duration::from_secs(10.min(seconds - 10 * slot));
            for level in 0..=top {
                channels.visit(level, from, until, &mut |at, _| all.push((at, Some(level))));
            }
        }
        let mut draws = Seed(seed).stream("others", 0);
        let mut at = 20.0;
        while others > 0.0 && at < 20.0 + seconds as f64 {
            at -= libm::log(1.0 - unit(&mut draws)) / others;
            all.push((Instant::ZERO + Duration::from_secs_f64(at), None));
        }
        all.sort_by_key(|(at, level)| (*at, level.is_none()));
        all
    }

    /// The most and the last that a receiver of [`HELD`] levels finds to be carried, where others hold levels
    /// up to `top`.
    fn found(top: u16, others: f64, links: &mut [Link], seconds: u64, seed: u64) -> (usize, usize) {
        let channels = channels();
        let mut shadow = Shadow::default();
        let (mut most, mut last) = (0, 0);
        for (left, level) in traffic(&channels, top.max(HELD), others, seconds, seed) {
            let is_held = level.is_some_and(|level| level <= HELD);
            // Beyond the first link there is only what is held.
            let left_at = left.since(Instant::ZERO).as_secs_f64();
            let hops = if is_held { links.len() } else { 1 };
            let passed = links.iter_mut().take(hops).try_fold(left_at, |at, link| link.pass(at));
            let Some(passed) = passed.filter(|_| is_held) else { continue };
            let slot = channels.slot_at(left);
            let held = HELD - u16::try_from(slot - 2).unwrap().min(HELD - 1);
            if level.is_some_and(|level| level > held) {
                continue;
            }
            let delay = delay(Instant::ZERO + Duration::from_secs_f64(passed), left);
            let number = channels.wave_at(held + 1, slot).number;
            let rate = channels.cumulative_rate(held, left);
            shadow.record(&channels, (number, channels.levels() - 1 - held), rate, (left, delay));
            last = shadow.carried();
            most = most.max(last);
        }
        (most, last)
    }

    #[test]
    fn what_others_hold_is_found_within_two_seconds() {
        let channels = channels();
        let mut wrong = Vec::new();
        for ahead in [1, 2, 4, 6] {
            let rate = channels.cumulative_rate(HELD + ahead, Instant::ZERO + Duration::from_secs(21));
            // The link just carries it, or loses up to a tenth.
            for room in [1.0, 0.95, 0.9] {
                let (_, last) = found(HELD + ahead, 0.0, &mut [Link::new(rate * room)], 2, 1);
                if !(1..=usize::from(ahead) + 1).contains(&last) {
                    wrong.push((ahead, room, last));
                }
            }
        }
        assert!(wrong.is_empty(), "levels ahead, room, levels found: {wrong:?}");
    }

    #[test]
    fn nothing_is_found_where_no_one_holds_more() {
        let rate = channels().cumulative_rate(HELD, Instant::ZERO + Duration::from_secs(21));
        for seed in 0..20 {
            for (others, room) in [(0.0, 1.1), (0.0, 0.9), (0.5, 1.6), (1.0, 2.0), (1.0, 1.8), (3.0, 3.8)] {
                let (most, _) = found(HELD, others * rate, &mut [Link::new(rate * room)], 10, seed);
                assert_eq!(most, 0, "beside {others} of its rate, {room}, {seed}");
            }
        }
    }

    #[test]
    fn a_queue_of_ones_own_hides_what_passes_before_it() {
        let channels = channels();
        let at = Instant::ZERO + Duration::from_secs(21);
        let (shared, own) = (channels.cumulative_rate(HELD + 4, at), channels.cumulative_rate(HELD, at));
        let links = &mut [Link::new(shared * 1.05), Link::new(own * 0.95)];
        assert_eq!(found(HELD + 4, 0.0, links, 8, 1).0, 0);
    }

    #[test]
    fn the_senders_own_spacing_is_no_bottleneck() {
        let channels = channels();
        let top = channels.levels() - 1;
        let rate = channels.cumulative_rate(top, Instant::ZERO + Duration::from_secs(21));
        assert_eq!(found(top, 0.0, &mut [Link::new(1.25 * rate)], 8, 1).0, 0);
    }

    #[test]
    fn a_wide_link_that_is_shared_is_none() {
        let channels = channels();
        let rate = channels.cumulative_rate(HELD + 1, Instant::ZERO + Duration::from_secs(21));
        assert_eq!(found(HELD + 1, 0.0, &mut [Link::new(rate * 4.0)], 8, 1).0, 0);
    }
}
