//! Literal exchanges, worked out by hand from the RFCs: one line per instant (ms), a star on retransmissions.
//!
//! The round trip takes 100 ms and nothing takes time to send, so that every round is one line.

use headwater_netsim::tcp::{AckPolicy, Config, CutFrom, Data, Profile, SackPipe, Variant};
use headwater_proto::{Duration, Instant};

use super::path::{Fate, Path};

const END: Instant = Instant::from_nanos(600_000_000_000);

/// 8 segments at the start, timeout 300 ms after the first round trip (100 + 4 * 50), fractional cuts.
fn config(variant: Variant) -> Config {
    Config {
        variant,
        initial_window: 8,
        maximum_window: 64,
        syn_exchange: false,
        exit_growth: false,
        sack_pipe: SackPipe::Scoreboard,
        ..Profile::Ns2005.config()
    }
}

fn segments(config: &Config, count: u32, lost: &[(u32, u32)]) -> String {
    Path::new(config, Data::Segments(count)).losing(lost).run(END)
}

#[test]
fn one_loss_is_repaired_alike_by_all() {
    // Acks 1 and 2 make cwnd 10 and let 8..=11 out. Duplicates 1 and 2: Limited Transmit of 12, 13. The
    // third: cwnd 5, segment 2 again. Inflated to 5 + 3 + 2 = 10 by the end of the round, and 12 outstanding:
    // silence. In the next round six more duplicates let 14..=17 out, and the ack of 14 ends recovery: cwnd
    // 5, 4 outstanding: 18.
    let expected = "0: 0 1 2 3 4 5 6 7\n100: 8 9 10 11 12 13 2*\n200: 14 15 16 17 18\n300: 19 20 21 22 23\n\
                    400: 24 25 26 27 28 29";
    for variant in [Variant::Reno, Variant::NewReno, Variant::Sack] {
        for sack_pipe in [SackPipe::Scoreboard, SackPipe::Estimate] {
            let config = Config { sack_pipe, ..config(variant) };
            assert_eq!(segments(&config, 30, &[(2, 0)]), expected, "{variant:?}, {sack_pipe:?}");
        }
    }
}

#[test]
fn recovery_may_end_with_growth() {
    // 5 + 1/5 at the end, and 5 acks later 6.1 in place of 5.96: one segment more at 300.
    let grown = Config { exit_growth: true, ..config(Variant::NewReno) };
    let transcript = segments(&grown, 30, &[(2, 0)]);
    assert_eq!(transcript.lines().nth(3).unwrap(), "300: 19 20 21 22 23 24");
}

#[test]
fn reno_needs_a_timeout_for_the_second_loss_of_a_window() {
    // The partial ack of 4 ends recovery with 13 outstanding; the duplicates that 14..=16 cause do not exceed
    // what had been sent at the fast retransmit. Timeout at 200 + 300. The ack of 17 then ends it: cwnd 2,
    // then 3.
    let expected = "0: 0 1 2 3 4 5 6 7\n100: 8 9 10 11 12 13 2*\n200: 14 15 16\n500: 4*\n600: 17 18\n700: 19 20 21\n\
                    800: 22 23 24";
    assert_eq!(segments(&config(Variant::Reno), 25, &[(2, 0), (4, 0)]), expected);
}

#[test]
fn newreno_repairs_one_loss_per_round_trip() {
    // At 200: inflation 3 + 1 + 6; the partial ack takes 2 segments, deflates by 1: window 5 + 9 = 14, 13
    // outstanding: 4 again, then one new segment.
    let expected =
        "0: 0 1 2 3 4 5 6 7\n100: 8 9 10 11 12 13 2*\n200: 14 15 16 4* 17\n300: 18 19 20 21 22\n400: 23 24";
    assert_eq!(segments(&config(Variant::NewReno), 25, &[(2, 0), (4, 0)]), expected);
    let three = "0: 0 1 2 3 4 5 6 7\n100: 8 9 10 11 12 13 2*\n200: 14 15 4* 16\n300: 17 18 5* 19 20\n\
                 400: 21 22 23 24 25";
    assert!(segments(&config(Variant::NewReno), 26, &[(2, 0), (4, 0), (5, 0)]).starts_with(three));
}

