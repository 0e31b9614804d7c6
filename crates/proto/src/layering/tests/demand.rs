//! Tests of the demand for levels.

use super::*;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// Levels whose rates double.
fn rate(level: u16) -> f64 {
    libm::exp2(f64::from(level))
}

const TOP: u16 = 20;

fn demand(idle: u16) -> Demand {
    Demand::new(TOP, idle, rate(16))
}

fn holds(level: u8) -> Report {
    Report { level, is_starting: false, loss: LossClass::default() }
}

fn starts(level: u8) -> Report {
    Report { is_starting: true, ..holds(level) }
}

fn loses(level: u8, part: f64) -> Report {
    Report { loss: LossClass::of(part), ..holds(level) }
}

#[test]
fn a_level_is_sent_while_reported_and_10_to_20_s_more() {
    for reported in [0, 5_000, 9_999] {
        let mut demand = demand(2);
        demand.report(at(reported), holds(7), rate);
        let lasts = (0..400).map(|tenth| reported + 100 * tenth);
        let last = lasts.take_while(|ms| demand.level(at(*ms), rate) == 8).last().unwrap();
        assert!((9_800..=20_000).contains(&(last - reported)), "{last} after {reported}");
        assert_eq!(demand.level(at(last + 200), rate), 2, "the idle level");
    }
}

#[test]
fn levels_stop_at_once_when_no_receiver_needs_packets() {
    let mut demand = demand(2);
    demand.report(at(0), starts(7), rate);
    demand.report(at(1_000), holds(7), rate);
    let round = demand.echo(0).round;
    let level_without_need = |demand: &mut Demand, ms| {
        demand.set_packets_needed(at(ms), false);
        demand.level(at(ms), rate)
    };
    assert_eq!(level_without_need(&mut demand, 4_900), 8, "the roster may not know a receiver that starts");
    assert_eq!(level_without_need(&mut demand, 5_000), 2);
    assert_ne!(demand.echo(0).round, round, "receivers report again");
    // The next receiver.
    demand.report(at(5_100), starts(5), rate);
    demand.report(at(6_000), holds(5), rate);
    assert_eq!(level_without_need(&mut demand, 10_000), 6);
    assert_eq!(level_without_need(&mut demand, 10_200), 2);
}

#[test]
fn a_receiver_missing_from_the_roster_loses_its_levels_once() {
    let mut demand = demand(2);
    demand.report(at(0), holds(7), rate);
    demand.set_packets_needed(at(6_000), false);
    assert_eq!(demand.level(at(6_000), rate), 2);
    demand.report(at(6_300), holds(6), rate);
    for second in 7..600 {
        demand.report(at(1_000 * second), holds(6), rate);
        demand.set_packets_needed(at(1_000 * second), false);
        assert_eq!(demand.level(at(1_000 * second), rate), 7, "{second}");
    }
    // The roster learns of the receiver.
    demand.set_packets_needed(at(600_000), true);
    demand.set_packets_needed(at(601_000), false);
    assert_eq!(demand.level(at(601_000), rate), 2);
}

#[test]
fn rounds_of_reports_hold_a_level_though_each_third_report_is_lost() {
    let mut demand = demand(0);
    for second in (0..300).step_by(5).filter(|second| second % 15 != 5) {
        demand.report(at(second * 1_000), holds(4), rate);
        assert_eq!(demand.level(at(second * 1_000 + 4_999), rate), 5);
    }
}

#[test]
fn a_start_has_room_for_four_steps_until_its_report() {
    let mut demand = demand(1);
    demand.report(at(100), starts(3), rate);
    assert!(!demand.echo(0).is_open, "one receiver");
    assert_eq!(demand.level(at(3_000), rate), 8, "33 times as much is five levels");
    demand.report(at(3_000), starts(4), rate);
    demand.report(at(3_001), starts(2), rate);
    assert_eq!(demand.level(at(3_002), rate), 9, "the highest");
    demand.report(at(3_003), holds(2), rate);
    assert_eq!(demand.level(at(3_003), rate), 9, "the report of another receiver");
    demand.report(at(3_004), loses(4, 0.9), rate);
    assert_eq!(demand.level(at(3_004), rate), 9, "a receiver that loses most packets");
    demand.report(at(3_005), holds(3), rate);
    assert_eq!(demand.level(at(3_005), rate), 5, "the end of the start");
}

#[test]
fn a_start_without_a_last_report_keeps_its_level() {
    let mut demand = demand(1);
    demand.report(at(3_000), starts(4), rate);
    assert_eq!(demand.level(at(5_999), rate), 9);
    assert_eq!(demand.level(at(6_000), rate), 5);
}

#[test]
fn many_starts_have_room_up_to_the_rate_of_starts() {
    let mut demand = demand(1);
    for ms in 0..4 {
        demand.report(at(ms), starts(0), rate);
    }
    assert!(!demand.echo(0).is_open);
    demand.report(at(99), starts(0), rate);
    assert!(demand.echo(0).is_open);
    assert_eq!(demand.level(at(100), rate), 16);
    demand.report(at(200), holds(3), rate);
    assert_eq!(demand.level(at(8_098), rate), 16);
    assert_eq!(demand.level(at(8_100), rate), 4);
    // Once more is known, starts have room for a step above.
    demand.report(at(9_000), holds(17), rate);
    for ms in 0..5 {
        demand.report(at(40_000 + ms), starts(0), rate);
    }
    assert_eq!(demand.level(at(40_100), rate), 18);
}

