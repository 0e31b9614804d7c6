//! Loss events in rounds: the model behind the paper's counts of figures 12 and 19
//! (`docs/errata/le-sbcc.md`).
//!
//! In each round x packets are sent; a receiver's losses of a round are a single event. If an event passes
//! Max-LPRF, the next round has half as many packets, otherwise one more. A paced sender has no rounds: an
//! event covers all packets sent in the round trip after the first loss, on average twice the rest of a
//! round, so fewer events pass (`lab/experiments/le_sbcc/receivers`).

use core::net::{IpAddr, Ipv4Addr};

use rand::Rng;

use headwater_proto::le_sbcc::Receivers;
use headwater_proto::rng::{Stream, unit};
use headwater_proto::time::{Duration, Instant};

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
    use headwater_proto::Seed;

    #[test]
    fn as_many_events_pass_as_the_worst_receiver_has_whatever_their_number() {
        // [DERIVED] there: 522, 516, 468 for 1, 11 and 101 receivers; the paper's figure 12 shows 500 to 520.
        for (others, runs, range) in [(0, 40, 500.0..545.0), (10, 40, 475.0..545.0), (100, 12, 440.0..520.0)]
        {
            let passed = |seed| {
                f64::from(super::passed(6_000, 0.1, others, 0.02, &mut Seed(seed).stream("le-sbcc", 0)))
            };
            let mean = (0..runs).map(passed).sum::<f64>() / runs as f64;
            assert!(range.contains(&mean), "{mean} of {others} others");
        }
    }
}