#[test]
fn sack_sends_holes_before_new_data() {
    // 12 segments sent, 2 and 4 lost, cwnd 5. Segment 4 has three above it when 5, 6, 7 are told: it is lost,
    // and the pipe is 8..=13 and 2* = 7. At 200 the ack of 8 makes it 6, of 9 5, of 10 4: 4 goes out first,
    // new data after.
    let expected =
        "0: 0 1 2 3 4 5 6 7\n100: 8 9 10 11 12 13 2*\n200: 4* 14 15 16 17\n300: 18 19 20 21 22\n400: 23 24";
    for sack_pipe in [SackPipe::Scoreboard, SackPipe::Estimate] {
        let config = Config { sack_pipe, ..config(Variant::Sack) };
        assert_eq!(segments(&config, 25, &[(2, 0), (4, 0)]), expected, "{sack_pipe:?}");
    }
}

#[test]
fn sack_repairs_many_losses_in_one_round_trip() {
    let lost = [(2, 0), (4, 0), (6, 0), (8, 0)];
    let sack = segments(&config(Variant::Sack), 40, &lost);
    let repaired = sack.lines().find(|line| line.contains("8*")).unwrap();
    assert!(repaired.starts_with("200:"), "{sack}");
    let newreno = segments(&config(Variant::NewReno), 40, &lost);
    let repaired = newreno.lines().find(|line| line.contains("8*")).unwrap();
    assert!(repaired.starts_with("400:"), "{newreno}");
}

#[test]
fn a_lost_retransmission_waits_for_the_timer() {
    // The timer was armed with the retransmission at 100: out at 400. Everything else had arrived: the ack of
    // 2* covers all, and slow start goes on from 2.
    for variant in [Variant::Reno, Variant::NewReno, Variant::Sack] {
        let transcript = segments(&config(variant), 30, &[(2, 0), (2, 1)]);
        let lines: Vec<&str> = transcript.lines().collect();
        assert!(lines[4].starts_with("400: ") && lines[4].ends_with("2*"), "{variant:?}\n{transcript}");
        assert_eq!(
            transcript.matches("2*").count(),
            3 - 1 + transcript.matches("12*").count(),
            "{transcript}"
        );
    }
}

#[test]
fn a_lost_tail_waits_for_the_timer() {
    for variant in [Variant::Reno, Variant::NewReno, Variant::Sack] {
        // Armed anew by the last ack, at 100.
        let expected = "0: 0 1 2 3 4 5 6 7\n400: 7*";
        assert_eq!(segments(&config(variant), 8, &[(7, 0)]), expected, "{variant:?}");
    }
}

#[test]
fn timeouts_double_up_to_the_maximum_and_the_window_starts_again() {
    let lost: Vec<(u32, u32)> = (0..8).map(|earlier| (8, earlier)).collect();
    let config =
        Config { rto_maximum: Duration::from_secs(5), initial_window: 1, ..config(Variant::NewReno) };
    let transcript = segments(&Config { maximum_window: 1, ..config }, 10, &lost);
    // Eight rounds of one segment take RTTVAR down; 4 * RTTVAR and SRTT give 200 ms, the minimum.
    let tries: Vec<u64> = transcript
        .lines()
        .filter(|line| line.contains('8') && line.split(' ').any(|word| word == "8" || word == "8*"))
        .map(|line| line.split(':').next().unwrap().parse().unwrap())
        .collect();
    let gaps: Vec<u64> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [200, 400, 800, 1600, 3200, 5000, 5000, 5000], "{transcript}");
}

#[test]
fn back_off_stays_until_a_segment_sent_once_is_acknowledged() {
    // Segment 1 needs two timeouts: 300, 600. Its ack is ambiguous (Karn): 2 goes out under the doubled
    // timer, and its loss costs 1200 ms.
    let config = Config { initial_window: 1, maximum_window: 1, ..config(Variant::NewReno) };
    let expected = "0: 0\n100: 1\n400: 1*\n1000: 1*\n1100: 2\n2300: 2*";
    assert_eq!(segments(&config, 3, &[(1, 0), (1, 1), (2, 0)]), expected);
}

#[test]
fn lost_acknowledgements_cost_nothing() {
    let mut path =
        Path::new(&config(Variant::NewReno), Data::Segments(24)).acks(|ack| lose_if(ack.number % 3 == 1));
    path.run(END);
    assert!(path.sender.is_finished());
    assert_eq!(path.sender.counters().segments_retransmitted, 0);
}

