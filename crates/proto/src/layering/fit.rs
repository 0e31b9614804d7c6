//! Fits the channels of a session to a number of multicast groups.
//!
//! A session has a group for the base, a group for each level above, and a group for each quiescent slot. A
//! coarser ratio needs fewer levels. Its slots are longer, so that the same time of silence needs fewer
//! slots, too.

use super::channels::{BASE_PACKETS_MAX, CHANNELS_MAX, DynamicChannels, dynamic_levels, integer};
use super::config::{DynamicConfig, DynamicConfigError};
use crate::time::{Duration, Instant};

/// Factor of the slots of coarser ratios. Rates that fall half as fast need fewer quiescent slots, which
/// leaves groups for finer levels. Receivers follow a path that becomes slower as soon, because an overload
/// makes them leave levels (`docs/design/layering.md`).
const SLOWER: f64 = 2.0;
/// Coarsest ratio of a fit in millionths: a join multiplies the rate by 3.3. Coarser ones are not measured
/// (`docs/design/layering.md`).
const COARSEST: u32 = 300_000;
/// Slots of a fit are multiples of this time.
const SLOT_UNIT: Duration = Duration::from_millis(100);

impl DynamicConfig {
    /// Returns these channels with the finest levels, but no finer than now, that need at most `groups`
    /// groups, the base included. A channel is quiescent for `silence` at least. One channel begins in each
    /// slot. If these channels do not fit as they are, slots are longer, and rates fall half as fast as now.
    ///
    /// # Errors
    /// [`DynamicConfigError::Groups`] with the least number of groups, or another error if the rates make no
    /// channels.
    pub fn fit(self, groups: u16, silence: Duration) -> Result<Self, DynamicConfigError> {
        let dynamic = DynamicChannels::new(self.with_quiescent_slots(0), Instant::ZERO)?.dynamic_channels();
        let own = self.with_quiescent_slots(quiescent_slots(self.slot, silence).unwrap_or(u16::MAX));
        if self.per_slot == 1 && u64::from(dynamic) + u64::from(own.quiescent_slots) < u64::from(groups) {
            return DynamicChannels::new(own, Instant::ZERO).map(|_| own);
        }
        let fits = (2..CHANNELS_MAX).filter_map(|levels| self.with_levels(levels, silence));
        let fits: Vec<_> = fits.filter(|(_, count)| *count <= CHANNELS_MAX).collect();
        let within = fits.iter().rev().find(|(_, count)| *count <= groups.into());
        if let Some((fit, _)) = within {
            return DynamicChannels::new(*fit, Instant::ZERO).map(|_| *fit);
        }
        let least = fits.iter().map(|(_, count)| *count).min().unwrap_or(CHANNELS_MAX + 1);
        Err(DynamicConfigError::Groups { groups, least, silence })
    }

    /// Returns these channels with at most `levels` levels above the base, and the number of groups. `None`
    /// if the ratio would be too coarse.
    fn with_levels(self, levels: u64, silence: Duration) -> Option<(Self, u64)> {
        let factor = self.packets(self.max_rate) / self.packets(self.base_rate());
        let count = |millionths: u32| dynamic_levels(self.shape, factor, f64::from(millionths) / 1e6);
        let finest = u32::try_from(integer(self.ratio * 1e6)).ok()?;
        if !(2..=levels).contains(&count(COARSEST.min(finest))) {
            return None;
        }
        // The largest ratio with so few levels: `low` has few enough, `high` too many.
        let (mut low, mut high) = (COARSEST.min(finest), finest + 1);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if count(middle) <= levels { low = middle } else { high = middle }
        }
        let ratio = f64::from(low) / 1e6;
        let slot = self.slot_of(ratio);
        let quiescent = quiescent_slots(slot, silence)?;
        let fit = self.with_ratio(ratio).with_slot(slot).with_channels_per_slot(1);
        Some((fit.with_quiescent_slots(quiescent), count(low) + u64::from(quiescent) + 1))
    }

    /// Returns the slot in which rates that fall half as fast as now fall to `ratio`; shorter if the base
    /// channel would send more packets in the slot than sequence numbers exist.
    fn slot_of(&self, ratio: f64) -> Duration {
        let sub_slot = self.slot.as_secs_f64() / f64::from(self.per_slot.max(1));
        let seconds = SLOWER * sub_slot * libm::log(ratio) / libm::log(self.ratio);
        #[expect(clippy::cast_precision_loss, reason = "2^16")]
        let most = (BASE_PACKETS_MAX as f64 / self.packets(self.base_rate())).min(3_600.0);
        let unit = SLOT_UNIT.as_secs_f64();
        let units = integer(libm::round(seconds / unit)).min(integer(most / unit));
        SLOT_UNIT.saturating_mul(units).max(Duration::from_secs(1))
    }
}

