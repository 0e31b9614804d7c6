//! Loss detection by time (RFC 8985), in literal exchanges: one line per instant (ms), a star on
//! retransmissions. The round trip takes 100 ms.

use headwater_netsim::tcp::{Config, Data, Profile, Variant};
use headwater_proto::{Duration, Instant};

use super::path::{Fate, Path};

const END: Instant = Instant::from_nanos(600_000_000_000);

fn config(rack: bool) -> Config {
    Config {
        variant: Variant::Sack,
        rack,
        initial_window: 8,
        maximum_window: 64,
        syn_exchange: false,
        ..Profile::Linux.config()
    }
}

#[test]
fn a_lost_retransmission_is_sent_again_after_a_round_trip() {
    let lost = [(2, 0), (2, 1)];
    let exchange = |rack| {
        let mut path = Path::new(&config(rack), Data::Segments(40)).losing(&lost);
        let transcript = path.run(END);
        assert!(path.sender.is_finished());
        (transcript, path.sender.counters().timeouts)
    };
    let (transcript, timeouts) = exchange(true);
    assert_eq!(timeouts, 0, "{transcript}");
    // Sent again at 100 ms, with segments that the sink reports at 200 ms.
    let again: Vec<&str> = transcript.lines().filter(|line| line.contains(" 2*")).collect();
    assert_eq!(again.len(), 2, "{transcript}");
    assert!(again[0].starts_with("100:") && again[1].starts_with("200:"), "{transcript}");
    let (transcript, timeouts) = exchange(false);
    assert_eq!(timeouts, 1, "{transcript}");
}

#[test]
fn a_lost_tail_is_probed() {
    let lost = [(18, 0), (19, 0)];
    let exchange = |rack| {
        let mut path = Path::new(&config(rack), Data::Segments(20)).losing(&lost);
        let transcript = path.run(END);
        assert!(path.sender.is_finished());
        (transcript, *path.sender.counters())
    };
    let (transcript, counters) = exchange(true);
    assert_eq!((counters.probes, counters.timeouts), (1, 0), "{transcript}");
    // The last acknowledgement comes at 200 ms. Two round trips later segment 19 is sent again, and its
    // report shows that 18 is missing.
    let tail: Vec<&str> = transcript.lines().rev().take(2).collect();
    assert_eq!(tail, ["500: 18*", "400: 19*"], "{transcript}");
    let (transcript, counters) = exchange(false);
    assert_eq!((counters.probes, counters.timeouts), (0, 1), "{transcript}");
}

#[test]
fn a_segment_that_is_late_by_less_than_a_quarter_of_the_round_trip_is_not_lost() {
    let exchange = |late: u64| {
        let late_by =
            |number| if number == 2 { Fate::Late(Duration::from_millis(late)) } else { Fate::Arrive };
        // A first round measures the round-trip time; then 11 is late, and two follow.
        let mut path = Path::new(&config(true), Data::Segments(14))
            .data(|packet| late_by(packet.segment.sequence.saturating_sub(9)));
        path.run(END)
    };
    assert!(!exchange(20).contains('*'), "{}", exchange(20));
    // The window is open for 25 ms from the report at 200 ms.
    assert!(exchange(40).contains("225: 11*"), "{}", exchange(40));
}