#[test]
fn sack_recovers_though_duplicates_were_lost() {
    // The acks that 3 and 4 cause (numbers 2 and 3) are lost; that of 5 tells of three segments above the
    // hole.
    let mut path = Path::new(&config(Variant::Sack), Data::Segments(20))
        .losing(&[(2, 0)])
        .acks(|ack| lose_if(ack.number == 2 || ack.number == 3));
    assert_eq!(path.run(END).lines().nth(1).unwrap(), "100: 8 9 10 11 2*");
    assert_eq!(path.sender.counters().timeouts, 0);
}

#[test]
fn reordering_by_two_is_no_loss() {
    for variant in [Variant::Reno, Variant::NewReno, Variant::Sack] {
        // 2 comes after 4: two duplicates, each of which lets a segment out (12, 13) that the ack of 5 allows
        // anyway.
        let mut path = Path::new(&config(variant), Data::Segments(16)).data(|packet| held_back(packet, 2, 4));
        path.run(END);
        assert_eq!(path.sender.counters().segments_retransmitted, 0, "{variant:?}");
        assert!(path.sender.cwnd() > 8.0, "{variant:?}");
    }
}

#[test]
fn reordering_by_four_looks_like_a_loss_once() {
    for variant in [Variant::Reno, Variant::NewReno, Variant::Sack] {
        let mut path = Path::new(&config(variant), Data::Segments(40)).data(|packet| held_back(packet, 2, 6));
        path.run(END);
        let counters = path.sender.counters();
        assert_eq!((counters.fast_retransmits, counters.timeouts), (1, 0), "{variant:?}");
        // NewReno takes every later ack below 14 for a partial one: 7..=13 go out again as well.
        let needless = if variant == Variant::NewReno { 8 } else { 1 };
        assert_eq!(counters.segments_retransmitted, needless, "{variant:?}");
        assert_eq!(path.sink.counters().segments_duplicate, needless, "{variant:?}");
    }
}

/// Segment `late` arrives just behind segment `after`, which leaves in the same round.
fn held_back(packet: super::path::Packet, late: u32, after: u32) -> Fate {
    let order = match packet.segment.sequence {
        sequence if sequence == late && packet.earlier == 0 => 2 * after + 1,
        sequence => 2 * sequence,
    };
    Fate::Late(Duration::from_micros(u64::from(order)))
}

fn lose_if(lost: bool) -> Fate {
    if lost { Fate::Lose } else { Fate::Arrive }
}

#[test]
fn a_spurious_timeout_starts_no_fast_retransmit() {
    // A round of data is delayed by 500 ms: the timer runs out and all is sent again; what the sink has twice
    // makes a duplicate acknowledgement each.
    for variant in [Variant::Reno, Variant::NewReno, Variant::Sack] {
        for sack_pipe in [SackPipe::Scoreboard, SackPipe::Estimate] {
            let config = Config { sack_pipe, ..config(variant) };
            let mut path =
                Path::new(&config, Data::Segments(60)).data(|packet| match packet.segment.sequence {
                    8..=23 if packet.earlier == 0 => Fate::Late(Duration::from_millis(500)),
                    _ => Fate::Arrive,
                });
            let transcript = path.run(END);
            let counters = path.sender.counters();
            assert_eq!((counters.timeouts, counters.fast_retransmits), (1, 0), "{variant:?}\n{transcript}");
            assert!(path.sender.is_finished());
        }
    }
}

#[test]
fn limited_transmit_saves_small_windows_a_timeout() {
    // Three segments, the first lost: two duplicates only. Limited Transmit sends 3 and 4, whose duplicates
    // make three.
    let small = Config { initial_window: 3, ..config(Variant::NewReno) };
    let expected = "0: 0 1 2\n100: 3 4\n200: 0*";
    assert!(segments(&small, 12, &[(0, 0)]).starts_with(expected));
    let without = Config { limited_transmit: false, rto_initial: Duration::from_secs(3), ..small };
    assert!(segments(&without, 12, &[(0, 0)]).starts_with("0: 0 1 2\n3000: 0*\n3100:"));
}

