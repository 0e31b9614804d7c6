//! Group rates: additive increase and multiplicative decrease of each cumulative rate, once per request.

use super::collector::Tally;
use super::{RTT_KEPT, STEP, SimConfig};
use crate::rate::Rate;

/// Number of requests for which a group without reports keeps its rate.
const SILENT_MAX: u16 = 3;

/// Cumulative rates in bit/s, by rank.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    decrease: f64,
    step: Option<f64>,
    packet_bits: f64,
    initial: f64,
    most: f64,
    hold_off: u16,
    rtt_least: f64,
    menu: Menu,
    groups: Vec<Group>,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    /// C: cumulative rate.
    rate: f64,
    /// Whether the group is the top group of some receiver, or was until recently.
    is_open: bool,
    /// Number of requests for which the rate stays unchanged.
    held: u16,
    /// Number of consecutive requests without reports.
    silent: u16,
    /// Longest round-trip time of the group's receivers, in seconds; 0 while unknown.
    rtt: f64,
}

impl Group {
    const fn new(rate: f64, is_open: bool) -> Self {
        Self { rate, is_open, held: 0, silent: 0, rtt: 0.0 }
    }
}

impl Rates {
    pub fn new(config: &SimConfig) -> Self {
        let [initial, most] =
            [config.initial_rate, config.max_rate.unwrap_or(Rate::from_kilobits(1 << 40))].map(bits);
        let step = config.step.map(bits);
        let group = |rank| Group::new(initial.min(most), rank == 0);
        Self {
            decrease: config.decrease,
            step,
            packet_bits: config.packet_bits(),
            initial,
            most,
            hold_off: config.hold_off,
            rtt_least: config.rtt_least.as_secs_f64(),
            menu: Menu::new(config.groups, config.menu, config.has_menu),
            groups: (0..config.groups).map(group).collect(),
        }
    }

    /// Sets the maximum total rate of all groups, from the next request on.
    pub fn limit(&mut self, most: Rate) {
        self.most = bits(most);
    }

    /// Returns C of a group.
    pub fn cumulative(&self, rank: usize) -> f64 {
        self.groups[rank].rate
    }

    /// Returns the rate of the group's own packets: 0 while the group is closed.
    pub fn own(&self, rank: usize) -> f64 {
        let below = rank.checked_sub(1).map_or(0.0, |below| self.groups[below].rate);
        self.groups[rank].rate - below
    }

    #[cfg(test)]
    pub const fn is_menu_active(&self) -> bool {
        self.menu.is_active()
    }

    /// Whether a group that was reported until recently has no report.
    pub fn misses(&self, tallies: &[Option<Tally>]) -> bool {
        let mut groups = self.groups.iter().zip(tallies);
        groups.any(|(group, tally)| group.is_open && group.silent < SILENT_MAX && tally.is_none())
    }

    /// Ends a request that lasted `interval` seconds, with the reports `tallies`. `rtt_max` is the session's
    /// maximum round-trip time, in seconds.
    pub fn request(&mut self, tallies: &[Option<Tally>], interval: f64, rtt_max: f64) {
        let packet = self.packet_bits / interval;
        let received = self.received(tallies);
        let top = self.groups.len() - 1;
        let is_top_congested = tallies[top].is_some_and(|tally| tally.congested == tally.reports);
        let is_menu_active = self.menu.is_active();
        // A bit for each group.
        let mut fallen = 0;
        for (rank, tally) in tallies.iter().enumerate() {
            match tally {
                None => self.silence(rank),
                Some(tally) => {
                    let is_congested = is_congested(tally, rank, top, is_menu_active);
                    let step = self.step(rank, tally, interval, rtt_max);
                    fallen |= u64::from(self.adjust(rank, is_congested, step)) << rank;
                }
            }
        }
        self.menu.request(received, is_top_congested);
        self.give_way(fallen, packet);
        self.order(packet);
    }

