//! EXPRESS channels, and PGM-like repair, over routers of breadcrumbs at simulated nodes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;

use headwater_baselines::bcfs::express::{Member, Membership, Publisher};
use headwater_baselines::bcfs::repair::{RepairReceiver, RepairSource};
use headwater_netsim::agent::{Hosted, Ports, UDP_HEADER_BYTES};
use headwater_netsim::engine::Run;
use headwater_netsim::network::LossConfig;
use headwater_netsim::network::{AgentId, Builder, Event, LinkConfig, NodeId};
use headwater_proto::bcfs::{BreadcrumbRouter, Label, ReplyTo, RouterConfig, RouterCounters};
use headwater_proto::{ChannelId, Duration, Input, Instant, InterfaceId, Machine, Output, Rate, Seed};

const CHANNEL: Label = Label(5);
const TO_ROUTERS: ReplyTo = ReplyTo::Channel(ChannelId::BASE);
/// Each with four receivers, below one router that is next to the source.
const ROUTERS: usize = 3;
const RECEIVERS: usize = 4 * ROUTERS;
const CONTENT: [u8; 500] = [7; 500];
const WINDOW: u32 = 200;

type Sink = Box<dyn FnMut(u64, &[u8])>;
type Router = Hosted<BreadcrumbRouter<InterfaceId>>;

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// Has a source say something each 10 ms, so often.
struct Talker<M> {
    machine: M,
    say: fn(&mut M) -> bool,
    left: u32,
    due: Instant,
}

impl<M: Machine> Machine for Talker<M> {
    type Event = M::Event;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.machine.handle(now, input);
        while self.left > 0 && self.due <= now {
            assert!((self.say)(&mut self.machine));
            self.left -= 1;
            self.due += Duration::from_millis(10);
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<M::Event>> {
        self.machine.poll_output(now, buffer)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (self.left > 0).then_some(self.due)
    }
}

/// The tree, and where its parts are.
struct Bed {
    network: Builder,
    source: NodeId,
    leaves: Vec<NodeId>,
    routers: Vec<NodeId>,
    ports: Ports,
}

impl Bed {
    /// So much is lost on each link but the topmost, in both directions.
    fn new(loss: f64) -> Self {
        let mut network = Builder::new();
        let source = network.node("source");
        let routers: Vec<_> = (0..=ROUTERS).map(|i| network.node(&format!("router {i}"))).collect();
        let leaves: Vec<_> = (0..RECEIVERS).map(|i| network.node(&format!("leaf {i}"))).collect();
        let link = || LinkConfig::new(Rate::from_kilobits(10_000), Duration::from_millis(5));
        let lossy = || link().with_loss(LossConfig::Bernoulli(loss));
        // Interface 0 of each router leads up.
        network.link("top", routers[0], source, link(), link());
        for router in 1..=ROUTERS {
            network.link(&format!("middle {router}"), routers[router], routers[0], lossy(), lossy());
        }
        for (i, leaf) in leaves.iter().enumerate() {
            network.link(&format!("leaf {i}"), routers[1 + i / 4], *leaf, lossy(), lossy());
        }
        let flow = network.flow("bcfs");
        let session = network.session("bcfs", source, 1);
        let ports = Ports { flow, session, header_bytes: UDP_HEADER_BYTES };
        Self { network, source, leaves, routers, ports }
    }

    /// Of the first agent at the source's node.
    fn source_address(&self) -> SocketAddr {
        SocketAddr::new(self.network.host(self.source), 10_000)
    }

