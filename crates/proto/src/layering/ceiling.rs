//! Highest level that a sender of layers sends: what the driver sustains, and what receivers need.
//!
//! A driver that cannot send all levels in time would drop packets of every level alike, and no level would
//! stay complete. Therefore levels above a ceiling are not sent at all, and levels below keep their exact
//! schedule. Packets announce the ceiling to receivers
//! ([`Departure::tells_levels`](crate::control::Departure::tells_levels)). Receivers leave the levels above
//! and do not count the silence as loss.
//!
//! Until the ceiling has fallen, a late driver sends the lowest levels first: a receiver would mistake a
//! backlog for a queue in the network.
//!
//! Levels that are sent only to give starts room fall at once if the sender's own link is full: receivers
//! would start behind its queue. A second measurement of the full link bounds all levels.
//!
//! The ceiling falls if, in two windows in a row, the backlog grows while the driver gives up time; below the
//! highest level any backlog is a reason. A schedule that slips has no backlog: there the time given up
//! decides alone. What the driver sent in the better window is the new bound of the
//! levels' load. If the driver still gives up as much time as before, the machine pauses the driver at any
//! rate, and there is no bound: the highest levels give way without an announcement. The bound rises by a
//! level (`pacing::Retry`) while receivers hold all that is sent and there is no backlog. A bound that
//! receivers did not need for a minute is forgotten: the machine may have been busy with something else.

use headwater_wire::extensions::Levels;
use headwater_wire::rtt;

use super::demand::Demand;
use crate::auth::{DEMAND_LEAD_MAX, START_LEAD_MAX};
use crate::control::{DemandRates, DemandStatus};
use crate::pacing::{BUSY, DriverLoad, OVERLOADED, Overload, Retry};
use crate::time::{Duration, Instant};

/// Backlog above which a driver may be overloaded. A busy host delays a driver by a tenth of a second now
/// and then.
const LATE: Duration = Duration::from_millis(250);
/// Minimum decrease of the backlog in a window to count as shrinking.
const SHRINKS: Duration = Duration::from_millis(20);
/// Slack of a sender to which nobody reports. Below [`BURST`](crate::pacing::BURST), so that no time is given
/// up. Packets tell receivers of M2C their lateness; receivers of other layers measure no delays.
pub const IDLE_SLACK: Duration = Duration::from_millis(8);
/// Longest time between two measurements of a link that stays full, and shortest time between two bounds.
const FULL_TIME: Duration = Duration::from_millis(250);
const BOUND_TIME: Duration = Duration::from_millis(500);
/// A level is kept up to this multiple of the load at which the level is added.
const KEEPS: f64 = 1.02;

/// The sender's own link, while the link is full.
#[derive(Clone, Copy, Debug, Default)]
struct OwnLink {
    /// Packets per second, measured since the last packet.
    measured: Option<f64>,
    /// Time and result of the measurement before.
    before: Option<(Instant, f64)>,
    /// Time until which a bound holds: packets that were planned before fill the link for a while.
    held_until: Instant,
}

impl OwnLink {
    /// Returns what the link carries, by the better of two measurements in a row: a link may pause.
    fn carried(&mut self, now: Instant) -> Option<f64> {
        let rate = self.measured.take()?;
        let (at, before) = self.before.replace((now, rate))?;
        (now < at + FULL_TIME && now >= self.held_until).then_some(rate.max(before))
    }
}

/// Ceiling of a sender's levels, adapted to the rate that the driver sustains and to receivers' demand.
#[derive(Clone, Debug)]
pub struct Ceiling {
    /// Highest level of the session.
    top: u16,
    /// Packets per second that the driver sustains; `None` for all levels.
    driver: Option<f64>,
    /// Highest level that the driver sustains now.
    sustained: u16,
    /// Reports of receivers; without, all levels are needed.
    demand: Option<Demand>,
    /// Highest level that receivers need.
    needed: u16,
    link: OwnLink,
    load: DriverLoad,
    /// Backlog at the previous evaluation.
    backlog: Duration,
    /// Packets per second of the last window, if the driver was overloaded in that window and the ceiling did
    /// not fall.
    overloaded: Option<f64>,
    retry: Retry,
}