#[test]
fn after_a_timeout_a_scoreboard_sends_the_holes_only() {
    // 1, 3 and 5 of 8 lost, 1 twice: timeout. With the scoreboard 0, 2, 4, 6, 7 are known to have arrived.
    let lost = [(1, 0), (1, 1), (3, 0), (3, 1), (5, 0), (5, 1)];
    let mut kept = Path::new(&config(Variant::Sack), Data::Segments(8)).losing(&lost);
    kept.run(END);
    assert_eq!(kept.sink.counters().segments_duplicate, 0);
    let forgotten = Config { sack_pipe: SackPipe::Estimate, ..config(Variant::Sack) };
    let mut forgotten = Path::new(&forgotten, Data::Segments(8)).losing(&lost);
    forgotten.run(END);
    assert!(forgotten.sender.is_finished());
    assert!(forgotten.sender.counters().timeouts >= 1 && kept.sender.counters().timeouts >= 1);
}

#[test]
fn delayed_acknowledgements_come_for_every_second_segment_or_after_the_delay() {
    let delayed = Config { acks: AckPolicy::DELAYED, initial_window: 3, ..config(Variant::NewReno) };
    // 0 and 1 are acknowledged together: one ack, one step of slow start, 2 + 1 segments out. 2 waits for 3.
    let mut path = Path::new(&delayed, Data::Segments(6));
    assert_eq!(path.run(END), "0: 0 1 2\n100: 3 4 5");
    assert_eq!(path.sink.counters().acks_sent, 3);
    // A lone segment is acknowledged after 100 ms.
    let mut path = Path::new(&Config { initial_window: 1, ..delayed }, Data::Segments(3));
    assert_eq!(path.run(END), "0: 0\n200: 1 2");
}

#[test]
fn delayed_acknowledgements_do_not_wait_while_a_hole_is_open() {
    let delayed = Config { acks: AckPolicy::DELAYED, ..config(Variant::NewReno) };
    // 0 and 1 together; 3..=7 at once, five duplicates; 2* fills the hole, at once. The rest two by two.
    let mut path = Path::new(&delayed, Data::Segments(8)).losing(&[(2, 0)]);
    assert_eq!(path.run(END), "0: 0 1 2 3 4 5 6 7\n100: 2*");
    assert_eq!(path.sink.counters().acks_sent, 1 + 5 + 1);
}

#[test]
fn quick_acknowledgements_come_first() {
    let acks = AckPolicy { quick: 4, ..AckPolicy::DELAYED };
    let mut path = Path::new(&Config { acks, ..config(Variant::NewReno) }, Data::Segments(8));
    path.run(END);
    assert_eq!(path.sink.counters().acks_sent, 4 + 2);
}

#[test]
fn a_mark_cuts_the_window_once_and_is_confirmed() {
    let ecn = Config { ecn: true, ..config(Variant::NewReno) };
    // 3 and 5 marked: the ack of 4 echoes. cwnd is 8 + 3 by then: 5.5. Eight are outstanding, then acks 5..=8
    // take four away and do not grow the window, as they echo too; the first new segment carries CWR and
    // stops the echo.
    let mut path = Path::new(&ecn, Data::Segments(30)).data(|packet| match packet.segment.sequence {
        3 | 5 => Fate::Mark,
        _ => Fate::Arrive,
    });
    let transcript = path.run(END);
    assert_eq!(transcript.lines().nth(1).unwrap(), "100: 8 9 10 11 12 13");
    assert_eq!(transcript.lines().nth(2).unwrap(), "200: 14c 15 16 17 18", "{transcript}");
    let counters = path.sender.counters();
    assert_eq!((counters.ecn_cuts, counters.segments_retransmitted, counters.fast_retransmits), (1, 0, 0));
    assert_eq!(path.sink.counters().segments_marked, 2);
}

#[test]
fn a_mark_and_a_loss_in_one_window_are_one_congestion_event() {
    let ecn = Config { ecn: true, ..config(Variant::NewReno) };
    let mut path =
        Path::new(&ecn, Data::Segments(30)).data(|packet| match (packet.segment.sequence, packet.earlier) {
            (0, _) => Fate::Mark,
            (3, 0) => Fate::Lose,
            _ => Fate::Arrive,
        });
    path.run(END);
    assert_eq!((path.sender.counters().ecn_cuts, path.sender.counters().fast_retransmits), (1, 1));
    assert!((path.sender.ssthresh() - 4.0).abs() < 1e-9, "8 / 2, not 8 / 4: {}", path.sender.ssthresh());
}

