//! Analyses from the LE-SBCC paper. The protocol itself is [`headwater_proto::le_sbcc`].
//!
//! The paper's analysis (section 5): lost packets per loss event, by a Markov chain over the packets of a
//! round trip.
//!
//! From x packets the next round trip has half as many packets (rounded down, at least 1) after a loss, and
//! otherwise one more packet, at most N.
//!
//! Loss events in rounds: the model behind the paper's counts of figures 12 and 19
//! (`docs/errata/le-sbcc.md`).
//!
//! In each round x packets are sent; a receiver's losses of a round are a single event. If an event passes
//! Max-LPRF, the next round has half as many packets, otherwise one more. A paced sender has no rounds: an
//! event covers all packets sent in the round trip after the first loss, on average twice the rest of a
//! round, so fewer events pass (`lab/experiments/le_sbcc/receivers`).

use core::net::{IpAddr, Ipv4Addr};

use headwater_proto::le_sbcc::Receivers;
use headwater_proto::rng::{Stream, unit};
use headwater_proto::time::{Duration, Instant};
use rand::Rng;

/// Loss process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Losses {
    /// Independent loss of each packet.
    Independent,
    /// After a loss the rest of the round trip is lost, as in a full drop-tail queue.
    Bursty,
}

/// Result of the analysis for a loss probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Analysis {
    /// Lost packets per packet: p for independent losses.
    pub indications_per_packet: f64,
    /// Mean packets per round trip.
    pub packets: f64,
    /// Mean loss events per round trip.
    pub events_per_round_trip: f64,
    /// Lost packets per loss event.
    pub indications_per_event: f64,
}

/// The chain counts as stationary once a step changes the state probabilities in total by less than this.
const STILL: f64 = 1e-13;
const STEPS_MAX: u32 = 100_000;

/// Analyses a chain with up to `most` packets per round trip, at least 1. `p`, in (0, 1), is the probability
/// that a packet is lost, or with bursts that a packet is the first lost packet.
pub fn analyse(losses: Losses, most: usize, p: f64) -> Analysis {
    let kept = 1.0 - p;
    let survival: Vec<f64> = (1..=most.max(1)).map(|x| libm::pow(kept, x as f64)).collect();
    let stationary = stationary(&survival);
    let mean = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        let states = stationary.iter().zip(&survival).zip(1_u32..);
        states.map(|((share, survival), x)| share * of(f64::from(x), *survival)).sum()
    };
    let packets = mean(&|x, _| x);
    let events_per_round_trip = mean(&|_, survival| 1.0 - survival);
    let lost = match losses {
        Losses::Independent => p * packets,
        // Sum over the index i = 0..x of the first loss, of (x - i) (1-p)^i p.
        Losses::Bursty => mean(&|x, survival| x - kept * (1.0 - survival) / p),
    };
    Analysis {
        indications_per_packet: lost / packets,
        packets,
        events_per_round_trip,
        indications_per_event: lost / events_per_round_trip,
    }
}

/// Returns the probabilities of 1, 2, .. packets. `survival` holds the probability that a round trip of as
/// many packets has no loss.
fn stationary(survival: &[f64]) -> Vec<f64> {
    let most = survival.len();
    let mut share = vec![1.0 / most as f64; most];
    for _ in 0..STEPS_MAX {
        let mut next = vec![0.0; most];
        for (index, (share, survival)) in share.iter().zip(survival).enumerate() {
            next[(index + 1).min(most - 1)] += share * survival;
            next[index.div_ceil(2).max(1) - 1] += share * (1.0 - survival);
        }
        let change: f64 = next.iter().zip(&share).map(|(new, old)| (new - old).abs()).sum();
        share = next;
        if change < STILL {
            break;
        }
    }
    share
}

/// Number of rounds after which counts fade.
const FADING: u32 = 100;

