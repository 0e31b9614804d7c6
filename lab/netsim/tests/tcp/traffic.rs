//! Cross traffic: on-off sources, noisy constant rates, short connections.

use headwater_netsim::agent::{Cbr, OnOff, Period, Shape, ShortFlows, ShortFlowsConfig, Sink, SizeOf};
use headwater_netsim::engine::Destination;
use headwater_netsim::network::LossConfig;
use headwater_netsim::network::{AgentId, Builder, FlowId, LinkConfig, NodeId};
use headwater_netsim::tcp::Profile;
use headwater_proto::queue::QueueConfig;
use headwater_proto::{Duration, Rate, Seed};

use super::bed::{assert_between, at};

/// Two nodes and a link that nothing fills.
fn pair(loss: f64) -> (Builder, NodeId, NodeId) {
    let mut network = Builder::new();
    let (a, b) = (network.node("a"), network.node("b"));
    let there = LinkConfig::new(Rate::from_kilobits(100_000), Duration::from_millis(10))
        .with_queue(QueueConfig::drop_tail(1_000))
        .with_loss(LossConfig::Bernoulli(loss));
    network.link("a-b", a, b, there.clone(), there);
    (network, a, b)
}

/// A flow to a listening agent.
fn target(network: &mut Builder, node: NodeId) -> (FlowId, Destination) {
    let flow = network.flow("flow");
    let sink: AgentId = network.agent("sink", node, Sink::new());
    (flow, network.destination(sink))
}

#[test]
fn noise_keeps_the_mean_rate() {
    let (mut network, a, b) = pair(0.0);
    let (flow, to) = target(&mut network, b);
    let cbr = Cbr::new(flow, to, Rate::from_kilobits(800), 1_000, 0).with_noise(Seed(1).stream("noise", 0));
    network.agent("source", a, cbr);
    let mut run = network.build(Seed(1), 0).unwrap();
    run.run_until(at(1_000.0));
    // 100 packets/s; the standard deviation of 100 000 spacings is 0.1 % of their sum.
    assert_between("noisy", "packets", run.flow_counters(flow).sent_packets as f64, 99_700.0, 100_300.0);
}

#[test]
fn an_on_off_source_sends_its_share_of_the_rate() {
    let (on, off) = (Duration::from_millis(500), Duration::from_millis(1_500));
    for (name, periods, tolerance) in [
        ("exponential", (Period::Exponential(on), Period::Exponential(off)), 0.05),
        ("Pareto", (Period::Pareto(on, 2.5), Period::Pareto(off, 2.5)), 0.05),
    ] {
        for seed in 1..=3 {
            let (mut network, a, b) = pair(0.0);
            let (flow, to) = target(&mut network, b);
            let shape = Shape { wire_bytes: 1_000, header_bytes: 28 };
            let rate = Rate::from_kilobits(800);
            let source = OnOff::new(flow, to, (rate, shape), periods, Seed(seed).stream("periods", 0));
            network.agent("source", a, source);
            let mut run = network.build(Seed(seed), 0).unwrap();
            run.run_until(at(10_000.0));
            // 100 packets/s a quarter of the time. 5000 periods of either kind: 2 % standard deviation.
            let sent = run.flow_counters(flow).sent_packets as f64;
            assert_between(name, "packets", sent / 250_000.0, 1.0 - tolerance, 1.0 + tolerance);
        }
    }
}

/// M2C's background: 10 connections a minute of 3.16 KB each, exponential.
fn background(
    loss: f64,
    open_max: u32,
    mean_gap: Duration,
    size: SizeOf,
) -> (headwater_netsim::engine::Run, AgentId) {
    let (mut network, a, b) = pair(loss);
    let tcp = Profile::Linux.config();
    let config = ShortFlowsConfig { mean_gap, size, open_max, tcp };
    let (_, source) =
        ShortFlows::declare(&mut network, "short", (a, b), config, |name| Seed(1).stream(name, 0)).unwrap();
    (network.build(Seed(1), 0).unwrap(), source)
}

#[test]
fn short_connections_come_at_their_rate_and_size_and_end() {
    let (mut run, source) = background(0.02, 64, Duration::from_secs(6), SizeOf::Exponential(3_160.0));
    run.run_until(at(60_000.0));
    let totals = *run.agent::<ShortFlows>(source).unwrap().totals();
    // 10 000 expected.
    assert_between("background", "arrivals", totals.arrived as f64, 9_600.0, 10_400.0);
    assert_between(
        "background",
        "ended",
        totals.finished as f64,
        totals.arrived as f64 - 5.0,
        totals.arrived as f64,
    );
    let mean = totals.finished_bytes as f64 / totals.finished as f64;
    assert_between("background", "mean size", mean, 3_000.0, 3_320.0);
}

#[test]
fn connections_beyond_the_limit_wait_their_turn() {
    // One at a time, each of some 5 round trips of 20 ms, arriving every 10 ms: most wait.
    let (mut run, source) = background(0.0, 1, Duration::from_millis(10), SizeOf::Pareto(20_000.0, 1.5));
    run.run_until(at(20.0));
    let totals = *run.agent::<ShortFlows>(source).unwrap().totals();
    assert!(totals.finished > 100, "{totals:?}");
    assert_eq!(totals.arrived - totals.finished - totals.waiting, 1, "one is open: {totals:?}");
}

#[test]
fn nonsense_is_refused() {
    let (mut network, a, b) = pair(0.0);
    let tcp = Profile::Linux.config();
    let good = ShortFlowsConfig {
        mean_gap: Duration::from_secs(1),
        size: SizeOf::Exponential(1.0),
        open_max: 1,
        tcp,
    };
    let mut refused = |config: ShortFlowsConfig| {
        ShortFlows::declare(&mut network, "short", (a, b), config, |name| Seed(1).stream(name, 0))
            .unwrap_err()
            .field
    };
    assert_eq!(refused(ShortFlowsConfig { open_max: 0, ..good.clone() }), "open_max");
    assert_eq!(refused(ShortFlowsConfig { size: SizeOf::Pareto(1.0, 1.0), ..good.clone() }), "size");
    assert_eq!(refused(ShortFlowsConfig { size: SizeOf::Exponential(f64::NAN), ..good.clone() }), "size");
    assert_eq!(refused(ShortFlowsConfig { mean_gap: Duration::ZERO, ..good.clone() }), "mean_gap");
    let mut tcp = good.tcp.clone();
    tcp.maximum_window = 0;
    assert_eq!(refused(ShortFlowsConfig { tcp, ..good }), "maximum_window");
}
