//! Figure 2 of the paper in a fluid model: sixteen receivers behind 1 to 6 Mbit/s, five groups. A receiver is
//! congested when its top group's cumulative rate is above what its path takes. What links and queues make of
//! it: `lab/experiments/sim/s1`.

use std::fmt::Write as _;

use crate::sim::collector::Tally;
use crate::sim::rates::Rates;
use crate::sim::selection::{Choice, Selection};
use crate::sim::{STEP, SimConfig};

use super::report;

/// Seconds between requests: two maximum round-trip times of 40 ms.
const INTERVAL: f64 = 0.08;
/// One of these, in tenths of a millisecond.
const RTT_TENTHS: u32 = 400;
/// Mbit/s that paths to receivers 15 to 30 take.
const PATHS: [f64; 16] = [1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 4.0, 6.0, 5.0, 5.0, 6.0, 6.0];

struct Fluid {
    groups: usize,
    rates: Rates,
    receivers: Vec<Receiver>,
    changes: u64,
    efficiency: f64,
    requests: u32,
}

struct Receiver {
    path: f64,
    top: usize,
    selection: Selection,
    /// Receivers start one after the other, so that their intervals differ.
    wait: u16,
}

impl Fluid {
    fn new(groups: u16, paths: &[f64]) -> Self {
        let config = SimConfig::new(groups, 1_000);
        let receiver = |(number, path): (u16, &f64)| Receiver {
            path: 1e6 * path,
            top: 0,
            selection: Selection::new(config.selection, config.decrease),
            wait: number % 10,
        };
        let receivers = (0..).zip(paths).map(receiver).collect();
        let groups = groups.into();
        Self { groups, rates: Rates::new(&config), receivers, changes: 0, efficiency: 0.0, requests: 0 }
    }

    fn request(&mut self) {
        let mut tallies: Vec<Option<Tally>> = vec![None; self.groups];
        let mut received = 0.0;
        for receiver in &mut self.receivers {
            let rate = self.rates.cumulative(receiver.top);
            let is_congested = rate > receiver.path;
            received += rate.min(receiver.path) / receiver.path;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
            let (tenths, rank) = ((rate.min(receiver.path) / 100.0) as u32, receiver.top as u8);
            let tally = Tally::of(&report(0, rank, is_congested, tenths, 0), RTT_TENTHS);
            let of_group = &mut tallies[receiver.top];
            *of_group = Some(of_group.map_or(tally, |before| before.merge(tally)));
            if receiver.wait > 0 {
                receiver.wait -= 1;
                continue;
            }
            let top = match receiver.selection.report(is_congested, Some(rate), STEP * 8_000.0 / INTERVAL) {
                Choice::Join if receiver.top + 1 < self.groups => receiver.top + 1,
                Choice::Leave if receiver.top > 0 => receiver.top - 1,
                _ => continue,
            };
            receiver.top = top;
            receiver.selection.restart();
            self.changes += 1;
        }
        self.efficiency += received / self.receivers.len() as f64;
        self.requests += 1;
        self.rates.request(&tallies, INTERVAL, INTERVAL / 2.0);
    }

    /// Top groups, from 1.
    fn tops(&self) -> Vec<usize> {
        self.receivers.iter().map(|receiver| receiver.top + 1).collect()
    }

    fn line(&self, text: &mut String, second: u32) {
        let rates: Vec<String> =
            (0..5).map(|rank| format!("{:.2}", self.rates.cumulative(rank) / 1e6)).collect();
        let tops: Vec<String> = self.tops().iter().map(usize::to_string).collect();
        let menu = if self.rates.is_menu_active() { " menu" } else { "" };
        writeln!(text, "{second:>3} s  {}  {}{menu}", rates.join(" "), tops.join(" ")).unwrap();
    }
}

/// Rates in Mbit/s and top groups of receivers 15 to 30, from 1, over time.
#[test]
fn groups_find_the_receivers() {
    let mut fluid = Fluid::new(5, &PATHS);
    let mut text = String::new();
    for second in 0..300 {
        if [1, 2, 5, 10, 20, 30, 60, 120, 240].contains(&second) {
            fluid.line(&mut text, second);
        }
        if second == 150 {
            (fluid.efficiency, fluid.requests) = (0.0, 0);
        }
        (0..12 + second % 2).for_each(|_| fluid.request());
    }
    fluid.line(&mut text, 300);
    insta::assert_snapshot!(text);
}

/// The paper's steady state, whatever the phases: subscriptions of its figure 2, rates within 10 % on
/// average, only receiver 25 moves.
#[test]
fn the_steady_state_is_the_papers() {
    let mut fluid = Fluid::new(5, &PATHS);
    (0..1_875).for_each(|_| fluid.request());
    let settled = fluid.changes;
    (fluid.efficiency, fluid.requests) = (0.0, 0);
    let mut sums = [0.0; 5];
    for _ in 0..1_875 {
        fluid.request();
        for (rank, sum) in sums.iter_mut().enumerate() {
            *sum += fluid.rates.cumulative(rank) / 1e6;
        }
        let tops = fluid.tops();
        assert_eq!(tops[..10], [1, 1, 1, 1, 2, 3, 3, 3, 3, 3]);
        assert!([3, 4].contains(&tops[10]), "receiver 25 is between groups");
        assert_eq!(tops[11..], [5, 4, 4, 5, 5]);
    }
    for (sum, published) in sums.iter().zip([1.0, 2.0, 3.0, 5.0, 6.0]) {
        let mean = sum / 1_875.0;
        assert!((0.88..1.1).contains(&(mean / published)), "{mean} for {published} Mbit/s");
    }
    let efficiency = fluid.efficiency / f64::from(fluid.requests);
    assert!(efficiency > 0.92, "{efficiency}");
    assert!(fluid.changes > settled, "receiver 25 goes on moving");
}

/// Three groups behind 6, 4 and 2 Mbit/s, where other flows take most of the 6 at first. Who is behind it
/// then takes the middle group, below those behind 4, and comes past them once it can: by the menu's bound
/// that group is never more than they receive.
#[test]
fn who_was_behind_less_finds_its_place() {
    let paths: Vec<f64> = [6.0; 8].into_iter().chain([4.0; 6]).chain([2.0; 2]).collect();
    let mut fluid = Fluid::new(3, &paths);
    fluid.receivers[..8].iter_mut().for_each(|receiver| receiver.path = 3e6);
    (0..1_250).for_each(|_| fluid.request());
    assert_eq!(fluid.tops(), [[2; 8].as_slice(), &[3; 6], &[1; 2]].concat());
    fluid.receivers[..8].iter_mut().for_each(|receiver| receiver.path = 6e6);
    (0..1_250).for_each(|_| fluid.request());
    assert_eq!(fluid.tops(), [[3; 8].as_slice(), &[2; 6], &[1; 2]].concat());
}
