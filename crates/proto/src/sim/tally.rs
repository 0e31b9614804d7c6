//! What reports of one group to one request come to.

use headwater_wire::sim::Report;

use super::clock::duration;

/// Merged reports. Merging is associative and commutative, but for which of two equally old echoes is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    /// Receivers that reported, those that are congested, and those there are. Sums saturate.
    pub reports: u32,
    pub congested: u32,
    pub population: u32,
    /// Received rates, hundreds of bit/s.
    pub min_rate: u32,
    pub max_rate: u32,
    /// Of the report that took longest.
    echo: u32,
    hold: u32,
    /// When that one came, by the clock of whoever merges.
    arrived: u32,
}

impl Tally {
    /// One report, which came when the merger's clock showed `arrived`.
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

    /// Both together.
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

    /// From the packet that was echoed to the report's arrival, but for what it was held: comparable among
    /// reports, as clocks differ by a constant.
    pub fn age(&self) -> u32 {
        self.arrived.wrapping_sub(self.echo).wrapping_sub(self.hold)
    }

    /// The longest round-trip time, in seconds, where the merger's clock is that of the echoes.
    pub fn rtt(&self) -> Option<f64> {
        let tenths = u32::try_from(self.age().cast_signed()).ok()?;
        Some(duration(tenths).as_secs_f64())
    }

    /// What to send on when the merger's clock shows `now`: of whose fields the rest is.
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