impl Ceiling {
    /// Returns the ceiling of a sender that sends all levels, up to `top`.
    pub fn new(top: u16) -> Self {
        Self {
            top,
            driver: None,
            sustained: top,
            demand: None,
            needed: top,
            link: OwnLink::default(),
            load: DriverLoad::default(),
            backlog: Duration::ZERO,
            overloaded: None,
            retry: Retry::default(),
        }
    }

    /// Sends only the levels that receivers report from now on. Levels 0..=n send `rate(n)` packets per
    /// second.
    pub fn follow_demand(&mut self, rates: DemandRates, rate: impl Fn(u16) -> f64) {
        self.needed = (1..=self.top).take_while(|level| rate(*level) <= rates.idle).last().unwrap_or(0);
        self.demand = Some(Demand::new(self.top, self.needed, rates.start));
    }

    /// Records a receiver's report. The ceiling moves with the next packet that departs. Levels 0..=n send at
    /// most `rate(n)` packets per second.
    pub fn report(&mut self, now: Instant, report: rtt::Demand, rate: impl Fn(u16) -> f64) {
        if let Some(demand) = &mut self.demand {
            demand.report(now, report, rate);
        }
    }

    /// Records that the sender's own link is full and carries so many packets per second: the ceiling falls
    /// with the next packet that departs, at first the room for starts only.
    pub fn on_full_link(&mut self, packets_per_second: f64) {
        self.link.measured = Some(packets_per_second);
        if let Some(demand) = &mut self.demand {
            demand.bound_starts(packets_per_second);
        }
    }

    /// Sets whether a receiver may need packets, by the roster: [`Demand::set_packets_needed`].
    pub fn set_packets_needed(&mut self, now: Instant, are_needed: bool) {
        if let Some(demand) = &mut self.demand {
            demand.set_packets_needed(now, are_needed);
        }
    }

    /// Returns the status of the demand, if the sender follows the demand.
    pub fn status(&self) -> Option<DemandStatus> {
        self.demand.as_ref().map(|demand| DemandStatus {
            held: demand.held(),
            ceiling: self.level(),
            has_reports: demand.has_reports(),
            is_limited: demand.is_limited(),
        })
    }

    /// Returns the time by which packets may leave late: [`IDLE_SLACK`] while no receiver reports.
    pub fn slack(&self) -> Duration {
        if self.demand.as_ref().is_some_and(Demand::has_no_receivers) { IDLE_SLACK } else { Duration::ZERO }
    }

    /// Returns how long before their departure packets of a schedule are generated that depends on no
    /// receiver: `schedule` at most, and less if reports are to take effect soon.
    pub(crate) fn lead(&self, schedule: Duration) -> Duration {
        let most = |demand: &Demand| if demand.is_prompt() { START_LEAD_MAX } else { DEMAND_LEAD_MAX };
        self.demand.as_ref().map_or(schedule, |demand| schedule.min(most(demand)))
    }

    /// Highest level that is sent.
    pub fn level(&self) -> u16 {
        self.sustained.min(self.needed)
    }

    /// Returns what the driver sustains, if less than all levels.
    pub fn overload(&self, load: impl Fn(u16) -> f64) -> Option<Overload> {
        let sustained = self.driver?;
        let level = (0..=self.top).take_while(|level| load(*level) <= sustained).last().unwrap_or(0);
        Some(Overload { share: (sustained / load(self.top)).min(1.0), ceiling: Some(level) })
    }

    /// Returns the announcement from the base channel's packet of a number on; `None` if all levels are sent
    /// whatever receivers hold.
    pub fn announced(&self, number: u64) -> Option<Levels> {
        let demand = self.demand.as_ref().map(|demand| demand.echo(number));
        let ceiling = self.level();
        (ceiling < self.top || demand.is_some())
            .then(|| Levels { ceiling: u8::try_from(ceiling).unwrap_or(u8::MAX), demand })
    }

