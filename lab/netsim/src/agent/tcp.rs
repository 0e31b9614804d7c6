//! TCP connections between two agents, and short connections, like web page downloads: background traffic for
//! long transfers.

use std::collections::BTreeMap;

use headwater_proto::rng::Stream;
use headwater_proto::{Duration, Instant};

use super::{Agent, Arrival, Outbox};
use crate::chance;
use crate::engine::{Body, Destination, Outgoing, Packet};
use crate::network::{AgentId, Builder, FlowId, NodeId};
use crate::tcp::{Config, ConfigError, Data, Segment, Sender, Sink, Transmit};

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

/// Maximum number of open connections; further connections wait. Bounds the state of both ends.
pub const OPEN_MAX: u32 = 1024;

/// Distribution of a connection's size in bytes; at least 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SizeOf {
    /// Exponential with this mean.
    Exponential(f64),
    /// Pareto with this mean and a shape above 1.
    Pareto(f64, f64),
}

/// Configuration of a source of short connections.
#[derive(Clone, Debug)]
pub struct ShortFlowsConfig {
    /// Mean time between arrivals, which are Poisson.
    pub mean_gap: Duration,
    /// Size of each.
    pub size: SizeOf,
    /// Maximum number of open connections, at most [`OPEN_MAX`]; 1 opens connections sequentially.
    pub open_max: u32,
    /// TCP configuration of each connection.
    pub tcp: Config,
}

/// Totals over all connections of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortFlowsTotals {
    /// Connections that arrived.
    pub arrived: u64,
    /// Number of connections that have finished.
    pub finished: u64,
    /// Bytes that these carried.
    pub finished_bytes: u64,
    /// Sum of the durations of finished connections, from opening to end.
    pub finished_time: Duration,
    /// Connections that wait to be opened.
    pub waiting: u64,
}

/// Opens short connections to a [`ShortFlowsSink`].
#[derive(Debug)]
pub struct ShortFlows {
    flow: FlowId,
    destination: Destination,
    config: ShortFlowsConfig,
    arrivals: Stream,
    sizes: Stream,
    overhead: Stream,
    next_arrival: Option<Instant>,
    /// Open connections by slot. A slot's next connection has a number higher by `open_max`.
    open: BTreeMap<u32, Open>,
    /// Number of connections that each slot has had.
    used: Vec<u32>,
    totals: ShortFlowsTotals,
}

#[derive(Debug)]
struct Open {
    number: u32,
    bytes: u64,
    since: Instant,
    sender: Sender,
}

impl ShortFlows {
    /// Declares a source of short connections and its sink, both under the flow `name`. Acknowledgements are
    /// flow `name/acks`; the agents are `name/source` and `name/sink`. `stream` returns the random stream of
    /// each purpose, by convention `seed.stream("name/purpose", run)`.
    ///
    /// # Errors
    ///
    /// If no connection can work with the configuration.
    pub fn declare(
        network: &mut Builder,
        name: &str,
        (from, to): (NodeId, NodeId),
        config: ShortFlowsConfig,
        stream: impl Fn(&str) -> Stream,
    ) -> Result<(FlowId, AgentId), ConfigError> {
        config.check()?;
        let flow = network.flow(name);
        let acks = network.flow(&format!("{name}/acks"));
        let sink = ShortFlowsSink {
            acks,
            config: config.tcp.clone(),
            open_max: config.open_max,
            sinks: BTreeMap::new(),
        };
        let sink = network.agent(&format!("{name}/sink"), to, sink);
        let purpose = |purpose: &str| stream(&format!("{name}/{purpose}"));
        let source = Self {
            flow,
            destination: network.destination(sink),
            arrivals: purpose("arrivals"),
            sizes: purpose("sizes"),
            overhead: purpose("overhead"),
            next_arrival: None,
            open: BTreeMap::new(),
            used: vec![0; config.open_max as usize],
            totals: ShortFlowsTotals::default(),
            config,
        };
        Ok((flow, network.agent(&format!("{name}/source"), from, source)))
    }

    /// Totals so far.
    pub const fn totals(&self) -> &ShortFlowsTotals {
        &self.totals
    }

    fn arrive(&mut self, now: Instant) {
        while let Some(arrival) = self.next_arrival.filter(|arrival| *arrival <= now) {
            self.totals.arrived += 1;
            self.totals.waiting += 1;
            self.next_arrival = Some(arrival + self.gap());
        }
    }

    fn gap(&mut self) -> Duration {
        chance::seconds(chance::exponential(&mut self.arrivals, self.config.mean_gap.as_secs_f64()))
    }

    /// Opens waiting connections in free slots.
    fn open_waiting(&mut self, now: Instant) {
        while self.totals.waiting > 0
            && let Some(slot) = (0..self.config.open_max).find(|slot| !self.open.contains_key(slot))
        {
            self.totals.waiting -= 1;
            let bytes = self.config.size.draw(&mut self.sizes);
            let used = &mut self.used[slot as usize];
            let number = slot + *used * self.config.open_max;
            *used += 1;
            let mut sender = Sender::new(self.config.tcp.clone(), Data::Bytes(bytes), self.overhead.clone());
            // Each connection draws from a separate part of the stream.
            self.overhead.jump();
            sender.start(now);
            self.open.insert(slot, Open { number, bytes, since: now, sender });
        }
    }

