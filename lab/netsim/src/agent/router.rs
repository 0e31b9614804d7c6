//! A router's program at a node.

use headwater_proto::{
    ChannelId, Destination, Input, Instant, InterfaceId, Machine, Output, RouterOutput, Transmit,
};

use super::hosted::{Ports, Told};
use super::{Agent, Arrival, Outbox};
use crate::network::FlowId;

/// A router machine at a node. The router receives the datagrams of the flows named by
/// [`Builder::route`](crate::network::Builder::route) that arrive through a link, and datagrams sent to the
/// router's own address; interface i is the node's i-th link. Datagrams that the router does not forward end
/// here.
///
/// Joins and leaves of receivers are handled by the network and do not reach the router. The router's own
/// joins are joins of a member at the node, whatever the interface, because only one path leads to a source.
#[derive(Debug)]
pub struct RouterNode<R: Machine> {
    router: R,
    ports: Ports,
    /// Flow that counts datagrams the router itself sends to channels.
    channels: FlowId,
    told: Told<R::Event>,
    misdirected: u64,
}

impl<R: Machine> RouterNode<R> {
    /// Runs `router`, which must have been created for the instant at which its agent starts, by the agent's
    /// clock.
    pub fn new(router: R, ports: Ports) -> Self {
        Self { router, ports, channels: ports.flow, told: Told::default(), misdirected: 0 }
    }

    /// Counts datagrams that the router itself sends to channels under `flow` instead of the flow of `ports`.
    #[must_use]
    pub const fn with_channels(mut self, flow: FlowId) -> Self {
        self.channels = flow;
        self
    }

    /// The program.
    pub const fn router(&self) -> &R {
        &self.router
    }

    /// Events of the router.
    pub const fn told(&self) -> &Told<R::Event> {
        &self.told
    }

    /// Outputs that led nowhere: to an interface, an address or a channel that is not there.
    pub const fn misdirected(&self) -> u64 {
        self.misdirected
    }

    fn give(&mut self, ingress: InterfaceId, input: Input<'_>, outbox: &mut Outbox<'_>) {
        let now = outbox.now();
        self.router.handle(now, input);
        while let Some(output) = self.router.poll_output(now, outbox.room()) {
            self.put(ingress, output, outbox);
        }
    }

    fn put(&mut self, ingress: InterfaceId, output: Output<R::Event>, outbox: &mut Outbox<'_>) {
        let led_somewhere = match output {
            Output::Router(RouterOutput::Pass { ecn }) => outbox.pass(ingress, ecn),
            Output::Router(RouterOutput::Forward { egress, ecn }) => outbox.forward_by(egress, ecn),
            Output::Router(RouterOutput::Transmit { egress, transmit }) => {
                self.transmit(egress, transmit, outbox)
            }
            Output::Transmit(_) => false,
            Output::Join(channel) => self.membership(channel, true, outbox),
            Output::Leave(channel) => self.membership(channel, false, outbox),
            Output::Event(event) => {
                self.told.push(outbox.now(), event);
                true
            }
        };
        self.misdirected += u64::from(!led_somewhere);
    }

    fn transmit(&self, egress: InterfaceId, transmit: Transmit, outbox: &mut Outbox<'_>) -> bool {
        let flow = match transmit.destination {
            Destination::Channel(_) => self.channels,
            Destination::Unicast(_) => self.ports.flow,
        };
        match self.ports.destination(outbox, transmit.destination) {
            Some(destination) => {
                outbox.send_datagram_by(egress, Ports { flow, ..self.ports }.head(destination, transmit))
            }
            None => false,
        }
    }

    fn membership(&self, channel: ChannelId, join: bool, outbox: &mut Outbox<'_>) -> bool {
        let Some(group) = self.ports.session.group(channel) else { return false };
        match join {
            true => outbox.join(group),
            false => outbox.leave(group),
        }
        true
    }
}

impl<R: Machine<Event: 'static> + 'static> Agent for RouterNode<R> {
    fn start(&mut self, outbox: &mut Outbox<'_>) {
        self.give(InterfaceId(0), Input::Timeout, outbox);
    }

    fn receive(&mut self, arrival: Arrival<'_>, outbox: &mut Outbox<'_>) {
        if let (Some(datagram), Some(ingress)) = (self.ports.datagram(outbox, arrival), arrival.ingress) {
            self.give(ingress, Input::Routed(ingress, datagram), outbox);
        }
    }

    fn timeout(&mut self, outbox: &mut Outbox<'_>) {
        self.give(InterfaceId(0), Input::Timeout, outbox);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.router.poll_timeout()
    }
}