    /// Records a packet that left at `now`, for which the spacing gave up `given_up`, with the driver's
    /// current `backlog`; a schedule that slips has none. Levels 0..=n send at most `rate(n)` packets per
    /// second, and are sent if the driver sustains `load(n)`. Returns the new level if the ceiling moves.
    pub fn departed(
        &mut self,
        now: Instant,
        given_up: Duration,
        backlog: Option<Duration>,
        rate: impl Fn(u16) -> f64,
        load: impl Fn(u16) -> f64,
    ) -> Option<u16> {
        let before = self.level();
        self.follow_link(now, &load);
        self.follow_driver(now, given_up, backlog, &load);
        self.fit(backlog.is_none_or(|backlog| backlog == Duration::ZERO), &load);
        if let Some(demand) = &mut self.demand {
            self.needed = demand.level(now, &rate);
        }
        (self.level() != before).then(|| self.level())
    }

    /// Bounds the levels by the sender's own link. At a full link a driver is late at any rate above, like
    /// one that the machine pauses.
    fn follow_link(&mut self, now: Instant, load: &impl Fn(u16) -> f64) {
        // Of the levels for nobody, no level could be left out.
        let idle = self.demand.as_ref().map_or(0, Demand::idle);
        let Some(link) = self.link.carried(now).filter(|_| self.level() > idle) else { return };
        if load(self.level()) > KEEPS * link {
            self.driver = Some(link);
            self.overloaded = None;
            self.link.held_until = now + BOUND_TIME;
            self.retry.settle(now);
        }
    }

    fn follow_driver(
        &mut self,
        now: Instant,
        given_up: Duration,
        backlog: Option<Duration>,
        load: &impl Fn(u16) -> f64,
    ) {
        let Some(sample) = self.load.record(now, given_up) else { return };
        let (slips, backlog) = (backlog.is_none(), backlog.unwrap_or(Duration::ZERO));
        let before = core::mem::replace(&mut self.backlog, backlog);
        let is_busy = sample.share < BUSY;
        let grows = backlog > LATE && backlog + SHRINKS > before;
        let is_grave = if slips { sample.share < OVERLOADED } else { grows };
        let is_late = (slips || backlog > Duration::ZERO) && self.driver.is_some();
        // Of the levels for nobody, no level could be left out.
        let idle = self.demand.as_ref().map_or(0, Demand::idle);
        let is_overloaded = is_busy && (is_grave || is_late) && self.level() > idle;
        let overloaded = self.overloaded.take().filter(|_| is_overloaded);
        if let Some(rate_before) = overloaded {
            let sustained = sample.rate.max(rate_before);
            let helps = self.load.reduce(sample.share, sustained / load(self.level()));
            self.driver = helps.then_some(sustained);
            self.retry.settle(now);
        } else if is_busy || backlog > Duration::ZERO {
            self.overloaded = is_overloaded.then_some(sample.rate);
            self.retry.wait(now);
        } else if self.driver.is_some() {
            if !self.is_used() {
                self.driver = self.driver.filter(|_| !self.retry.is_calm(now));
            } else if self.retry.is_due(now) {
                // A level more.
                self.load.raise();
                self.driver = (self.sustained + 1 < self.top).then(|| load(self.sustained + 1));
            }
        }
    }

    /// Whether receivers hold all that is sent: otherwise a capacity that is not used is not tried.
    fn is_used(&self) -> bool {
        self.demand.as_ref().is_none_or(|demand| demand.held() >= self.level())
    }

