//! Trees that grow and shrink in time.

use headwater_netsim::engine::{Destination, Run};
use headwater_netsim::network::{AgentId, Builder, LinkConfig, LinkId, NodeId, Session};
use headwater_proto::queue::QueueConfig;
use headwater_proto::{ChannelId, Duration, Rate, Seed};

use crate::script::{Log, Sends, millis};

/// Source - r1 - r2 - {x, y}, each hop 10 ms, so fast that serialisation takes a nanosecond; graft delay 1
/// ms, leave latency 50 ms. Packets leave the source each millisecond, the n-th at n ms.
struct Tree {
    network: Builder,
    members: [NodeId; 2],
    links: Vec<LinkId>,
    group: headwater_netsim::network::GroupId,
}

fn tree() -> Tree {
    let mut network = Builder::new();
    let nodes = ["source", "r1", "r2", "x", "y"].map(|name| network.node(name));
    let fast = LinkConfig::new(Rate::from_bits(8_000_000_000).unwrap(), Duration::from_millis(10))
        .with_queue(QueueConfig::drop_tail(5));
    let ends = [(0, 1), (1, 2), (2, 3), (2, 4)];
    let join = |(a, b): (usize, usize)| {
        network.link(&format!("{a}-{b}"), nodes[a], nodes[b], fast.clone(), fast.clone())
    };
    let links = ends.map(join).to_vec();
    network.graft_delay(Duration::from_millis(1));
    network.leave_latency(Duration::from_millis(50));
    let group = network.session("session", nodes[0], 1).group(ChannelId::BASE).unwrap();
    let flow = network.flow("flow");
    let packets: Vec<_> = (0..1_000).map(|n| (n * 1_000, 1)).collect();
    network.agent("source", nodes[0], Sends::new(flow, Destination::Group(group), &packets));
    Tree { network, members: [nodes[3], nodes[4]], links, group }
}

impl Tree {
    fn member(&mut self, place: usize, joins: &[(u64, bool)]) -> AgentId {
        let log = Log::member(self.group, joins);
        let name = format!("member{}", self.network.names().agents.len());
        self.network.agent(&name, self.members[place], log)
    }

    fn run(self) -> Run {
        let mut run = self.network.build(Seed(1), 0).unwrap();
        run.run_until(millis(2_000));
        run
    }
}

fn first_and_last(run: &Run, agent: AgentId) -> (u64, u64) {
    let numbers = run.agent::<Log>(agent).unwrap().numbers();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "in order and without gaps");
    (numbers[0], *numbers.last().unwrap())
}

#[test]
fn a_join_walks_up_hop_by_hop_and_stops_at_the_tree() {
    let mut tree = tree();
    // Offset by half a millisecond, so that no message meets a packet at the same instant.
    let x = tree.member(0, &[(100_500, true)]);
    let y = tree.member(1, &[(200_500, true)]);
    let run = tree.run();
    // Three hops of 11 ms: the source forwards from 133.5 ms on.
    assert_eq!(first_and_last(&run, x).0, 134);
    // One hop: r2 forwards from 211.5 ms on what the source sent 20 ms before.
    assert_eq!(first_and_last(&run, y).0, 192);
    assert_eq!(run.agent::<Log>(y).unwrap().times()[0], 222_000_003);
}

#[test]
fn a_group_counts_what_is_sent_to_it_and_what_its_members_get() {
    let mut tree = tree();
    let group = tree.group;
    let members = [tree.member(0, &[(0, true)]), tree.member(1, &[(500_500, true)])];
    let run = tree.run();
    let counters = run.group_counters(group);
    assert_eq!(counters.sent_packets, 1_000);
    let received = members.map(|member| run.agent_counters(member).received_packets);
    assert!(received[0] > received[1] && received[1] > 400, "{received:?}");
    assert_eq!(counters.delivered_packets, received.iter().sum::<u64>());
}

