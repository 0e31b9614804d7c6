//! TCPs over RED that drops and over RED that marks, at equal load (`lab/notebook/netsim-validation.md`).

use headwater_netsim::agent::{TcpConnection, TcpSource};
use headwater_netsim::network::{Builder, LinkConfig, LinkCounters};
use headwater_netsim::tcp::{Config, Data, Profile};
use headwater_proto::queue::{QueueConfig, RedConfig};
use headwater_proto::{Duration, Instant, Rate, Seed};

const FLOWS: u64 = 8;
const WARM_UP: Duration = Duration::from_secs(20);
const WINDOW: Duration = Duration::from_secs(60);

/// What the bottleneck counted in the window, and what all senders counted in the whole run.
struct Outcome {
    link: LinkCounters,
    before: LinkCounters,
    timeouts: u64,
    cuts: u64,
}

impl Outcome {
    fn throughput(&self) -> f64 {
        (self.link.delivered_bytes - self.before.delivered_bytes) as f64 * 8.0 / WINDOW.as_secs_f64()
    }

    fn drops(&self) -> f64 {
        (self.link.queue_drops() - self.before.queue_drops()) as f64
    }

    fn marks(&self) -> f64 {
        (self.link.marked - self.before.marked) as f64
    }
}

/// TCPs of unlike round-trip times over a bottleneck of 10 Mbit/s with RED, which drops, or marks if they can
/// carry it.
fn outcome(profile: Profile, ecn: bool, run: u64) -> Outcome {
    let config =
        Config { ecn, maximum_window: 1_000, segment_bytes: 1_000, header_bytes: 40, ..profile.config() };
    let red = RedConfig { packet_bytes_mean: 1_040, gentle: true, mark_p: 1.0, ecn, ..RedConfig::ns1999(60) };
    let mut network = Builder::new();
    let (left, right) = (network.node("left"), network.node("right"));
    let middle =
        |queue| LinkConfig::new(Rate::from_kilobits(10_000), Duration::from_millis(20)).with_queue(queue);
    let bottleneck = network.link(
        "bottleneck",
        left,
        right,
        middle(QueueConfig::Red(red)),
        middle(QueueConfig::drop_tail(1_000)),
    );
    let mut sources = Vec::new();
    for number in 0..FLOWS {
        let (from, to) = (network.node(&format!("from-{number}")), network.node(&format!("to-{number}")));
        let access = |delay| {
            LinkConfig::new(Rate::from_kilobits(100_000), Duration::from_millis(delay))
                .with_queue(QueueConfig::drop_tail(1_000))
        };
        network.link(&format!("up-{number}"), from, left, access(1 + 2 * number), access(1 + 2 * number));
        network.link(&format!("down-{number}"), right, to, access(1), access(1));
        let name = format!("tcp-{number}");
        let stream = Seed(run).stream(&name, 0);
        let tcp =
            TcpConnection::declare(&mut network, &name, (from, to), &config, Data::Greedy, stream).unwrap();
        network.start_at(tcp.source, Instant::ZERO + Duration::from_millis(37 * number * (run + 1)));
        sources.push(tcp.source);
    }
    let mut run = network.build(Seed(run), 0).unwrap();
    run.run_until(Instant::ZERO + WARM_UP);
    let before = run.link_counters(bottleneck);
    run.run_until(run.now() + WINDOW);
    let senders = sources.iter().map(|source| *run.agent::<TcpSource>(*source).unwrap().sender().counters());
    let (timeouts, cuts) =
        senders.fold((0, 0), |(timeouts, cuts), sender| (timeouts + sender.timeouts, cuts + sender.ecn_cuts));
    Outcome { link: run.link_counters(bottleneck), before, timeouts, cuts }
}

#[test]
fn marks_do_what_drops_do_without_the_drops() {
    for profile in [Profile::Ns2005, Profile::Rfc] {
        for run in 0..3 {
            let (dropping, marking) = (outcome(profile, false, run), outcome(profile, true, run));
            let what = format!("{profile}, run {run}");
            println!(
                "| ECN, {what} | {:.3} Mbit/s, {} drops | {:.3} Mbit/s, {} drops, {} marks |",
                dropping.throughput() / 1e6,
                dropping.drops(),
                marking.throughput() / 1e6,
                marking.drops(),
                marking.marks()
            );
            assert_eq!(dropping.marks(), 0.0, "{what}: marks without ECN");
            assert!((marking.throughput() / dropping.throughput() - 1.0).abs() < 0.02, "{what}: link use");
            assert!(marking.drops() <= 0.02 * dropping.drops(), "{what}: drops with ECN");
            assert!((marking.marks() / dropping.drops() - 1.0).abs() < 0.25, "{what}: marks for drops");
            assert!(marking.cuts > 0 && marking.timeouts <= dropping.timeouts, "{what}: what senders saw");
        }
    }
}
