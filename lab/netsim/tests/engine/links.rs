//! Store and forward, queues that count what waits, capacities that change.

use headwater_netsim::engine::Run;
use headwater_netsim::network::{
    AgentId, Builder, Event, FlowId, Impairments, LinkConfig, LinkCounters, LinkId, LossFilter,
};
use headwater_netsim::network::{CodelConfig, LinkQueue, LossConfig, PolicerConfig};
use headwater_proto::queue::{Limit, QueueConfig, RedConfig, Thresholds, Weight};
use headwater_proto::{Duration, Instant, Rate, Seed};

use crate::script::{Log, Sends, byte_per_micro, micros, millis};

struct Path {
    network: Builder,
    link: LinkId,
    log: AgentId,
    flow: FlowId,
}

/// One link with 1 ms of delay from a source of `packets` (microsecond, bytes) to a log.
fn path(config: LinkConfig, packets: &[(u64, u32)]) -> Path {
    let mut network = Builder::new();
    let [a, b] = ["a", "b"].map(|name| network.node(name));
    let link = network.link("a-b", a, b, config.clone(), config);
    let flow = network.flow("flow");
    let log = network.agent("log", b, Log::default());
    let to = network.destination(log);
    network.agent("source", a, Sends::new(flow, to, packets));
    Path { network, link, log, flow }
}

fn link(queue: u32) -> LinkConfig {
    LinkConfig::new(byte_per_micro(), Duration::from_millis(1)).with_queue(QueueConfig::drop_tail(queue))
}

impl Path {
    fn run(self) -> (Run, AgentId, LinkId) {
        let mut run = self.network.build(Seed(1), 0).unwrap();
        run.run_until(millis(1_000));
        (run, self.log, self.link)
    }

    fn arrivals(self) -> Vec<u64> {
        let (run, log, _) = self.run();
        run.agent::<Log>(log).unwrap().times()
    }

    fn counters(self) -> LinkCounters {
        let (mut run, _, link) = self.run();
        run.link_counters(link)
    }
}

#[test]
fn a_hop_takes_serialisation_and_delay_to_the_nanosecond() {
    let config = LinkConfig::new(Rate::from_bits(3_000_000).unwrap(), Duration::from_nanos(7));
    // 8 * 1000 / 3e6 s = 2 666 666.67 ns; 8 * 1001 / 3e6 s = 2 669 333.33 ns.
    assert_eq!(path(config.clone(), &[(0, 1_000)]).arrivals(), [2_666_674]);
    assert_eq!(path(config.clone(), &[(0, 1_001)]).arrivals(), [2_669_340]);
    assert_eq!(path(config, &[(0, 1_000), (1, 1_000)]).arrivals(), [2_666_674, 5_333_341]);
}

#[test]
fn each_hop_stores_and_forwards() {
    let mut network = Builder::new();
    let nodes = ["a", "b", "c", "d"].map(|name| network.node(name));
    for (index, pair) in nodes.windows(2).enumerate() {
        network.link(&format!("link{index}"), pair[0], pair[1], link(5), link(5));
    }
    let flow = network.flow("flow");
    let log = network.agent("log", nodes[3], Log::default());
    let to = network.destination(log);
    network.agent("source", nodes[0], Sends::new(flow, to, &[(0, 500), (0, 300)]));
    let mut run = network.build(Seed(1), 0).unwrap();
    run.run_until(millis(100));
    // Three times 500 us and 1 ms; the second one is right behind at the last link.
    assert_eq!(run.agent::<Log>(log).unwrap().times(), [4_500_000, 4_800_000]);
    assert_eq!(run.usage().packet_hops, 6);
    assert_eq!(run.usage().packets_under_way, 0);
}

#[test]
fn a_limit_counts_those_that_wait() {
    let counters = path(link(3), &[(0, 100); 8]).counters();
    assert_eq!((counters.delivered_packets, counters.dropped_full, counters.waiting_peak), (4, 4, 3));
    let counters = path(link(0), &[(0, 100), (50, 100), (100, 100), (250, 100)]).counters();
    assert_eq!((counters.delivered_packets, counters.dropped_full), (3, 1), "the second finds it busy");
}

#[test]
fn a_place_that_falls_free_is_free_for_an_arrival_of_the_same_instant() {
    // Room for one. At 100 us the first packet has gone, the second is taken, so that the third finds room;
    // not before.
    let counters = path(link(1), &[(0, 100), (0, 100), (99, 100)]).counters();
    assert_eq!(counters.dropped_full, 1);
    let counters = path(link(1), &[(0, 100), (0, 100), (100, 100)]).counters();
    assert_eq!(counters.dropped_full, 0);
}

#[test]
fn the_mean_queue_is_exact() {
    // Three at once: 100 us with two waiting, 100 us with one.
    let counters = path(link(5), &[(0, 100); 3]).counters();
    assert_eq!(counters.waiting_packet_nanos, 300_000);
    assert_eq!(counters.waiting_byte_nanos, 30_000_000);
}

