//! Loss on a wire: its rate and its runs, and that it sits behind the queue.

use headwater_netsim::network::LinkConfig;
use headwater_netsim::network::{GilbertElliott, LossConfig};
use headwater_proto::Duration;
use headwater_proto::queue::QueueConfig;

use crate::sources::{Gap, OneLink, RATE, SERVICE, Sizes};
use crate::statistics::assert_fits;

const PACKETS: u64 = 100_000;

/// A packet every 2 ms over a link that takes 1 ms for each, with this loss.
fn lossy(loss: LossConfig, seed: u64) -> OneLink {
    let link = LinkConfig::new(RATE, Duration::from_millis(5)).with_loss(loss);
    OneLink::new(link, Gap::Regular(2.0 * SERVICE.as_secs_f64()), Sizes::Fixed, seed)
}

/// Lengths of the runs of lost packets: regular packets leave gaps of whole intervals.
fn runs(link: &OneLink) -> Vec<u64> {
    let interval = 2 * SERVICE.as_nanos();
    let gaps = link.arrivals().windows(2).map(|pair| pair[1].since(pair[0]).as_nanos());
    gaps.inspect(|gap| assert_eq!(gap % interval, 0))
        .map(|gap| gap / interval - 1)
        .filter(|lost| *lost > 0)
        .collect()
}

/// Asserts that a run goes on with probability `on`: lengths 1 to 8, then all longer ones.
fn assert_runs(what: &str, lengths: &[u64], on: f64) {
    let all = lengths.len() as f64;
    let mut expected: Vec<f64> = (0..8).map(|longer| all * on.powi(longer) * (1.0 - on)).collect();
    expected.push(all * on.powi(8));
    while expected.last().is_some_and(|last| *last < 20.0) {
        let rest = expected.pop().unwrap_or(0.0);
        if let Some(last) = expected.last_mut() {
            *last += rest;
        }
    }
    let mut observed = vec![0; expected.len()];
    for length in lengths {
        observed[usize::try_from(length - 1).unwrap().min(expected.len() - 1)] += 1;
    }
    assert_fits(what, &observed, &expected);
}

#[test]
fn bernoulli_on_a_link() {
    for seed in 0..5 {
        for loss in [0.05, 0.2] {
            let mut link = lossy(LossConfig::Bernoulli(loss), seed);
            let counters = link.run_for(2 * PACKETS);
            let all = counters.lost + counters.delivered_packets;
            let what = format!("Bernoulli {loss}, seed {seed}");
            let expected = [loss * all as f64, (1.0 - loss) * all as f64];
            assert_fits(&what, &[counters.lost, counters.delivered_packets], &expected);
            assert_runs(&what, &runs(&link), loss);
        }
    }
}

#[test]
fn gilbert_on_a_link() {
    for seed in 0..5 {
        let chain = GilbertElliott::simple(0.05, 3.0);
        let mut link = lossy(LossConfig::GilbertElliott(chain), seed);
        link.run_for(2 * PACKETS);
        assert_runs(&format!("Gilbert, seed {seed}"), &runs(&link), 1.0 - chain.bad_to_good);
    }
}

/// A link that is offered 1.25 times what it carries drops a fifth at its queue, and its wire loses a tenth
/// of the rest: what is lost has used its time.
#[test]
fn a_lost_packet_has_used_the_link() {
    let config = |loss| {
        LinkConfig::new(RATE, Duration::from_millis(5)).with_queue(QueueConfig::drop_tail(10)).with_loss(loss)
    };
    let overload = Gap::Regular(0.8 * SERVICE.as_secs_f64());
    let counters = |loss| OneLink::new(config(loss), overload, Sizes::Fixed, 1).run_for(50_000);
    let (clean, lossy) = (counters(LossConfig::None), counters(LossConfig::Bernoulli(0.1)));
    assert_eq!(clean.sent_packets, lossy.sent_packets);
    assert_eq!(clean.dropped_full, lossy.dropped_full);
    assert_eq!(clean.waiting_packet_nanos, lossy.waiting_packet_nanos);
    assert_eq!(lossy.delivered_packets + lossy.lost, clean.delivered_packets);
    assert!(lossy.lost > 0);
}

#[test]
fn a_script_loses_the_packets_that_it_names() {
    let mut link = lossy(LossConfig::Script(vec![2, 5, 6]), 1);
    link.run_for(40);
    assert_eq!(runs(&link), [1, 2]);
}