#[test]
fn a_leave_takes_the_latency_at_the_last_hop_then_prunes_upward() {
    let mut tree = tree();
    let x = tree.member(0, &[(0, true), (300_500, false)]);
    let links = tree.links.clone();
    let mut run = tree.run();
    assert_eq!(first_and_last(&run, x).1, 270, "what arrives after the leave is not for the agent");
    // r2 stops at 300.5 + 11 + 50 ms, r1 11 ms later, the source another 11 ms later; the source begins at 33
    // ms, r1 with what arrives then, r2 as well.
    let sent = |run: &mut Run, link: LinkId| run.link_counters(link).offered_packets;
    assert_eq!(sent(&mut run, links[2]), 341 - 33 + 1);
    assert_eq!(sent(&mut run, links[1]), 362 - 33 + 1);
    assert_eq!(sent(&mut run, links[0]), 383 - 33 + 1);
    assert_eq!(sent(&mut run, links[3]), 0);
    let counters = run.agent_counters(x);
    assert_eq!((counters.joins, counters.leaves), (1, 1));
}

#[test]
fn coming_back_within_the_latency_cancels_the_leave() {
    let mut tree = tree();
    let x = tree.member(0, &[(0, true), (300_500, false), (340_500, true)]);
    let links = tree.links.clone();
    let mut run = tree.run();
    let numbers = run.agent::<Log>(x).unwrap().numbers();
    let gap = numbers.windows(2).find(|pair| pair[1] != pair[0] + 1).unwrap();
    assert_eq!(gap, [270, 311], "the flow was there all the time, only the agent was not");
    assert_eq!(run.link_counters(links[2]).offered_packets, 1_000 - 33);
}

#[test]
fn coming_back_after_the_latency_grafts_anew() {
    let mut tree = tree();
    // The join reaches r2 at 362.5 ms, the latency ended at 361.5: r2 stops, and its prune is on the way to
    // r1.
    let x = tree.member(0, &[(0, true), (300_500, false), (351_500, true)]);
    let run = tree.run();
    let numbers = run.agent::<Log>(x).unwrap().numbers();
    let gap = numbers.windows(2).find(|pair| pair[1] != pair[0] + 1).unwrap();
    // The prune reaches r1 at 372.5, the graft at 373.5: one packet, of 363 ms at the source, is missed by
    // r2.
    assert_eq!(gap[0], 270);
    assert!(numbers.contains(&364) && !numbers.contains(&363), "{gap:?}");
}

#[test]
fn a_branch_that_others_need_is_not_pruned() {
    let mut tree = tree();
    let _x = tree.member(0, &[(0, true), (300_500, false)]);
    let y = tree.member(1, &[(0, true)]);
    let also_y = tree.member(1, &[(0, true), (400_500, false)]);
    let run = tree.run();
    assert_eq!(first_and_last(&run, y), (33, 999));
    assert_eq!(first_and_last(&run, also_y).1, 370);
}

/// Routers know a session's layers by the last bits of its groups' addresses: no other session's may share
/// their block.
#[test]
fn aligned_sessions_share_no_block_of_addresses() {
    let mut network = Builder::new();
    let node = network.node("source");
    let plain = network.session("plain", node, 3);
    let aligned = network.aligned_session("aligned", node, 5, 3);
    let after = network.session("after", node, 4);
    let full = network.aligned_session("full", node, 8, 3);
    let next = network.session("next", node, 1);
    let blocks = |session: Session| -> Vec<u32> {
        session.groups().map(|group| group.address().to_bits() >> 3).collect()
    };
    assert_eq!(
        aligned.groups().map(|group| group.address().to_bits() & 7).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4]
    );
    for (session, others) in [(aligned, [plain, after, full, next]), (full, [plain, aligned, after, next])] {
        let block = blocks(session)[0];
        assert!(blocks(session).iter().all(|one| *one == block));
        assert!(others.into_iter().flat_map(blocks).all(|other| other != block));
    }
    // What follows keeps its names.
    let first = after.group(ChannelId(0)).unwrap();
    let run = network.build(Seed(1), 0).unwrap();
    assert_eq!(&*run.names().groups[first.index()], "after/0");
}
