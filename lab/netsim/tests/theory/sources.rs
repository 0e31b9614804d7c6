//! A Poisson source, a recorder of arrivals, and the one link that they are put at the ends of.

use headwater_netsim::agent::{Agent, Arrival, Outbox};
use headwater_netsim::chance::{exponential, seconds};
use headwater_netsim::engine::{Body, Destination, Outgoing, Run};
use headwater_netsim::network::{Builder, FlowId, LinkConfig, LinkCounters, LinkId};
use headwater_proto::rng::Stream;
use headwater_proto::{Duration, Ecn, Instant, Rate, Seed};

/// 8 Mbit/s: a packet of 1000 bytes takes 1 ms.
pub const RATE: Rate = Rate::from_kilobits(8_000);
pub const MEAN_BYTES: u32 = 1_000;
pub const SERVICE: Duration = Duration::from_millis(1);

/// How long a packet is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sizes {
    /// [`MEAN_BYTES`]: deterministic service.
    Fixed,
    /// Exponential of that mean, in whole bytes: exponential service.
    Exponential,
}

/// Poisson arrivals, or regular ones, at a load of the link.
pub struct Source {
    pub flow: FlowId,
    pub to: Destination,
    pub gap: Gap,
    pub sizes: Sizes,
    pub stream: Stream,
    pub next: Option<Instant>,
}

/// Time between packets, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gap {
    Exponential(f64),
    Regular(f64),
}

impl Gap {
    fn draw(self, stream: &mut Stream) -> Duration {
        match self {
            Self::Exponential(mean) => seconds(exponential(stream, mean)),
            Self::Regular(gap) => seconds(gap),
        }
    }
}

impl Agent for Source {
    fn start(&mut self, outbox: &mut Outbox<'_>) {
        self.next = Some(outbox.now() + self.gap.draw(&mut self.stream));
    }

    fn receive(&mut self, _arrival: Arrival<'_>, _outbox: &mut Outbox<'_>) {}

    fn timeout(&mut self, outbox: &mut Outbox<'_>) {
        let Some(due) = self.next.filter(|due| *due <= outbox.now()) else { return };
        let wire_bytes = match self.sizes {
            Sizes::Fixed => MEAN_BYTES,
            Sizes::Exponential => whole(exponential(&mut self.stream, f64::from(MEAN_BYTES))),
        };
        outbox.send(Outgoing {
            flow: self.flow,
            destination: self.to,
            wire_bytes,
            payload_bytes: wire_bytes,
            ecn: Ecn::NotCapable,
            body: Body::Filler,
        });
        self.next = Some(due + self.gap.draw(&mut self.stream));
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.next
    }
}

/// Nearest whole number of bytes, at least 1.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates when cast")]
fn whole(bytes: f64) -> u32 {
    (bytes.round() as u32).max(1)
}

/// Notes when packets arrive.
#[derive(Default)]
pub struct Recorder(pub Vec<Instant>);

impl Agent for Recorder {
    fn start(&mut self, _outbox: &mut Outbox<'_>) {}

    fn receive(&mut self, _arrival: Arrival<'_>, outbox: &mut Outbox<'_>) {
        self.0.push(outbox.now());
    }

    fn timeout(&mut self, _outbox: &mut Outbox<'_>) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}

/// A source, a link of [`RATE`], a recorder.
pub struct OneLink {
    pub run: Run,
    pub link: LinkId,
    pub recorder: headwater_netsim::network::AgentId,
}

impl OneLink {
    pub fn new(link: LinkConfig, gap: Gap, sizes: Sizes, seed: u64) -> Self {
        let mut network = Builder::new();
        let (a, b) = (network.node("a"), network.node("b"));
        let link = network.link("a-b", a, b, link.clone(), link);
        let flow = network.flow("traffic");
        let recorder = network.agent("recorder", b, Recorder::default());
        let to = network.destination(recorder);
        let stream = Seed(seed).stream("source", 0);
        network.agent("source", a, Source { flow, to, gap, sizes, stream, next: None });
        Self { run: network.build(Seed(seed), 0).unwrap(), link, recorder }
    }

    /// Runs on for so many mean service times, and gives the counters then.
    pub fn run_for(&mut self, services: u64) -> LinkCounters {
        self.run.run_until(self.run.now() + SERVICE.saturating_mul(services));
        self.run.link_counters(self.link)
    }

    pub fn arrivals(&self) -> &[Instant] {
        &self.run.agent::<Recorder>(self.recorder).unwrap().0
    }
}