    /// Returns the smallest and the largest reported rate, each limited to the sent rate.
    fn received(&self, tallies: &[Option<Tally>]) -> Option<(f64, f64)> {
        let rates = tallies.iter().zip(&self.groups).filter_map(|(tally, group)| {
            let tally = (*tally)?;
            let believed = |rate: u32| (100.0 * f64::from(rate)).min(group.rate);
            Some((believed(tally.min_rate), believed(tally.max_rate)))
        });
        rates.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    fn silence(&mut self, rank: usize) {
        let initial = self.initial;
        let below = rank.checked_sub(1).map_or(initial, |below| self.groups[below].rate);
        let group = &mut self.groups[rank];
        group.silent = group.silent.saturating_add(1);
        group.held = group.held.saturating_sub(1);
        if group.silent > SILENT_MAX {
            // Silence raises no rate: the bottom group may be below the initial rate.
            *group = Group { silent: group.silent, ..Group::new(below.min(group.rate), rank == 0) };
        }
    }

    /// Returns the additive increase of the group. Requests follow the longest round-trip time in the
    /// session, with all queues on the path. A group with a shorter round-trip time grows by more per
    /// request, beside flows that do not wait for distant receivers.
    fn step(&mut self, rank: usize, tally: &Tally, interval: f64, rtt_max: f64) -> f64 {
        let group = &mut self.groups[rank];
        let kept = RTT_KEPT * group.rtt;
        group.rtt = tally.rtt().unwrap_or(rtt_max).max(kept).clamp(self.rtt_least.min(rtt_max), rtt_max);
        self.step.unwrap_or(STEP * self.packet_bits / interval * rtt_max / group.rtt)
    }

    /// Adjusts a group's rate, and returns whether the rate was decreased.
    fn adjust(&mut self, rank: usize, is_congested: bool, step: f64) -> bool {
        let below = rank.checked_sub(1).map_or(0.0, |below| self.groups[below].rate);
        let (decrease, hold_off, initial) = (self.decrease, self.hold_off, self.initial);
        let group = &mut self.groups[rank];
        group.silent = 0;
        if !group.is_open {
            *group = Group::new(below + initial, true);
        } else if group.held > 0 {
            group.held -= 1;
        } else if is_congested {
            (group.rate, group.held) = (group.rate * decrease, hold_off);
            return true;
        } else {
            group.rate += step;
        }
        false
    }

    /// Decreases a middle group that keeps the group above from falling, by at most a single decrease.
    /// Receivers of the middle group feel no congestion, see a fall, and join the group above. Otherwise a
    /// receiver behind a faster link could stay below a receiver behind a slower link for good. The bottom
    /// group never yields, because the bottom group serves the slowest receivers.
    fn give_way(&mut self, fallen: u64, packet: f64) {
        let (decrease, hold_off) = (self.decrease, self.hold_off);
        for rank in 1..self.groups.len().saturating_sub(1) {
            let above = self.groups[rank + 1].rate;
            let group = &mut self.groups[rank];
            let falls = |rank: usize| fallen >> rank & 1 == 1;
            if falls(rank + 1) && !falls(rank) && group.is_open && group.rate > above - packet {
                (group.rate, group.held) = ((group.rate * decrease).max(above - packet), hold_off);
            }
        }
    }

    /// Makes rates rise with rank, by at least a packet per request where a group is open, because marks need
    /// packets. This minimum overrides the menu's bounds. The menu does not bound the highest group in use:
    /// the menu is made from received rates, which then equal the sent rate, so a bound would freeze the
    /// rate.
    fn order(&mut self, packet: f64) {
        let highest = self.groups.iter().rposition(|group| group.is_open);
        let mut below = 0.0;
        for (rank, group) in self.groups.iter_mut().enumerate() {
            let least = match (rank, group.is_open) {
                (0, _) => packet.min(self.initial),
                (_, true) => below + packet,
                (_, false) => below,
            };
            let most = match group.is_open {
                true if highest == Some(rank) => f64::INFINITY,
                true => self.menu.bound(rank),
                false => below,
            };
            group.rate = group.rate.min(most).max(least).min(self.most);
            below = group.rate;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates inside equations")]
fn bits(rate: Rate) -> f64 {
    rate.as_bits() as f64
}

/// Whether a group counts as congested. The bottom group follows the slowest receiver, and the top group the
/// fastest. A middle group follows the majority while the menu is active, and otherwise the slowest receiver.
fn is_congested(tally: &Tally, rank: usize, top: usize, is_menu_active: bool) -> bool {
    match rank {
        0 => tally.congested > 0,
        _ if rank == top => tally.congested == tally.reports,
        _ if is_menu_active => u64::from(tally.congested) * 2 > u64::from(tally.reports),
        _ => tally.congested > 0,
    }
}

/// Maximum number of past requests that the bounds average over.
const REQUESTS_MAX: usize = 256;

/// Bounds of cumulative rates, recomputed after every `period` requests. The menu activates when the top
/// group is congested, and stays active.
#[derive(Clone, Debug)]
pub(super) struct Menu {
    /// Number of requests between two adaptations.
    period: usize,
    is_allowed: bool,
    is_active: bool,
    since: usize,
    /// Smallest and largest received rate of each of the last `period` requests with reports, in a ring.
    rates: Vec<(f64, f64)>,
    next: usize,
    /// Bounds in bit/s, by rank; infinite for an unbounded group.
    bounds: Vec<f64>,
}

impl Menu {
    pub fn new(groups: u16, period: u16, is_allowed: bool) -> Self {
        Self {
            period: usize::from(period).clamp(1, REQUESTS_MAX),
            is_allowed: is_allowed && groups > 2,
            is_active: false,
            since: 0,
            rates: Vec::new(),
            next: 0,
            bounds: vec![f64::INFINITY; groups.into()],
        }
    }

    pub const fn is_active(&self) -> bool {
        self.is_active
    }

    /// Maximum cumulative rate of a group, in bit/s.
    pub fn bound(&self, rank: usize) -> f64 {
        self.bounds[rank]
    }

    /// Ends a request, given the smallest and the largest reported rate, if any, and whether the top group is
    /// congested.
    pub fn request(&mut self, rates: Option<(f64, f64)>, is_top_congested: bool) {
        if let Some(rates) = rates {
            self.record(rates);
        }
        self.since += 1;
        if !self.is_active && is_top_congested && self.is_allowed {
            self.is_active = true;
            self.adapt();
        } else if self.is_active && self.since >= self.period {
            self.adapt();
        }
    }

    fn record(&mut self, rates: (f64, f64)) {
        if self.rates.len() < self.period {
            self.rates.push(rates);
        } else {
            self.rates[self.next] = rates;
            self.next = (self.next + 1) % self.period;
        }
    }

    /// Splits the range of received rates into as many equal ranges as there are middle groups.
    fn adapt(&mut self) {
        self.since = 0;
        let count = self.rates.len();
        if count == 0 {
            return;
        }
        let mean = |of: fn(&(f64, f64)) -> f64| self.rates.iter().map(of).sum::<f64>() / float(count);
        let (least, most) = (mean(|rates| rates.0), mean(|rates| rates.1));
        let middle = self.bounds.len() - 2;
        for number in 1..=middle {
            self.bounds[number] = least + (most - least) * float(number) / float(middle);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    /// Once the menu is active and the top group has nobody, its bounds follow what receivers get, which is
    /// what is sent.
    #[test]
    fn the_highest_group_in_use_may_always_grow() {
        let mut rates = Rates::new(&SimConfig::new(3, 1_000));
        let tally =
            |rank: u8, is_congested, tenths| Some(Tally::of(&report(0, rank, is_congested, tenths, 0), 500));
        for _ in 0..10 {
            rates.request(&[None, None, tally(2, true, 10_000)], 0.1, 0.05);
        }
        assert!(rates.is_menu_active());
        let mut request = || {
            // What is sent is what they get, at most.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small rates")]
            let sent = (rates.cumulative(1) / 100.0) as u32;
            rates.request(&[tally(0, false, 1_000), tally(1, false, sent), None], 0.1, 0.05);
            rates.cumulative(1)
        };
        (0..60).for_each(|_| _ = request());
        let before = request();
        (0..40).for_each(|_| _ = request());
        assert!(request() > before + 1e6, "a step more per request: {before}");
    }

    /// Requests follow the slowest; who is nearer has a step of its own time: twice as near, twice as much.
    #[test]
    fn a_group_grows_by_its_own_round_trip_time() {
        let tally = |tenths| Some(Tally::of(&report(0, 0, false, 1_000, 0), tenths));
        let grown = |tallies: [Option<Tally>; 2], rank: usize| {
            let mut rates = Rates::new(&SimConfig::new(2, 1_000));
            // Both groups are open, and what is kept of round-trip times is settled.
            (0..8).for_each(|_| rates.request(&tallies, 0.4, 0.2));
            let before = rates.cumulative(rank);
            rates.request(&tallies, 0.4, 0.2);
            rates.cumulative(rank) - before
        };
        let step = 0.4 * 8_000.0 / 0.4;
        let check =
            |ours: f64, expected: f64| assert!((ours - expected).abs() < 1.0, "{ours}, not {expected}");
        check(grown([tally(2_000), tally(1_000)], 0), step);
        check(grown([tally(2_000), tally(1_000)], 1), 2.0 * step);
        check(grown([tally(4_000), tally(20)], 0), step);
        check(grown([tally(2_000), tally(20)], 1), 20.0 * step);
        // An echo of what is to come.
        check(grown([tally(2_000), tally(0_u32.wrapping_sub(5))], 1), step);
    }

    /// Top group congested, all others not: the middle one follows it down, the bottom one does not.
    #[test]
    fn a_middle_group_gives_way_and_the_bottom_one_does_not() {
        let mut rates = Rates::new(&SimConfig::new(3, 1_000).with_menu(false));
        let tally = |rank, is_congested| Some(Tally::of(&report(0, rank, is_congested, 1_000, 0), 500));
        let mut request = |is_congested: [bool; 3]| {
            let tallies = [0, 1, 2].map(|rank| tally(rank, is_congested[usize::from(rank)]));
            rates.request(&tallies, 0.1, 0.05);
            [0, 1, 2].map(|rank| rates.cumulative(rank))
        };
        (0..40).for_each(|_| _ = request([true, false, false]));
        let rates: Vec<[f64; 3]> = (0..12).map(|_| request([false, false, true])).collect();
        let falls =
            |rank: usize| rates.windows(2).filter(|pair| pair[1][rank] < 0.95 * pair[0][rank]).count();
        assert!(falls(2) > 2 && falls(1) > 2, "{rates:?}");
        assert!(rates.windows(2).all(|pair| pair[1][0] >= pair[0][0]), "{rates:?}");
        assert!(rates.iter().all(|rates| rates[0] < rates[1] && rates[1] < rates[2]), "{rates:?}");
    }

    #[test]
    fn figure_2_has_these_bounds() {
        let mut menu = Menu::new(5, 25, true);
        menu.request(Some((1e6, 6e6)), false);
        assert_eq!(menu.bound(1), f64::INFINITY, "not active yet");
        menu.request(Some((1e6, 6e6)), true);
        let bounds: Vec<f64> = (0..5).map(|rank| menu.bound(rank)).collect();
        assert_eq!(&bounds[..1], [f64::INFINITY]);
        assert!((bounds[1] - 8e6 / 3.0).abs() < 1.0 && (bounds[2] - 13e6 / 3.0).abs() < 1.0);
        assert!((bounds[3] - 6e6).abs() < 1.0 && bounds[4].is_infinite());
    }

    #[test]
    fn it_forgets_and_never_ends() {
        let mut menu = Menu::new(3, 4, true);
        menu.request(Some((1.0, 100.0)), true);
        for _ in 0..8 {
            menu.request(Some((1.0, 50.0)), false);
        }
        assert!(menu.is_active());
        assert!((menu.bound(1) - 50.0).abs() < 1e-9, "of the last four requests");
        let mut two = Menu::new(2, 4, true);
        two.request(Some((1.0, 2.0)), true);
        assert!(!two.is_active(), "nothing lies between two groups");
    }
}