#[test]
fn a_new_rate_holds_for_those_that_wait_and_not_for_the_one_in_service() {
    let mut path = path(link(5), &[(0, 100), (0, 100), (0, 100)]);
    path.network.at(micros(50), Event::Rate(path.link, Rate::from_kilobits(4_000)));
    path.network.at(micros(150), Event::Rate(path.link, Rate::from_kilobits(16_000)));
    // The first ends at 100 us; the second, begun at half the rate, at 300; the third, at twice the rate, at
    // 350.
    assert_eq!(path.arrivals(), [1_100_000, 1_300_000, 1_350_000]);
}

#[test]
fn an_idle_link_stays_idle_when_its_rate_changes() {
    let red = RedConfig {
        thresholds: Thresholds::Fixed { min: 2.0, max: 4.0 },
        weight: Weight::Fixed(0.02),
        ..RedConfig::ns1999(1_000)
    };
    // A burst lifts the average far above the thresholds; 40 ms of silence let it decay before the next one.
    let mut packets = vec![(0, 100); 100];
    packets.extend([(50_000, 100); 6]);
    let path = || path(link(0).with_queue(QueueConfig::Red(red)), &packets);
    let mut changed = path();
    changed.network.at(micros(49_990), Event::Rate(changed.link, byte_per_micro()));
    let (expected, counters) = (path().counters(), changed.counters());
    assert!(expected.dropped_forced > 0, "the first burst meets RED");
    assert_eq!(counters, expected);
}

#[test]
fn a_run_ends_before_packets_take_all_memory() {
    let packets: Vec<_> = (0..100).map(|n| (n * 10, 100)).collect();
    let run = |most| {
        let mut run = path(link(1_000), &packets).network.build(Seed(1), 0).unwrap();
        run.limit_copies(most);
        run.run_until(millis(1_000));
        run
    };
    // One in ten is sent on while they come; those sent in the last millisecond are on the wire.
    let whole = run(100);
    assert!(!whole.is_overfull() && whole.now() == millis(1_000));
    let stopped = run(50);
    assert!(stopped.is_overfull());
    assert_eq!(stopped.now(), micros(500), "when the 51st packet came");
    assert_eq!(stopped.usage().packets_under_way, 51);
}

#[test]
fn a_cut_loses_what_has_not_left_and_what_comes() {
    let mut path = path(link(5), &[(0, 100), (100, 100), (100, 100), (300, 100), (500, 100)]);
    path.network.at(micros(150), Event::Down(path.link));
    path.network.at(micros(400), Event::Up(path.link));
    let flow = path.flow;
    let (mut run, log, link) = path.run();
    assert_eq!(run.agent::<Log>(log).unwrap().times(), [1_100_000, 1_600_000]);
    let counters = run.link_counters(link);
    assert_eq!((counters.delivered_packets, counters.dropped_down), (2, 3));
    assert_eq!(run.flow_counters(flow).dropped_packets, 3);
    assert_eq!(run.usage().packets_under_way, 0);
}

#[test]
fn lost_packets_have_used_their_link_time() {
    let lossy = link(5).with_loss(LossConfig::Script(vec![1, 3]));
    let path = path(lossy, &[(0, 100), (0, 100), (0, 100), (0, 100)]);
    let (mut run, log, link) = path.run();
    assert_eq!(run.agent::<Log>(log).unwrap().times(), [1_200_000, 1_400_000]);
    let counters = run.link_counters(link);
    assert_eq!((counters.lost, counters.sent_packets, counters.delivered_packets), (2, 4, 2));
}

#[test]
fn a_loss_model_can_change_on_the_way() {
    let mut path = path(link(50), &(0..10).map(|n| (n * 1_000, 100)).collect::<Vec<_>>());
    path.network.at(micros(4_500), Event::Loss(path.link, LossConfig::Bernoulli(1.0), LossFilter::Data));
    path.network.at(micros(7_500), Event::Loss(path.link, LossConfig::None, LossFilter::All));
    let (run, log, _) = path.run();
    assert_eq!(run.agent::<Log>(log).unwrap().numbers(), [0, 1, 2, 3, 4, 8, 9]);
}

