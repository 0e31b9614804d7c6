//! TCP connections between two agents.

use headwater_proto::Instant;
use headwater_proto::rng::Stream;

use super::{Agent, Arrival, Outbox};
use crate::engine::{Body, Destination, Outgoing};
use crate::network::{AgentId, Builder, FlowId, NodeId};
use crate::tcp::{Config, ConfigError, Data, Sender, Sink, Transmit};

/// Identifiers of a declared connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpConnection {
    /// Data segments and SYNs.
    pub flow: FlowId,
    /// Acknowledgements.
    pub acks: FlowId,
    /// A [`TcpSource`], which opens the connection when the agent starts.
    pub source: AgentId,
    /// A [`TcpSink`].
    pub sink: AgentId,
}

impl TcpConnection {
    /// Declares a connection that sends `data` from the first node to the second: flows `name` and
    /// `name/acks`, agents `name/source` and `name/sink`. [`Config::overhead`] draws from the stream
    /// `overhead`, by convention `seed.stream("name/overhead", run)`.
    ///
    /// # Errors
    ///
    /// If no connection can work with `config`.
    pub fn declare(
        network: &mut Builder,
        name: &str,
        (from, to): (NodeId, NodeId),
        config: &Config,
        data: Data,
        overhead: Stream,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let flow = network.flow(name);
        let acks = network.flow(&format!("{name}/acks"));
        let sink = network.agent(
            &format!("{name}/sink"),
            to,
            TcpSink { acks, source: None, sink: Sink::new(config.clone()), progressed: Instant::ZERO },
        );
        let destination = network.destination(sink);
        let sender = Sender::new(config.clone(), data, overhead);
        let source = network.agent(&format!("{name}/source"), from, TcpSource { flow, destination, sender });
        Ok(Self { flow, acks, source, sink })
    }
}

/// The sending end of a connection.
#[derive(Debug)]
pub struct TcpSource {
    flow: FlowId,
    destination: Destination,
    sender: Sender,
}

impl TcpSource {
    /// State of the connection's sender.
    pub const fn sender(&self) -> &Sender {
        &self.sender
    }

    fn drain(&mut self, outbox: &mut Outbox<'_>) {
        while let Some(transmit) = self.sender.poll_transmit(outbox.now()) {
            outbox.send(outgoing(self.flow, self.destination, self.sender.config(), transmit));
        }
    }
}

impl Agent for TcpSource {
    fn start(&mut self, outbox: &mut Outbox<'_>) {
        self.sender.start(outbox.now());
        self.drain(outbox);
    }

    fn receive(&mut self, arrival: Arrival<'_>, outbox: &mut Outbox<'_>) {
        if let Body::Tcp(segment) = &arrival.packet.body {
            self.sender.receive(outbox.now(), segment);
            self.drain(outbox);
        }
    }

    fn timeout(&mut self, outbox: &mut Outbox<'_>) {
        self.sender.timeout(outbox.now());
        self.drain(outbox);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.sender.next_timeout()
    }
}

/// The receiving end of a connection.
#[derive(Debug)]
pub struct TcpSink {
    acks: FlowId,
    /// Agent that opened the connection.
    source: Option<AgentId>,
    sink: Sink,
    progressed: Instant,
}

impl TcpSink {
    /// State of the receiving end.
    pub const fn sink(&self) -> &Sink {
        &self.sink
    }

    /// Instant at which the last segment was received in order, by the agent's clock.
    pub const fn progressed(&self) -> Instant {
        self.progressed
    }

    fn drain(&mut self, outbox: &mut Outbox<'_>) {
        let Some(source) = self.source else { return };
        while let Some(transmit) = self.sink.poll_transmit() {
            outbox.send(outgoing(self.acks, outbox.to(source), self.sink.config(), transmit));
        }
    }
}

impl Agent for TcpSink {
    fn start(&mut self, _outbox: &mut Outbox<'_>) {}

    fn receive(&mut self, arrival: Arrival<'_>, outbox: &mut Outbox<'_>) {
        if let Body::Tcp(segment) = &arrival.packet.body {
            self.source = Some(arrival.packet.source);
            let before = self.sink.segments_in_order();
            self.sink.receive(outbox.now(), segment, arrival.ecn);
            if self.sink.segments_in_order() > before {
                self.progressed = outbox.now();
            }
            self.drain(outbox);
        }
    }

    fn timeout(&mut self, outbox: &mut Outbox<'_>) {
        self.sink.timeout(outbox.now());
        self.drain(outbox);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.sink.next_timeout()
    }
}

/// A segment as a packet of `flow`.
pub(super) fn outgoing(
    flow: FlowId,
    destination: Destination,
    config: &Config,
    transmit: Transmit,
) -> Outgoing {
    Outgoing {
        flow,
        destination,
        wire_bytes: config.wire_bytes(&transmit.segment),
        payload_bytes: transmit.segment.payload_bytes.into(),
        ecn: transmit.ecn,
        body: Body::Tcp(transmit.segment),
    }
}
