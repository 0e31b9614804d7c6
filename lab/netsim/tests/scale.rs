//! Ten thousand receivers: what they take, by an allocator that counts, and that they work.

#![expect(unsafe_code, reason = "an allocator that counts calls that of the system")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use headwater_netsim::agent::{Cbr, Hosted, Ports, Sink, UDP_HEADER_BYTES};
use headwater_netsim::engine::Run;
use headwater_netsim::network::LossConfig;
use headwater_netsim::network::{Builder, LinkConfig};
use headwater_netsim::speed::{Fleet, Leaves, star};
use headwater_proto::{
    ChannelId, Destination, Duration, Ecn, Input, Instant, Machine, Output, Rate, Seed, Transmit,
};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator as it came. What grows is counted by the default
// `realloc`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counters any more.
        let _ending = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        let _ending = BYTES.try_with(|bytes| bytes.set(bytes.get() + layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let _ending = BYTES.try_with(|bytes| bytes.set(bytes.get().saturating_sub(layout.size())));
        // SAFETY: the pointer came from `alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// Allocations and bytes held at the end of `work`.
fn cost<T>(work: impl FnOnce() -> T) -> (u64, usize, T) {
    let (allocations, bytes) = (ALLOCATIONS.get(), BYTES.get());
    let result = work();
    (ALLOCATIONS.get() - allocations, BYTES.get() - bytes, result)
}

/// A star up to when its packets flow: routes are known, and all have joined.
fn started(leaves: u32) -> Run {
    let mut run = star(leaves, Leaves::Level);
    run.run_until(at(1_000));
    let joined = run.names().agents.iter().filter(|name| name.starts_with("sink")).count();
    assert_eq!(joined, leaves as usize);
    run
}

#[test]
fn an_idle_receiver_takes_less_than_two_kibibytes() {
    let (_, bytes, run) = cost(|| started(10_000));
    let each = bytes / 10_000;
    assert!(
        each < 2_048,
        "{each} bytes for each of 10 000 receivers: node, two link directions, group, agent"
    );
    drop(run);
}

#[test]
fn start_up_is_linear() {
    // Powers of two, so that the growth of vectors is in the same phase.
    let (few, few_bytes, _run) = cost(|| started(1_024));
    let (many, many_bytes, _run) = cost(|| started(8_192));
    assert!(many <= 9 * few, "{few} allocations for 1024 leaves, {many} for 8192");
    assert!(many_bytes <= 9 * few_bytes, "{few_bytes} bytes for 1024 leaves, {many_bytes} for 8192");
}

/// A balanced binary tree with a sink at each leaf, closed by one more link to a graph with cycles.
fn graph(leaves: u32) -> Run {
    let mut network = Builder::new();
    let link = LinkConfig::new(Rate::from_kilobits(10_000), Duration::from_millis(1));
    let nodes: Vec<_> = (1..2 * leaves).map(|index| network.node(&format!("n{index}"))).collect();
    for child in 2..2 * leaves {
        let [upper, lower] = [child / 2 - 1, child - 1].map(|index| nodes[index as usize]);
        network.link(&format!("l{child}"), upper, lower, link.clone(), link.clone());
    }
    network.link("cycle", nodes[2], nodes[5], link.clone(), link);
    let group = network.session("session", nodes[0], 1).group(ChannelId::BASE).unwrap();
    for leaf in leaves..2 * leaves {
        network.agent(&format!("sink{leaf}"), nodes[leaf as usize - 1], Sink::of_groups(vec![group]));
    }
    let flow = network.flow("cbr");
    let to = headwater_netsim::engine::Destination::Group(group);
    network.agent("cbr", nodes[0], Cbr::new(flow, to, Rate::from_kilobits(1_000), 1_000, 28));
    let mut run = network.build(Seed(1), 0).unwrap();
    run.run_until(at(500));
    assert!(run.flow_counters(flow).delivered_packets > u64::from(leaves));
    run
}

#[test]
fn start_up_of_a_graph_with_cycles_is_linear() {
    let (_, few, _run) = cost(|| graph(512));
    let (_, many, _run) = cost(|| graph(4_096));
    assert!(many <= 9 * few, "{few} bytes for 1023 nodes, {many} for 8191");
}

/// Sends a full datagram each millisecond.
struct Ticker(u64);

impl Machine for Ticker {
    type Event = ();

    fn handle(&mut self, _: Instant, _: Input<'_>) {}

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<()>> {
        if at(self.0) > now {
            return None;
        }
        buffer[..1_400].fill(self.0.to_le_bytes()[0]);
        self.0 += 1;
        let destination = Destination::Channel(ChannelId::BASE);
        Some(Output::Transmit(Transmit { destination, bytes: 1_400, ecn: Ecn::NotCapable }))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(at(self.0))
    }
}

#[test]
fn nothing_is_allocated_per_hop() {
    let mut network = Builder::new();
    let link = LinkConfig::new(Rate::from_kilobits(20_000), Duration::from_millis(10))
        .with_loss(LossConfig::Bernoulli(0.02));
    let [source, hub] = ["source", "hub"].map(|name| network.node(name));
    network.link("first", source, hub, link.clone(), link.clone());
    let session = network.session("session", source, 1);
    let flow = network.flow("session");
    let ports = Ports { flow, session, header_bytes: UDP_HEADER_BYTES };
    for leaf in 0..50 {
        let node = network.node(&format!("leaf{leaf}"));
        network.link(&format!("last{leaf}"), hub, node, link.clone(), link.clone());
        let group = session.group(ChannelId::BASE).unwrap();
        let sink = network.agent(&format!("sink{leaf}"), node, Sink::of_groups(vec![group]));
        let back = network.flow(&format!("back{leaf}"));
        let to = network.destination(sink);
        // Unicast beside the multicast, more than its link carries, so that queues are full.
        network.agent(&format!("cbr{leaf}"), source, Cbr::new(back, to, Rate::from_kilobits(500), 900, 28));
    }
    network.agent("ticker", source, Hosted::new(Ticker(0), ports));
    let mut run = network.build(Seed(1), 0).unwrap();
    run.run_until(at(5_000));
    let before = run.usage().packet_hops;
    let (allocations, _, ()) = cost(|| run.run_until(at(10_000)));
    let hops = run.usage().packet_hops - before;
    assert!(hops > 100_000, "{hops} hops");
    assert!(run.flow_counters(flow).dropped_packets > 1_000);
    assert_eq!(allocations, 0, "in {hops} hops");
}

#[test]
fn ten_thousand_receivers_end_whole() {
    let (_, bytes, mut fleet) = cost(|| Fleet::new(10_000, 40, 0.02));
    fleet.run.run_until(fleet.end);
    assert_eq!(fleet.whole(), 10_000);
    // The receivers' own state is theirs, not the engine's; it is bounded by what the machine says of itself.
    assert!(bytes / 10_000 < 8_192, "{} bytes for each receiver, its machine included", bytes / 10_000);
}
