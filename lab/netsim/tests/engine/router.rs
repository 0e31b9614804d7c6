//! A router's program at a node: what it absorbs, marks and sends by itself.

use headwater_netsim::agent::{Hosted, Ports, RouterNode, UDP_HEADER_BYTES};
use headwater_netsim::network::{Builder, LinkConfig};
use headwater_proto::{
    ChannelId, Datagram, Destination, Duration, Ecn, Input, Instant, InterfaceId, Machine, Output, Rate,
    RouterOutput, Seed, Transmit,
};

use crate::script::millis;

/// Counts to ten on the base channel, a number each 10 ms.
struct Counter(u8);

impl Machine for Counter {
    type Event = ();

    fn handle(&mut self, _: Instant, _: Input<'_>) {}

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<()>> {
        if Instant::ZERO + self.due() > now || self.0 == 10 {
            return None;
        }
        buffer[0] = self.0;
        self.0 += 1;
        let destination = Destination::Channel(ChannelId::BASE);
        Some(Output::Transmit(Transmit { destination, bytes: 1, ecn: Ecn::Capable0 }))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (self.0 < 10).then(|| Instant::ZERO + self.due())
    }
}

impl Counter {
    fn due(&self) -> Duration {
        Duration::from_millis(100 + 10 * u64::from(self.0))
    }
}

/// Forwards even numbers to interface 1, marked, and to interface 2, unmarked; answers odd ones by interface
/// 2 with the number doubled. Whatever comes by those two it tells.
#[derive(Default)]
struct Parity {
    outputs: Vec<(u8, Option<Output<u8>>)>,
}

impl Machine for Parity {
    type Event = u8;

    fn handle(&mut self, _: Instant, input: Input<'_>) {
        let Input::Routed(ingress, Datagram { payload, .. }) = input else { return };
        let number = payload[0];
        let forward =
            |egress, ecn| Some(Output::Router(RouterOutput::Forward { egress: InterfaceId(egress), ecn }));
        self.outputs = match (ingress, number % 2) {
            (InterfaceId(0), 0) => {
                vec![(0, forward(2, Ecn::Capable0)), (0, forward(1, Ecn::CongestionExperienced))]
            }
            (InterfaceId(0), _) => vec![(2 * number, None)],
            _ => vec![(0, Some(Output::Event(number)))],
        };
    }

    fn poll_output(&mut self, _: Instant, buffer: &mut [u8]) -> Option<Output<u8>> {
        let (number, output) = self.outputs.pop()?;
        buffer[0] = number;
        let destination = Destination::Channel(ChannelId::BASE);
        let transmit = Transmit { destination, bytes: 1, ecn: Ecn::NotCapable };
        Some(output.unwrap_or(Output::Router(RouterOutput::Transmit { egress: InterfaceId(2), transmit })))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Joins the base channel and notes numbers and marks. Answers the first one to its source.
#[derive(Default)]
struct Notes {
    joined: bool,
    seen: Vec<(u8, Ecn)>,
    answer: Option<std::net::SocketAddr>,
}

impl Machine for Notes {
    type Event = (u8, Ecn);

    fn handle(&mut self, _: Instant, input: Input<'_>) {
        if let Input::Datagram(datagram) = input {
            assert_eq!(datagram.channel, Some(ChannelId::BASE));
            if self.seen.is_empty() {
                self.answer = Some(datagram.source);
            }
            self.seen.push((datagram.payload[0], datagram.ecn));
        }
    }

    fn poll_output(&mut self, _: Instant, buffer: &mut [u8]) -> Option<Output<Self::Event>> {
        if !std::mem::replace(&mut self.joined, true) {
            return Some(Output::Join(ChannelId::BASE));
        }
        let destination = Destination::Unicast(self.answer.take()?);
        buffer[0] = 99;
        Some(Output::Transmit(Transmit { destination, bytes: 1, ecn: Ecn::NotCapable }))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

#[test]
fn a_router_absorbs_marks_and_sends() {
    let mut network = Builder::new();
    let [source, hub, x, y] = ["source", "hub", "x", "y"].map(|name| network.node(name));
    let config = LinkConfig::new(Rate::from_kilobits(1_000), Duration::from_millis(1));
    for (name, node) in [("source", source), ("x", x), ("y", y)] {
        network.link(name, hub, node, config.clone(), config.clone());
    }
    let flow = network.flow("session");
    let session = network.session("session", source, 1);
    let ports = Ports { flow, session, header_bytes: UDP_HEADER_BYTES };
    network.agent("sender", source, Hosted::new(Counter(0), ports));
    let router = network.agent("router", hub, RouterNode::new(Parity::default(), ports));
    network.route(router, flow);
    let receivers = [x, y].map(|node| {
        let name = format!("receiver {}", node.index());
        network.agent(&name, node, Hosted::new(Notes::default(), ports))
    });
    let mut run = network.build(Seed(1), 0).unwrap();
    run.run_until(millis(1_000));

    let seen = receivers.map(|agent| run.agent::<Hosted<Notes>>(agent).unwrap().machine().seen.clone());
    let marked: Vec<_> = [0, 2, 4, 6, 8].map(|number| (number, Ecn::CongestionExperienced)).to_vec();
    assert_eq!(seen[0], marked);
    let both = |n: u8| if n.is_multiple_of(2) { (n, Ecn::Capable0) } else { (2 * n, Ecn::NotCapable) };
    assert_eq!(seen[1], (0..10).map(both).collect::<Vec<_>>());
    // The answers to the source came into the router's hands, and went no further.
    let told: Vec<_> = run.agent::<RouterNode<Parity>>(router).unwrap().told().iter().cloned().collect();
    assert_eq!(told.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [99, 99]);
    assert_eq!(run.usage().packets_under_way, 0);
}