#[test]
fn what_is_not_ecn_capable_is_not_marked() {
    let mut path = Path::new(&config(Variant::NewReno), Data::Segments(10)).data(|packet| {
        if packet.segment.sequence == 3 && packet.earlier == 0 { Fate::Mark } else { Fate::Arrive }
    });
    path.run(END);
    assert_eq!(path.sender.counters().segments_retransmitted, 1);
    assert_eq!(path.sender.counters().ecn_cuts, 0);
}

#[test]
fn a_syn_goes_first_and_measures_the_round_trip() {
    let syn = Config { syn_exchange: true, ..config(Variant::Sack) };
    let mut path = Path::new(&syn, Data::Segments(3));
    assert_eq!(path.run(END), "0: S\n100: 0 1 2");
    assert_eq!(path.sender.counters().rtt_samples, 2);
}

#[test]
fn a_lost_syn_costs_the_initial_timeout_and_the_initial_window() {
    let syn = Config { syn_exchange: true, rto_initial: Duration::from_secs(1), ..config(Variant::Sack) };
    let mut path = Path::new(&syn, Data::Segments(3)).data(|packet| lose_if(packet.number == 0));
    assert_eq!(path.run(END), "0: S\n1000: S\n1100: 0\n1200: 1 2");
    assert_eq!(path.sender.counters().timeouts, 1);
}

#[test]
fn the_last_segment_holds_what_is_left() {
    let mut path = Path::new(&config(Variant::Sack), Data::Bytes(9_001)).losing(&[(9, 0), (4, 0)]);
    path.run(END);
    assert!(path.sender.is_finished());
    assert_eq!(path.sink.segments_in_order(), 10);
    assert_eq!(path.sink.counters().payload_bytes_in_order, 9_001);
    assert_eq!(path.sender.counters().payload_bytes_acked, 9_001);
    let mut nothing = Path::new(&config(Variant::Sack), Data::Bytes(0));
    assert_eq!(nothing.run(END), "");
    assert!(nothing.sender.is_finished());
}

#[test]
fn overhead_holds_a_burst_back_and_keeps_its_order() {
    let overhead = Duration::from_millis(10);
    let mut path = Path::new(&Config { overhead, ..config(Variant::NewReno) }, Data::Segments(8));
    let transcript = path.run(END);
    let (at, burst) = transcript.split_once(": ").unwrap();
    assert!(at.parse::<u64>().unwrap() < 10);
    assert_eq!(burst, "0 1 2 3 4 5 6 7");
    assert!(path.sender.is_finished());
}

#[test]
fn the_receivers_window_bounds_what_is_outstanding() {
    for variant in [Variant::Reno, Variant::NewReno, Variant::Sack] {
        let mut path = Path::new(&Config { maximum_window: 20, ..config(variant) }, Data::Segments(300))
            .losing(&[(30, 0), (31, 0), (90, 0)]);
        path.run(END);
        assert!(path.sender.is_finished());
        assert_eq!(path.sink.counters().segments_beyond_window, 0);
    }
}

#[test]
fn a_cut_from_the_pipe_leaves_out_what_duplicates_told_of() {
    // A window of sixteen whose first segment is lost: three duplicates tell that three have left.
    let window = |cut_from| {
        let config =
            Config { cut_from, initial_window: 16, limited_transmit: false, ..Profile::Rfc.config() };
        let mut path = Path::new(&config, Data::Segments(16)).losing(&[(0, 0)]);
        path.run(END);
        assert!(path.sender.is_finished());
        path.sender.ssthresh()
    };
    assert!((window(CutFrom::FlightSize) - 8.0).abs() < 1e-9);
    // The three, and the one that is lost.
    assert!((window(CutFrom::Pipe) - 6.0).abs() < 1e-9, "{}", window(CutFrom::Pipe));
}

#[test]
fn flight_size_cuts_less_than_an_unused_window() {
    // Two segments of a window of eight outstanding: the RFC halves the two.
    let rfc = Config { cut_from: CutFrom::FlightSize, ..config(Variant::Sack) };
    let mut path = Path::new(&rfc, Data::Segments(2)).losing(&[(1, 0)]);
    path.run(END);
    assert!((path.sender.ssthresh() - 2.0).abs() < 1e-9);
    let mut path = Path::new(&config(Variant::Sack), Data::Segments(2)).losing(&[(1, 0)]);
    path.run(END);
    assert!((path.sender.ssthresh() - 4.5).abs() < 1e-9);
}