/// Returns the number of slots in a time of silence, at least one; `None` above 2^16.
fn quiescent_slots(slot: Duration, silence: Duration) -> Option<u16> {
    u16::try_from(silence.as_nanos().div_ceil(slot.as_nanos()).max(1)).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layering::{Layering, Shape};
    use crate::rate::Rate;

    const SILENCE: Duration = Duration::from_secs(300);

    fn fine(base: u64, max: u64) -> DynamicConfig {
        DynamicConfig::fine(1_424, Rate::from_kilobits(max)).with_base_rate(Rate::from_kilobits(base))
    }

    fn webrc(base: u64, max: u64) -> DynamicConfig {
        let config = DynamicConfig::new(1_424, Rate::from_kilobits(max)).with_shape(Shape::Webrc);
        config.with_base_rate(Rate::from_kilobits(base))
    }

    #[test]
    fn room_for_the_default_is_the_default() {
        assert_eq!(fine(120, 100_000).fit(108, SILENCE), Ok(fine(120, 100_000)));
        assert_eq!(fine(120, 100_000).fit(256, SILENCE), Ok(fine(120, 100_000)));
        assert_eq!(webrc(120, 100_000).fit(49, SILENCE), Ok(webrc(120, 100_000)));
        let quick = fine(120, 100_000).fit(256, Duration::from_secs(10)).unwrap();
        assert_eq!(quick, fine(120, 100_000).with_quiescent_slots(2));
        let slower = fine(120, 100_000).fit(107, SILENCE).unwrap();
        let slots = (slower.ratio(), slower.slot(), slower.quiescent_slots());
        assert_eq!(slots, (0.866, Duration::from_secs(10), 30));
    }

    #[test]
    fn too_few_groups_are_refused_with_the_least_number() {
        for config in [fine(120, 100_000), fine(120, 1_000_000), webrc(120, 100_000)] {
            for silence in [10, 60, 300] {
                let silence = Duration::from_secs(silence);
                let Err(DynamicConfigError::Groups { least, .. }) = config.fit(1, silence) else {
                    panic!("one group is too few")
                };
                let least = u16::try_from(least).unwrap();
                assert!(config.fit(least, silence).is_ok(), "{least}");
                assert!(config.fit(least - 1, silence).is_err(), "{least}");
            }
        }
        assert!(matches!(fine(120, 120).fit(64, SILENCE), Err(DynamicConfigError::Rates { .. })));
        let hour = Duration::from_secs(3_600 * 24);
        assert!(matches!(fine(120, 1_000).fit(256, hour), Err(DynamicConfigError::Groups { .. })));
    }

    proptest! {
        #[test]
        fn a_fit_keeps_to_the_number_of_groups(
            is_webrc in prop::bool::ANY, base in 20_u64..5_000, factor in 2_u64..50_000, groups in 4_u16..=300, silence in 1_u64..=600,
        ) {
            let config = if is_webrc { webrc(base, base * factor) } else { fine(base, base * factor) };
            let silence = Duration::from_secs(silence);
            let fit = match config.fit(groups, silence) {
                Ok(fit) => fit,
                Err(DynamicConfigError::Groups { least, .. }) => {
                    prop_assert!(least > groups.into());
                    return Ok(());
                }
                Err(error) => {
                    prop_assert!(DynamicChannels::new(config.with_quiescent_slots(0), Instant::ZERO).is_err(), "{error}");
                    return Ok(());
                }
            };
            let channels = DynamicChannels::new(fit, Instant::ZERO).unwrap();
            prop_assert!(channels.dynamic_channels() < groups);
            prop_assert!(fit.slot().saturating_mul(fit.quiescent_slots().into()) >= silence);
            prop_assert!(fit.ratio() <= config.ratio());
            // Levels are monotone, and reach the maximum.
            for at in [Instant::ZERO, Instant::from_nanos(fit.slot().as_nanos() / 3)] {
                let rates: Vec<_> = (0..channels.levels()).map(|level| channels.cumulative_rate(level, at)).collect();
                prop_assert!(rates.is_sorted() && rates[0] > 0.0, "{rates:?}");
            }
            let top = channels.cumulative_rate(channels.levels() - 1, Instant::ZERO);
            let max = config.packets(config.max_rate());
            let room = if is_webrc { 1.0 / (fit.ratio() * fit.ratio()) } else { 1.0 / fit.ratio() };
            prop_assert!(top * room > 0.999 * max && top < max * room * 1.001, "{top} for {max}");
            // As many groups leave no coarser levels.
            if let Ok(more) = config.fit(groups.saturating_add(20), silence) {
                prop_assert!(more.ratio() >= fit.ratio());
            }
        }
    }
}
