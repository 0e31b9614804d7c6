//! A router's program at a node.

use headwater_proto::{ChannelId, Destination, Input, Instant, InterfaceId, Router, RouterOutput, Transmit};

use super::hosted::{Ports, Told};
use super::{Agent, Arrival, Outbox};
use crate::network::FlowId;

/// A router's program, unchanged. It gets the datagrams of the flows that
/// [`Builder::route`](crate::network::Builder::route) names, when they come to its node by a link, and those
/// sent to its own address; interface i is the node's i-th link. What it does not send on ends here.
///
/// Joins and leaves of receivers are the network's own business and pass it by; its own joins are those of a
/// member at the node, whatever the interface, as there is one path to a source.
#[derive(Debug)]
pub struct RouterNode<R: Router> {
    router: R,
    ports: Ports,
    /// What it sends to channels itself is counted under.
    channels: FlowId,
    told: Told<R::Event>,
    misdirected: u64,
}

impl<R: Router> RouterNode<R> {
    /// Runs `router`, made for the instant at which its agent starts, by the agent's clock.
    pub fn new(router: R, ports: Ports) -> Self {
        Self { router, ports, channels: ports.flow, told: Told::default(), misdirected: 0 }
    }

    /// What it sends to channels itself is counted under this flow, not under the one of `ports`.
    #[must_use]
    pub const fn with_channels(mut self, flow: FlowId) -> Self {
        self.channels = flow;
        self
    }

    /// The program.
    pub const fn router(&self) -> &R {
        &self.router
    }

    /// What it told.
    pub const fn told(&self) -> &Told<R::Event> {
        &self.told
    }

    /// Outputs that led nowhere: to an interface, an address or a channel that is not there.
    pub const fn misdirected(&self) -> u64 {
        self.misdirected
    }

    fn give(&mut self, ingress: InterfaceId, input: Input<'_>, outbox: &mut Outbox<'_>) {
        let now = outbox.now();
        self.router.handle(now, ingress, input);
        while let Some(output) = self.router.poll_output(now, outbox.room()) {
            self.put(ingress, output, outbox);
        }
    }

    fn put(&mut self, ingress: InterfaceId, output: RouterOutput<R::Event>, outbox: &mut Outbox<'_>) {
        let led_somewhere = match output {
            RouterOutput::Pass { ecn } => outbox.pass(ingress, ecn),
            RouterOutput::Forward { egress, ecn } => outbox.forward_by(egress, ecn),
            RouterOutput::Transmit { egress, transmit } => self.transmit(egress, transmit, outbox),
            RouterOutput::Join(_, channel) => self.membership(channel, true, outbox),
            RouterOutput::Leave(_, channel) => self.membership(channel, false, outbox),
            RouterOutput::Event(event) => {
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

impl<R: Router<Event: 'static> + 'static> Agent for RouterNode<R> {
    fn start(&mut self, outbox: &mut Outbox<'_>) {
        self.give(InterfaceId(0), Input::Timeout, outbox);
    }

    fn receive(&mut self, arrival: Arrival<'_>, outbox: &mut Outbox<'_>) {
        if let (Some(datagram), Some(ingress)) = (self.ports.datagram(outbox, arrival), arrival.ingress) {
            self.give(ingress, Input::Datagram(datagram), outbox);
        }
    }

    fn timeout(&mut self, outbox: &mut Outbox<'_>) {
        self.give(InterfaceId(0), Input::Timeout, outbox);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.router.poll_timeout()
    }
}