    fn put_routers(&mut self) -> Vec<AgentId> {
        let (network, ports) = (&mut self.network, self.ports);
        let put = |node: &NodeId| {
            let router = BreadcrumbRouter::new(RouterConfig::default(), InterfaceId(0));
            let agent = network.agent(&format!("of {}", node.index()), *node, Hosted::router(router, ports));
            network.route(agent, ports.flow);
            agent
        };
        self.routers.iter().map(put).collect()
    }
}

fn counters(run: &Run, router: AgentId) -> RouterCounters {
    *run.agent::<Router>(router).expect("a router").machine().counters()
}

#[test]
fn a_message_of_a_channel_crosses_each_link_once_and_only_to_members() {
    let mut bed = Bed::new(0.0);
    let routers = bed.put_routers();
    let address = bed.source_address();
    let say = |publisher: &mut Publisher| publisher.publish(&CONTENT);
    let publisher = Publisher::new(Some(address), TO_ROUTERS, CHANNEL);
    let talker = Talker { machine: publisher, say, left: 4_000, due: at(1_000) };
    bed.network.agent("source", bed.source, Hosted::new(talker, bed.ports));
    let heard = Rc::new(RefCell::new([0_u32; RECEIVERS]));
    for i in 0..RECEIVERS {
        let heard = Rc::clone(&heard);
        let membership = Membership::new(address, address, CHANNEL, Instant::ZERO);
        let member = Member::new(membership, Some(ChannelId::BASE), move |content: &[u8]| {
            assert_eq!(content, CONTENT);
            heard.borrow_mut()[i] += 1;
        });
        let name = format!("member {i}");
        let agent = bed.network.agent(&name, bed.leaves[i], Hosted::new(member, bed.ports));
        if i >= 8 {
            // Those below the last router fall silent, and their breadcrumbs expire after 10 s.
            bed.network.at(at(9_010), Event::Stop(agent));
        }
    }
    let mut run = bed.network.build(Seed(1), 0).unwrap();
    run.run_until(at(60_000));
    assert_eq!(heard.borrow()[..8], [4_000; 8]);
    assert_eq!(heard.borrow()[8..], [800; 4], "until they went");
    let [top, stays, goes] = [0, 1, 3].map(|router| counters(&run, routers[router]));
    assert_eq!((top.replies, stays.replies, stays.forwarded), (4_000, 4_000, 4 * 4_000));
    assert!((1_500..1_700).contains(&goes.replies), "{} passed after they went", goes.replies - 800);
    assert_eq!(top.forwarded, stays.replies * 2 + goes.replies, "each once on each link");
    assert!(top.nulls < 60 && stays.nulls < 100, "a null in 3.3 s from each, {top:?}");
    assert_eq!(top.dropped.total() + stays.dropped.total(), 0);
}

#[test]
fn what_is_missed_is_repaired_by_a_reply_to_those_who_miss_it() {
    let mut bed = Bed::new(0.02);
    bed.put_routers();
    let address = bed.source_address();
    let source = RepairSource::new(Some(address), TO_ROUTERS, WINDOW);
    let say = |source: &mut RepairSource| source.send(&CONTENT);
    let talker = Talker { machine: source, say, left: 4_000, due: at(1_000) };
    let sender = bed.network.agent("source", bed.source, Hosted::new(talker, bed.ports));
    let heard: [_; RECEIVERS] = std::array::from_fn(|_| Rc::new(RefCell::new(BTreeSet::new())));
    let agents: Vec<_> = heard
        .iter()
        .enumerate()
        .map(|(i, heard)| {
            let heard = Rc::clone(heard);
            let sink: Sink = Box::new(move |number, content| {
                assert_eq!(content, CONTENT);
                assert!(heard.borrow_mut().insert(number), "{number} came twice");
            });
            let (ends, repeat) = ((address, address), Duration::from_millis(150));
            let group = Some(ChannelId::BASE);
            let receiver = RepairReceiver::new(ends, group, WINDOW, repeat, Instant::ZERO, sink);
            bed.network.agent(&format!("receiver {i}"), bed.leaves[i], Hosted::new(receiver, bed.ports))
        })
        .collect();
    let mut run = bed.network.build(Seed(1), 0).unwrap();
    run.run_until(at(60_000));

    let source = run.agent::<Hosted<Talker<RepairSource>>>(sender).expect("the source").machine();
    let of = |agent: &AgentId| {
        *run.agent::<Hosted<RepairReceiver<Sink>>>(*agent).expect("a receiver").machine().counters()
    };
    let (mut missed, mut naks, mut superfluous) = (0, 0, 0);
    for (agent, heard) in agents.iter().zip(&heard) {
        let counters = of(agent);
        // From the first that came, after a null got through, to about the last; the very last may be lost
        // with nothing behind to show it.
        let heard = heard.borrow();
        let (first, last) = (*heard.first().unwrap(), *heard.last().unwrap());
        assert!(first < 1_000 && last >= 3_990, "{first} to {last}");
        assert_eq!(heard.len() as u64, last - first + 1, "{counters:?}");
        assert_eq!(counters.lost, 0);
        missed += counters.missed;
        naks += counters.naks;
        superfluous += counters.superfluous;
    }
    assert!(missed > 1_200, "2 % on two links, of 48000: {missed}");
    let repairs = source.machine.repairs();
    assert!(repairs * 4 < 3 * naks, "routers hold equal NAKs back: {repairs} of {naks}");
    assert!(superfluous * 10 < missed, "repairs go to those who asked: {superfluous} others");
}
