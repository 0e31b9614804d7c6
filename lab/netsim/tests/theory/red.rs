//! RED under a load that does not listen: the average settles where the draws take the excess.

use headwater_netsim::network::LinkConfig;
use headwater_proto::Duration;
use headwater_proto::queue::{QueueConfig, RedConfig, Thresholds};

use crate::sources::{Gap, MEAN_BYTES, OneLink, RATE, SERVICE, Sizes};
use crate::statistics::Mean;

/// Offered 1.05 times what the link carries, RED must drop every 21st packet. Gaps between draws are uniform
/// on 1 .. 1/p_b - 1 without wait and 1/p_b .. 2/p_b - 1 with it; that gives p_b, and the queue is where the
/// line of slope max_p / (th_max - th_min) has this value. Thresholds are far apart, so that the average,
/// which wanders, stays on it.
fn queue_of_overload(wait: bool, services: u64) -> (Mean, f64) {
    let red = RedConfig {
        wait,
        packet_bytes_mean: MEAN_BYTES,
        thresholds: Thresholds::Fixed { min: 30.0, max: 130.0 },
        ..RedConfig::ns1999(1_000)
    };
    let gap = 21.0;
    let base = if wait { 1.5 / (gap + 0.5) } else { 0.5 / gap };
    let theory = 30.0 + 100.0 * base / red.max_p;
    let config = LinkConfig::new(RATE, Duration::ZERO).with_queue(QueueConfig::Red(red));
    let mean = Mean::over_runs(|seed| {
        let gap = Gap::Exponential(SERVICE.as_secs_f64() / 1.05);
        let mut link = OneLink::new(config.clone(), gap, Sizes::Fixed, seed);
        let before = link.run_for(services / 10).waiting_packet_nanos;
        let waiting = link.run_for(services).waiting_packet_nanos - before;
        waiting as f64 / SERVICE.saturating_mul(services).as_nanos() as f64
    });
    (mean, theory)
}

/// Theory takes the average for still, so it holds to a few per cent only.
#[test]
fn the_queue_settles_where_the_draws_take_the_excess() {
    for wait in [false, true] {
        let (mean, theory) = queue_of_overload(wait, 100_000);
        println!(
            "| RED, load 1.05, wait {wait}: waiting | {theory:.2} | {:.2} ± {:.2} |",
            mean.mean,
            mean.half_width()
        );
        assert!((mean.mean / theory - 1.0).abs() < 0.05, "wait {wait}: {mean:?}, expected {theory}");
    }
}
