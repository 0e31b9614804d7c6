//! Merged reports on a group for a single request.

use headwater_wire::sim::Report;

use super::clock::duration;

/// Merged reports. Merging is associative and commutative, except for the choice between two equally old
/// echoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    /// Number of receivers that reported, of congested receivers, and of all receivers. Sums saturate.
    pub reports: u32,
    pub congested: u32,
    pub population: u32,
    /// Received rates, hundreds of bit/s.
    pub min_rate: u32,
    pub max_rate: u32,
    /// Echo and hold of the report with the longest round-trip time.
    echo: u32,
    hold: u32,
    /// Arrival of the report with the longest round-trip time, by the merger's clock.
    arrived: u32,
}

impl Tally {
    /// Tallies a single report, which arrived when the merger's clock showed `arrived`.
    pub fn of(report: &Report, arrived: u32) -> Self {
        Self {
            reports: report.reports,
            congested: report.congested,
            population: report.population,
            min_rate: report.min_rate,
            max_rate: report.max_rate,
            echo: report.echo,
            hold: report.hold,
            arrived,
        }
    }

    /// Merges two tallies.
    pub fn merge(self, other: Self) -> Self {
        let is_longer = other.age().wrapping_sub(self.age()).cast_signed() > 0;
        let longest = if is_longer { other } else { self };
        Self {
            reports: self.reports.saturating_add(other.reports),
            congested: self.congested.saturating_add(other.congested),
            population: self.population.saturating_add(other.population),
            min_rate: self.min_rate.min(other.min_rate),
            max_rate: self.max_rate.max(other.max_rate),
            ..longest
        }
    }

    /// Returns the time from the echoed packet to the arrival of the report, less the hold time. Ages of
    /// several reports are comparable, because clocks differ by a constant.
    pub fn age(&self) -> u32 {
        self.arrived.wrapping_sub(self.echo).wrapping_sub(self.hold)
    }

    /// Returns the longest round-trip time, in seconds, if the merger's clock is also the clock of the
    /// echoes.
    pub fn rtt(&self) -> Option<f64> {
        let tenths = u32::try_from(self.age().cast_signed()).ok()?;
        Some(duration(tenths).as_secs_f64())
    }

    /// Returns the report to send when the merger's clock shows `now`. `head` provides the other fields.
    pub fn report(&self, now: u32, head: Report) -> Report {
        Report {
            reports: self.reports,
            congested: self.congested,
            population: self.population,
            min_rate: self.min_rate,
            max_rate: self.max_rate,
            echo: self.echo,
            hold: self.hold.saturating_add(now.wrapping_sub(self.arrived)),
            ..head
        }
    }
}