    fn drain(&mut self, outbox: &mut Outbox<'_>) {
        let now = outbox.now();
        self.open_waiting(now);
        for open in self.open.values_mut() {
            while let Some(mut transmit) = open.sender.poll_transmit(now) {
                transmit.segment.connection = open.number;
                outbox.send(outgoing(self.flow, self.destination, &self.config.tcp, transmit));
            }
        }
    }

    fn close_finished(&mut self, now: Instant) {
        let totals = &mut self.totals;
        self.open.retain(|_, open| {
            if open.sender.is_finished() {
                totals.finished += 1;
                totals.finished_bytes += open.bytes;
                totals.finished_time = totals.finished_time + now.since(open.since);
            }
            !open.sender.is_finished()
        });
    }
}

impl ShortFlowsConfig {
    fn check(&self) -> Result<(), ConfigError> {
        self.tcp.check()?;
        let error = |field, must_be| Err(ConfigError { field, must_be });
        let (mean, shape) = match self.size {
            SizeOf::Exponential(mean) => (mean, f64::INFINITY),
            SizeOf::Pareto(mean, shape) => (mean, shape),
        };
        if !(1..=OPEN_MAX).contains(&self.open_max) {
            return error("open_max", "1 to 1024 connections");
        }
        if self.mean_gap == Duration::ZERO {
            return error("mean_gap", "longer than 0");
        }
        if !(mean > 0.0 && mean.is_finite()) {
            return error("size", "a mean above 0 bytes");
        }
        if shape.is_nan() || shape <= 1.0 {
            return error("size", "of a shape above 1, or it has no mean");
        }
        Ok(())
    }
}

impl SizeOf {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float saturates when cast"
    )]
    fn draw(self, stream: &mut Stream) -> u64 {
        let bytes = match self {
            Self::Exponential(mean) => chance::exponential(stream, mean),
            Self::Pareto(mean, shape) => chance::pareto(stream, mean, shape),
        };
        (bytes.round() as u64).max(1)
    }
}

impl Agent for ShortFlows {
    fn start(&mut self, outbox: &mut Outbox<'_>) {
        let gap = self.gap();
        self.next_arrival = Some(outbox.now() + gap);
    }

    fn receive(&mut self, arrival: Arrival<'_>, outbox: &mut Outbox<'_>) {
        let Body::Tcp(segment) = &arrival.packet.body else { return };
        let slot = segment.connection % self.config.open_max;
        // A late segment of a closed connection finds an empty slot or a later connection, and is ignored.
        let Some(open) = self.open.get_mut(&slot).filter(|open| open.number == segment.connection) else {
            return;
        };
        open.sender.receive(outbox.now(), segment);
        self.close_finished(outbox.now());
        self.drain(outbox);
    }

    fn timeout(&mut self, outbox: &mut Outbox<'_>) {
        let now = outbox.now();
        self.arrive(now);
        for open in self.open.values_mut() {
            open.sender.timeout(now);
        }
        self.drain(outbox);
    }

    fn next_timeout(&self) -> Option<Instant> {
        let senders = self.open.values().filter_map(|open| open.sender.next_timeout()).min();
        self.next_arrival.into_iter().chain(senders).min()
    }
}

/// Peer of [`ShortFlows`]: a sink for each slot, replaced when the slot's next connection arrives.
#[derive(Debug)]
pub struct ShortFlowsSink {
    acks: FlowId,
    config: Config,
    open_max: u32,
    /// By slot, at most [`OPEN_MAX`].
    sinks: BTreeMap<u32, Accepted>,
}

#[derive(Debug)]
struct Accepted {
    number: u32,
    source: AgentId,
    sink: Sink,
}

impl ShortFlowsSink {
    /// Returns the sink of a connection; `None` if the slot already belongs to a later connection.
    fn accepted(&mut self, packet: &Packet, segment: &Segment) -> Option<&mut Accepted> {
        let number = segment.connection;
        let new = || Accepted { number, source: packet.source, sink: Sink::new(self.config.clone()) };
        let accepted = self.sinks.entry(number % self.open_max).or_insert_with(new);
        if accepted.number < number {
            *accepted = Accepted { number, source: packet.source, sink: Sink::new(self.config.clone()) };
        }
        (accepted.number == number).then_some(accepted)
    }

    fn drain(&mut self, outbox: &mut Outbox<'_>) {
        for accepted in self.sinks.values_mut() {
            while let Some(mut transmit) = accepted.sink.poll_transmit() {
                transmit.segment.connection = accepted.number;
                outbox.send(outgoing(self.acks, outbox.to(accepted.source), &self.config, transmit));
            }
        }
    }
}

impl Agent for ShortFlowsSink {
    fn start(&mut self, _outbox: &mut Outbox<'_>) {}

    fn receive(&mut self, arrival: Arrival<'_>, outbox: &mut Outbox<'_>) {
        let Body::Tcp(segment) = &arrival.packet.body else { return };
        if let Some(accepted) = self.accepted(arrival.packet, segment) {
            accepted.sink.receive(outbox.now(), segment, arrival.ecn);
            self.drain(outbox);
        }
    }

    fn timeout(&mut self, outbox: &mut Outbox<'_>) {
        for accepted in self.sinks.values_mut() {
            accepted.sink.timeout(outbox.now());
        }
        self.drain(outbox);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.sinks.values().filter_map(|accepted| accepted.sink.next_timeout()).min()
    }
}
