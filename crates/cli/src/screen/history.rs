//! Rates of a session over time, as a line of small bars.

use std::collections::VecDeque;
use std::time::Duration;

/// Time of a bar on the live line.
const STEP: Duration = Duration::from_millis(500);
/// Bars of the live line, and most bars of a summary.
const RECENT: usize = 24;
const WHOLE_MAX: usize = 32;
/// Bars by height.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// History of a rate in bit/s.
#[derive(Debug, Default)]
pub struct RateHistory {
    /// Time of the next bar.
    due: Duration,
    recent: VecDeque<u64>,
    /// Bars over the whole session, each the mean of `per_bar` steps; the last bar may be of fewer.
    whole: Vec<(u64, u32)>,
    per_bar: u32,
    highest: u64,
}

impl RateHistory {
    /// Records the rate at a time of the session.
    pub fn record(&mut self, elapsed: Duration, rate: u64) {
        self.highest = self.highest.max(rate);
        if elapsed < self.due {
            return;
        }
        self.due = elapsed + STEP;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(rate);
        self.per_bar = self.per_bar.max(1);
        match self.whole.last_mut() {
            Some((sum, steps)) if *steps < self.per_bar => {
                (*sum, *steps) = (sum.saturating_add(rate), *steps + 1);
            }
            _ => self.whole.push((rate, 1)),
        }
        if self.whole.len() > WHOLE_MAX {
            let pairs = self.whole.chunks(2).map(|pair| {
                pair.iter().fold((0_u64, 0), |sum, bar| (sum.0.saturating_add(bar.0), sum.1 + bar.1))
            });
            self.whole = pairs.collect();
            self.per_bar *= 2;
        }
    }

    /// Returns the bars of the last seconds.
    pub fn recent(&self) -> String {
        bars(self.recent.iter().copied())
    }

    /// Returns the bars of the whole session; empty for a short session.
    pub fn whole(&self) -> String {
        if self.whole.len() < 4 {
            return String::new();
        }
        bars(self.whole.iter().map(|(sum, steps)| sum / u64::from((*steps).max(1))))
    }

    /// Returns the highest rate.
    pub fn highest(&self) -> u64 {
        self.highest
    }
}

/// Returns bars from 0 to the highest rate.
fn bars(rates: impl Iterator<Item = u64> + Clone) -> String {
    let highest = rates.clone().max().unwrap_or(0).max(1);
    let bar = |rate: u64| {
        let height = u128::from(rate) * (BARS.len() as u128 - 1) / u128::from(highest);
        BARS[usize::try_from(height).unwrap_or(0)]
    };
    rates.map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_reach_from_nothing_to_the_highest_rate() {
        let mut history = RateHistory::default();
        assert_eq!((history.recent().as_str(), history.whole().as_str()), ("", ""));
        for (second, rate) in [0, 10, 20, 70].into_iter().enumerate() {
            history.record(Duration::from_secs(second as u64), rate);
            history.record(Duration::from_millis(1_000 * second as u64 + 100), 1);
        }
        assert_eq!(history.recent(), "▁▂▃█");
        assert_eq!((history.whole().as_str(), history.highest()), ("▁▂▃█", 70));
    }

    #[test]
    fn a_long_session_has_as_many_bars() {
        let mut history = RateHistory::default();
        for step in 0..100_000_u64 {
            history.record(STEP * u32::try_from(step).unwrap(), if step < 50_000 { u64::MAX } else { 0 });
        }
        assert_eq!(history.recent().chars().count(), RECENT);
        let whole: Vec<_> = history.whole().chars().collect();
        assert!((WHOLE_MAX / 2..=WHOLE_MAX).contains(&whole.len()), "{}", whole.len());
        assert_eq!((whole[0], whole[whole.len() - 1]), ('█', '▁'));
        assert_eq!(bars([0, 0].into_iter()), "▁▁");
    }
}
