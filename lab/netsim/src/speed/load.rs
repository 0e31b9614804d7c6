//! The loads on the engine.

use headwater_proto::queue::QueueConfig;
use headwater_proto::{ChannelId, Duration, Instant, Seed};

use super::{
    ACCESS_DELAY, ACCESS_RATE, BOTTLENECK_DELAY, BOTTLENECK_RATE, Leaves, PAIRS, QUEUE_PACKETS, STAR_BYTES,
    STAR_DELAY, STAR_LINK_RATE, STAR_RATE,
};
use crate::agent::{Cbr, Sink, TcpConnection};
use crate::engine::{Destination, Run};
use crate::network::{Builder, LinkConfig};
use crate::tcp::{Data, Profile};

/// Ready to run: 17 greedy SACK connections of profile `ns2005`, 1040 bytes a segment on the wire, over 34
/// Mbit/s with 125 packets of queue and 40 ms of round trip.
#[must_use]
pub fn dumbbell() -> Run {
    let mut network = Builder::new();
    let access = LinkConfig::new(ACCESS_RATE, ACCESS_DELAY).with_queue(QueueConfig::drop_tail(QUEUE_PACKETS));
    let bottleneck =
        LinkConfig::new(BOTTLENECK_RATE, BOTTLENECK_DELAY).with_queue(QueueConfig::drop_tail(QUEUE_PACKETS));
    let [left, right] = ["left", "right"].map(|name| network.node(name));
    network.link("bottleneck", left, right, bottleneck.clone(), bottleneck);
    for pair in 0..PAIRS {
        let [from, to] = ["from", "to"].map(|name| network.node(&format!("{name}{pair}")));
        network.link(&format!("up{pair}"), from, left, access.clone(), access.clone());
        network.link(&format!("down{pair}"), right, to, access.clone(), access.clone());
        let name = format!("tcp{pair}");
        let jitter = Seed(1).stream(&format!("{name}/overhead"), 0);
        let config = Profile::Ns2005.config();
        let connection =
            TcpConnection::declare(&mut network, &name, (from, to), &config, Data::Greedy, jitter)
                .expect("a profile passes its own check");
        network.start_at(
            connection.source,
            Instant::ZERO + Duration::from_millis(7).saturating_mul(pair.into()),
        );
    }
    network.build(Seed(1), 0).expect("17 pairs of nodes with names of their own, joined")
}

/// Ready to run: 1 Mbit/s of 1000-byte packets to a group that an agent at each of `leaves` leaves has
/// joined; the first packet leaves when all have.
#[must_use]
pub fn star(leaves: u32, kind: Leaves) -> Run {
    let mut network = Builder::new();
    let link =
        |delay| LinkConfig::new(STAR_LINK_RATE, delay).with_queue(QueueConfig::drop_tail(QUEUE_PACKETS));
    let [source, hub] = ["source", "hub"].map(|name| network.node(name));
    network.link("first", source, hub, link(STAR_DELAY), link(STAR_DELAY));
    let group = network.session("session", source, 1).group(ChannelId::BASE).expect("it has a channel");
    for leaf in 0..leaves {
        let node = network.node(&format!("leaf{leaf}"));
        network.link(&format!("last{leaf}"), hub, node, link(kind.delay(leaf)), link(kind.delay(leaf)));
        network.agent(&format!("sink{leaf}"), node, Sink::of_groups(vec![group]));
    }
    let flow = network.flow("cbr");
    let cbr = Cbr::new(flow, Destination::Group(group), STAR_RATE, STAR_BYTES, 28);
    let source = network.agent("cbr", source, cbr);
    network.start_at(source, Instant::ZERO + Duration::from_millis(100));
    network.build(Seed(1), 0).expect("a star of nodes with names of their own")
}
