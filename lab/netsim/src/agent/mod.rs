//! What lives at nodes: things that send and receive.

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
    /// The ECN field it arrived with.
    pub ecn: Ecn,
    /// The interface of the node it came by: the node's i-th link. `None` from an agent of the same node.
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

    /// The instant of [`Self::next_timeout`] has come; or another one, then nothing is to be done.
    fn timeout(&mut self, outbox: &mut Outbox<'_>);

    /// When to call [`Self::timeout`]; `None` for never. Asked after every call; what is past comes at once,
    /// and after a timeout a nanosecond later, so that time goes on.
    fn next_timeout(&self) -> Option<Instant>;

    /// The agent is taken out: nothing will be called any more, and its groups are left for it.
    fn stop(&mut self, _outbox: &mut Outbox<'_>) {}
}