#[test]
fn levels_of_one_start_rise_and_are_no_crowd() {
    let mut demand = demand(1);
    for step in 0..9_u8 {
        demand.report(at(10 * u64::from(step)), starts(2 * step), rate);
    }
    assert!(!demand.echo(0).is_open);
    // Five more start at the same time.
    for ms in 90..95 {
        demand.report(at(ms), starts(4), rate);
    }
    assert!(demand.echo(0).is_open);
}

#[test]
fn reports_take_effect_soon_while_one_starts() {
    let mut demand = demand(1);
    demand.level(at(0), rate);
    assert!(!demand.is_prompt(), "nobody");
    demand.report(at(10), starts(3), rate);
    for (ms, is_prompt) in [(10, true), (509, true), (510, false)] {
        demand.level(at(ms), rate);
        assert_eq!(demand.is_prompt(), is_prompt, "{ms} ms");
    }
    for ms in 600..605 {
        demand.report(at(ms), starts(0), rate);
    }
    demand.level(at(605), rate);
    assert!(!demand.is_prompt(), "many find room for all steps");
}

#[test]
fn no_step_waits_for_a_report_where_all_levels_are_sent() {
    // A start at 18 has room up to 19, the last level but one.
    for (level, is_prompt) in [(3, true), (17, true), (18, false), (19, false)] {
        let mut demand = demand(1);
        demand.report(at(10), starts(level), rate);
        demand.level(at(10), rate);
        assert_eq!(demand.is_prompt(), is_prompt, "from level {level}");
    }
}

#[test]
fn nobody_gets_more_than_the_session_has() {
    let mut demand = demand(1);
    demand.report(at(0), starts(255), rate);
    demand.report(at(0), holds(254), rate);
    assert_eq!(demand.level(at(1), rate), TOP);
    assert_eq!(u16::from(demand.echo(0).level), TOP);
}

#[test]
fn rounds_are_told_apart_and_never_0() {
    let mut demand = demand(0);
    let mut rounds = Vec::new();
    for second in 0..200 {
        demand.level(at(second * 1_000), rate);
        rounds.push(demand.echo(0).round);
    }
    rounds.dedup();
    assert_eq!(rounds[..4], [1, 2, 3, 4]);
    assert_eq!(rounds[13..17], [14, 15, 1, 2]);
}

/// Highest level after each round of the same reports.
fn rounds(demand: &mut Demand, rounds: u64, reports: &[Report]) -> Vec<u16> {
    let first = demand.round_began.as_nanos() / ROUND.as_nanos();
    let round = |number: u64| {
        for report in reports {
            demand.report(at(10_000 * number), *report, rate);
        }
        demand.level(at(10_000 * (number + 1)), rate)
    };
    (first..first + rounds).map(round).collect()
}

#[test]
fn levels_of_receivers_that_lose_most_are_bounded_after_two_rounds() {
    // 1.1 times 30 % of 2^14 is above 2^12.
    assert_eq!(rounds(&mut demand(1), 2, &[loses(14, 0.9)]), [15, 12]);
    assert_eq!(rounds(&mut demand(1), 2, &[loses(14, 0.6)]), [15, 13]);
    // The best off decides.
    assert_eq!(rounds(&mut demand(1), 4, &[loses(14, 0.9), loses(14, 0.4)]), [15; 4]);
    // One round of losses is chance.
    let mut chance = demand(1);
    rounds(&mut chance, 1, &[loses(14, 0.9)]);
    assert_eq!(rounds(&mut chance, 3, &[holds(14)]), [15; 3]);
}

#[test]
fn a_bound_rises_and_ends() {
    let mut demand = demand(1);
    assert_eq!(rounds(&mut demand, 2, &[loses(14, 0.9)]), [15, 12]);
    // The receivers keep their levels, which are silent above the bound.
    let later = rounds(&mut demand, 12, &[loses(14, 0.0)]);
    assert_eq!(later[..3], [12; 3], "two rounds and a factor of 1.34");
    assert!(later.windows(2).all(|pair| pair[1] >= pair[0]) && later[11] == 15, "{later:?}");
    assert!(demand.is_limited());
    assert!(!rounds(&mut demand, 16, &[]).is_empty() && !demand.is_limited());
}

#[test]
fn other_receivers_keep_their_levels() {
    let mut demand = demand(1);
    let all = rounds(&mut demand, 20, &[loses(18, 0.9), holds(12), loses(6, 0.9)]);
    assert!(all.iter().all(|level| *level >= 13), "{all:?}");
    assert_eq!(all[19], 13);
    // A receiver that joins while the bound lasts is sent what it holds.
    assert_eq!(rounds(&mut demand, 1, &[loses(18, 0.9), holds(13)]), [14]);
    // Both kinds are echoed.
    demand.report(at(210_000), loses(18, 0.9), rate);
    demand.report(at(210_000), loses(12, 0.2), rate);
    let echoes = [0, 1].map(|number| (demand.echo(number).level, demand.echo(number).loss.is_heavy()));
    assert_eq!(echoes, [(12, false), (18, true)]);
}