/// Conservation: whatever the wire does, each packet is delivered, doubled, or counted as lost, and none
/// stays.
#[test]
fn every_packet_is_accounted_for_under_faults() {
    let impairments = Impairments {
        reordered: 0.2,
        reordered_by: Duration::from_millis(3),
        duplicated: 0.1,
        corrupted: 0.05,
        damaged: 0.05,
    };
    let faulty = link(3).with_loss(LossConfig::Bernoulli(0.1)).with_impairments(impairments);
    for seed in 0..5 {
        let packets: Vec<_> = (0..3_000).map(|n| (n * 90, 100)).collect();
        let path = path(faulty.clone(), &packets);
        let (flow, link, log) = (path.flow, path.link, path.log);
        let mut run = path.network.build(Seed(seed), 0).unwrap();
        run.run_until(millis(1_000));
        let link = run.link_counters(link);
        assert_eq!(link.offered_packets, 3_000);
        assert_eq!(link.sent_packets, 3_000 - link.dropped_full);
        assert_eq!(link.sent_packets, link.delivered_packets + link.lost + link.corrupted);
        let numbers = run.agent::<Log>(log).unwrap().numbers();
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        assert_ne!(sorted, numbers, "some overtook others");
        sorted.dedup();
        assert_eq!(sorted.len() as u64, link.delivered_packets);
        assert!(numbers.len() > sorted.len(), "some came twice");
        assert_eq!(run.flow_counters(flow).delivered_packets, numbers.len() as u64);
        assert_eq!(run.usage().packets_under_way, 0);
    }
}

#[test]
fn reading_counters_changes_nothing() {
    let packets: Vec<_> = (0..500).map(|n| (n * 90, 100)).collect();
    let all = path(link(3).with_loss(LossConfig::Bernoulli(0.1)), &packets).arrivals();
    let path = path(link(3).with_loss(LossConfig::Bernoulli(0.1)), &packets);
    let mut run = path.network.build(Seed(1), 0).unwrap();
    for step in 0..10_000 {
        run.run_until(Instant::from_nanos(step * 77_777));
        run.link_counters(path.link);
    }
    run.run_until(millis(1_000));
    assert_eq!(run.agent::<Log>(path.log).unwrap().times(), all);
}

/// Packets of 100 us each, one in 99 us: 1 % too much for the link.
fn overload(seconds: u64) -> Vec<(u64, u32)> {
    (0..seconds * 1_000_000 / 99).map(|packet| (packet * 99, 100)).collect()
}

fn counters_after(duration: u64, path: Path) -> LinkCounters {
    let mut run = path.network.build(Seed(1), 0).unwrap();
    run.run_until(millis(duration));
    run.link_counters(path.link)
}

#[test]
fn codel_holds_the_wait_of_a_queue_that_drop_tail_fills() {
    let codel = |ecn| LinkQueue::Codel(CodelConfig { ecn, ..CodelConfig::new(1_000) });
    let counters = |queue: LinkQueue| counters_after(11_000, path(link(0).with_queue(queue), &overload(10)));
    let tail = counters(QueueConfig::drop_tail(500).into());
    let dropping = counters(codel(false));
    assert_eq!(tail.waiting_peak, 500);
    // Drops come at 10 sqrt(n) a second after n drops: 2 s until they take the 100 packets a second that are
    // too much, in which 100 packets wait more than at the target of 50.
    assert!((100..250).contains(&dropping.waiting_peak), "{}", dropping.waiting_peak);
    assert!(dropping.waiting_packet_nanos * 3 < tail.waiting_packet_nanos);
    assert!(dropping.dropped_early > 0 && dropping.dropped_full == 0);
    assert_eq!(dropping.delivered_packets + dropping.dropped_early, dropping.offered_packets);
    // Packets without ECN are dropped all the same, and no drop uses link time.
    assert_eq!(counters(codel(true)), dropping);
    assert_eq!(dropping.sent_packets, dropping.delivered_packets);
}

#[test]
fn a_packet_dropped_as_it_leaves_takes_no_link_time() {
    // 1 ms of target and of interval: a packet that waited for 3 ms is the first to be dropped.
    let config = CodelConfig {
        target: Duration::from_micros(1_500),
        interval: Duration::from_millis(1),
        ..CodelConfig::new(100)
    };
    let config = link(0).with_queue(LinkQueue::Codel(config));
    // Each takes 1 ms. Waits of 0 to 9 ms: 2 ms is above the target first, 3 ms after an interval.
    let arrivals = path(config, &[(0, 1_000); 10]).arrivals();
    let millis: Vec<u64> = arrivals.iter().map(|nanos| nanos / 1_000_000).collect();
    // Drops: the 4th (at 3 ms), the next after 1 ms (the 6th, at 4 ms), the next after 0.7 ms (the 8th, at 5
    // ms); then all that wait is a packet.
    assert_eq!(millis, [2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_policer_passes_its_rate_and_burst_at_the_speed_of_the_link() {
    let rate = Rate::from_kilobits(800);
    let policer = PolicerConfig { rate, burst_bytes: 1_000, limit: Limit::Packets(50) };
    let config = link(0).with_queue(LinkQueue::Policer(policer));
    let counters = counters_after(2_000, path(config, &overload(1)));
    // A tenth of a byte in a microsecond until the last arrival, at 0.99999 s; and the burst.
    assert_eq!(counters.delivered_packets, 10 + 999);
    assert_eq!(counters.delivered_packets + counters.dropped_full, counters.offered_packets);
    assert!(counters.waiting_peak <= 10);
}