/// Returns the number of passed events while `packets` are sent to a receiver with loss probability `worst`
/// and to `others` further receivers with loss probability `loss`; losses are independent.
pub fn passed(packets: u32, worst: f64, others: u32, loss: f64, draw: &mut Stream) -> u32 {
    let mut receivers = Receivers::new(u32::MAX, draw);
    let (mut sent, mut size, mut passed) = (0, 1_u32, 0);
    let mut now = Instant::ZERO;
    let mut events: Vec<(u64, u32)> = Vec::new();
    for round in 1_u32.. {
        if sent >= packets {
            break;
        }
        sent += size;
        now += Duration::from_millis(100);
        // Events occur at random positions in the round.
        events.clear();
        for receiver in 0..=others {
            let probability = if receiver == 0 { worst } else { loss };
            if unit(draw) >= libm::pow(1.0 - probability, f64::from(size)) {
                events.push((draw.next_u64(), receiver));
            }
        }
        events.sort_unstable();
        let before = passed;
        for (_, receiver) in &events {
            let share = receivers.event(IpAddr::V4(Ipv4Addr::from_bits(receiver + 1)), now);
            passed += u32::from(unit(draw) < share);
        }
        size = if passed > before { (size / 2).max(1) } else { size + 1 };
        if round % FADING == 0 {
            receivers.fade();
        }
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_proto::Seed;

    const PUBLISHED: &str = include_str!("../../experiments/le_sbcc/markov/published.csv");

    #[test]
    fn the_published_table_comes_out_to_three_digits() {
        let mut rows = 0;
        for line in PUBLISHED.lines().skip(1) {
            let [case, most, p, rest @ ..] = &line.split(',').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let losses = if *case == "bursty" { Losses::Bursty } else { Losses::Independent };
            let ours = analyse(losses, most.parse().unwrap(), p.parse().unwrap());
            let ours = [
                ours.indications_per_packet,
                ours.packets,
                ours.events_per_round_trip,
                ours.indications_per_event,
            ];
            for (ours, published) in ours.iter().zip(rest) {
                let published: f64 = published.parse().unwrap();
                // As many digits as are printed there, and three at least.
                assert!(
                    (ours / published - 1.0).abs() < 1e-3 || (ours - published).abs() < 6e-5,
                    "{line}: {ours}"
                );
            }
            rows += 1;
        }
        assert_eq!(rows, 35);
    }

    #[test]
    fn the_papers_own_numbers_hold() {
        let independent = |p| analyse(Losses::Independent, 200, p).indications_per_event;
        let most = (1..100).map(|percent| independent(f64::from(percent) / 100.0)).fold(0.0, f64::max);
        assert!((1.2..1.25).contains(&most), "below 1.25: {most}");
        assert!(independent(0.3).max(independent(0.4)) > 0.998 * most, "at 30 to 40 %");
        assert!((independent(0.1) - 1.2).abs() < 0.03, "about 1.2 at 10 %");
        let bursty = |p| analyse(Losses::Bursty, 200, p).indications_per_event;
        assert!(bursty(5e-5) > 80.0 && bursty(0.01) < 9.0, "9 to 90 at low loss");
        // Without bursts N means nothing.
        assert!(
            (analyse(Losses::Independent, 50, 0.02).packets
                - analyse(Losses::Independent, 200, 0.02).packets)
                .abs()
                < 1e-3
        );
    }

    #[test]
    fn as_many_events_pass_as_the_worst_receiver_has_whatever_their_number() {
        // [DERIVED] there: 522, 516, 468 for 1, 11 and 101 receivers; the paper's figure 12 shows 500 to 520.
        for (others, runs, range) in [(0, 40, 500.0..545.0), (10, 40, 475.0..545.0), (100, 12, 440.0..520.0)]
        {
            let passed =
                |seed| f64::from(passed(6_000, 0.1, others, 0.02, &mut Seed(seed).stream("le-sbcc", 0)));
            let mean = (0..runs).map(passed).sum::<f64>() / runs as f64;
            assert!(range.contains(&mean), "{mean} of {others} others");
        }
    }
}