    /// Adapts the highest sustained level to the levels' current loads. Levels are added only if `adds`.
    pub fn fit(&mut self, adds: bool, load: &impl Fn(u16) -> f64) {
        let Some(driver) = self.driver else {
            self.sustained = self.top;
            return;
        };
        while self.sustained > 0 && load(self.sustained) > KEEPS * driver {
            self.sustained -= 1;
        }
        while adds && self.sustained < self.top && load(self.sustained + 1) <= driver {
            self.sustained += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(level: u16) -> f64 {
        100.0 * f64::from(level + 1)
    }

    /// A ceiling and its driver.
    struct Bed {
        ceiling: Ceiling,
        now: Instant,
    }

    impl Bed {
        fn new(ceiling: Ceiling) -> Self {
            let mut bed = Self { ceiling, now: Instant::ZERO + Duration::from_secs(1) };
            bed.ceiling.departed(bed.now, Duration::ZERO, Some(Duration::ZERO), rate, rate);
            bed
        }

        /// Sends levels 0..=1 while nobody reports.
        fn with_demand() -> Self {
            let mut ceiling = Ceiling::new(19);
            ceiling.follow_demand(DemandRates { idle: 200.0, start: 10_000.0 }, rate);
            Self::new(ceiling)
        }

        /// Half a second of so many packets. Of a busy machine, half of the time is given up, and the
        /// backlog is a second.
        fn window(&mut self, packets: u32, is_busy: bool) -> u16 {
            let gap = Duration::from_nanos(500_000_000 / u64::from(packets));
            let (lost, backlog) =
                if is_busy { (2, Duration::from_secs(1)) } else { (u64::MAX, Duration::ZERO) };
            for _ in 0..packets {
                self.now += gap;
                let given_up = Duration::from_nanos(gap.as_nanos() / lost);
                self.ceiling.departed(self.now, given_up, Some(backlog), rate, rate);
            }
            self.ceiling.level()
        }

        fn report(&mut self, level: u8) {
            let report = rtt::Demand { level, is_starting: false, loss: rtt::LossClass::of(0.0) };
            self.ceiling.report(self.now, report, rate);
        }
    }

    #[test]
    fn two_windows_decide_and_the_better_one_says_what_the_driver_sends() {
        let mut bed = Bed::new(Ceiling::new(19));
        assert_eq!(bed.window(500, true), 19, "one window");
        // Level 9 is 1000 packets per second.
        assert_eq!(bed.window(100, true), 9);
        assert_eq!(bed.window(100, true), 9, "the next one is the first of two again");
    }

    #[test]
    fn a_machine_that_was_busy_before_anyone_came_bounds_nobody() {
        let mut bed = Bed::with_demand();
        for _ in 0..4 {
            assert_eq!(bed.window(50, true), 1);
        }
        bed.report(15);
        assert!(bed.window(50, false) > 15);
    }

    #[test]
    fn a_full_link_bounds_the_levels_that_it_does_not_carry() {
        // Of two measurements the better one counts, and a bound holds for half a second. All levels are 2000
        // packets per second.
        for (rates, levels) in [
            ([2_500.0, 2_400.0, 2_300.0], [19, 19, 19]),
            ([300.0, 2_500.0, 300.0], [19, 19, 19]),
            ([1_000.0, 950.0, 500.0], [19, 9, 9]),
        ] {
            let mut bed = Bed::new(Ceiling::new(19));
            bed.window(1_000, false);
            let found = rates.map(|packets_per_second| {
                bed.now += Duration::from_millis(20);
                bed.ceiling.on_full_link(packets_per_second);
                bed.ceiling.departed(bed.now, Duration::ZERO, Some(Duration::ZERO), rate, rate);
                bed.ceiling.level()
            });
            assert_eq!(found, levels, "{rates:?}");
            let bound = bed.ceiling.overload(rate).and_then(|overload| overload.ceiling);
            assert_eq!(bound, (levels[2] < 19).then_some(9), "{rates:?}");
        }
    }

    #[test]
    fn a_bound_that_nobody_needs_is_forgotten() {
        let mut bed = Bed::with_demand();
        bed.report(15);
        bed.window(50, true);
        assert!(bed.window(500, true) > 8 && bed.window(500, true) < 12);
        for half_seconds in 0..200 {
            if half_seconds % 10 == 0 {
                bed.report(4);
            }
            bed.window(300, false);
        }
        assert!(bed.ceiling.overload(rate).is_none());
    }
}
