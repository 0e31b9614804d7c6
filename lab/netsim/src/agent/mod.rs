//! Agents: traffic sources and sinks at nodes.

mod aggregator;
mod cbr;
mod control;
mod hosted;
mod known;
mod on_off;
mod outbox;
mod pgm;
mod router;
mod short;
mod sink;
mod tcp;

use std::any::Any;

use headwater_proto::{Ecn, Instant, InterfaceId};

use crate::engine::Packet;

pub use aggregator::NakAggregator;
pub use cbr::{Cbr, Shape};
pub use control::{ControlReceiver, ControlSender, Silence};
pub use hosted::{EVENTS_MAX, Hosted, Ports, Told, UDP_HEADER_BYTES};
pub use known::{KnownStore, Originals, ZeroSource};
pub use on_off::{OnOff, Period};
pub use outbox::{DatagramHead, Outbox};
pub use pgm::{Forget, GreedySource};
pub use router::RouterNode;
pub use short::{OPEN_MAX, ShortFlows, ShortFlowsConfig, ShortFlowsSink, ShortFlowsTotals, SizeOf};
pub use sink::Sink;
pub use tcp::{TcpConnection, TcpSink, TcpSource};

/// A packet that reached an agent.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The packet.
    pub packet: &'a Packet,
    /// The UDP payload of a datagram; empty for all else.
    pub payload: &'a [u8],
    /// ECN field on arrival.
    pub ecn: Ecn,
    /// Interface of the node through which the packet arrived: interface i is the node's i-th link. `None`
    /// for a packet from an agent of the same node.
    pub ingress: Option<InterfaceId>,
}

/// Something at a node that sends and receives: traffic, a hosted machine, a router's program.
///
/// All times are the agent's own clock's, which a plan may set off from the simulation's.
pub trait Agent: Any {
    /// The agent's time has come. Called once, before anything else.
    fn start(&mut self, outbox: &mut Outbox<'_>);

    /// A packet arrived.
    fn receive(&mut self, arrival: Arrival<'_>, outbox: &mut Outbox<'_>);

    /// The instant of [`Self::next_timeout`] has come. The engine may also call at another instant; the agent
    /// then does nothing.
    fn timeout(&mut self, outbox: &mut Outbox<'_>);

    /// Returns the instant of the next call of [`Self::timeout`]; `None` for never. The engine asks after
    /// every call. If the instant is past, the call comes at once; directly after a timeout, the call comes a
    /// nanosecond later, so that time advances.
    fn next_timeout(&self) -> Option<Instant>;

    /// The agent is removed. No further call follows, and the engine leaves the agent's groups.
    fn stop(&mut self, _outbox: &mut Outbox<'_>) {}
}
