//! Constant-rate source with packets of equal size.

use headwater_proto::rng::Stream;
use headwater_proto::{Duration, Ecn, Instant, Rate};

use super::{Agent, Arrival, Outbox};
use crate::chance;
use crate::engine::{Body, Destination, Outgoing};
use crate::network::FlowId;

/// Sizes of a packet of constant-rate traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes in all.
    pub wire_bytes: u32,
    /// Bytes of headers within `wire_bytes`.
    pub header_bytes: u32,
}

/// Sends packets at a constant rate. The first packet leaves when the agent starts.
#[derive(Clone, Debug)]
pub struct Cbr {
    flow: FlowId,
    destination: Destination,
    spacing: Spacing,
    next: Option<Instant>,
}

impl Cbr {
    /// Creates a source of packets of `wire_bytes`, of which `header_bytes` are headers, at `rate` in bits on
    /// the wire.
    #[must_use]
    pub const fn new(
        flow: FlowId,
        destination: Destination,
        rate: Rate,
        wire_bytes: u32,
        header_bytes: u32,
    ) -> Self {
        let spacing = Spacing::new(rate, Shape { wire_bytes, header_bytes });
        Self { flow, destination, spacing, next: None }
    }

    /// Draws spacings from `noise`, uniform on 50 to 150 % of the constant spacing. A constant period would
    /// synchronise with the packet clock of a competing TCP (phase effects).
    #[must_use]
    pub fn with_noise(self, noise: Stream) -> Self {
        Self { spacing: self.spacing.with_noise(noise), ..self }
    }
}

impl Agent for Cbr {
    fn start(&mut self, outbox: &mut Outbox<'_>) {
        self.next = Some(outbox.now());
    }

    fn receive(&mut self, _arrival: Arrival<'_>, _outbox: &mut Outbox<'_>) {}

    fn timeout(&mut self, outbox: &mut Outbox<'_>) {
        let now = outbox.now();
        let Some(due) = self.next.filter(|due| *due <= now) else { return };
        outbox.send(self.spacing.packet(self.flow, self.destination));
        let spacing = self.spacing.next();
        // After a pause or a clock step, missed packets are not made up for.
        let base = if due + spacing > now { due } else { now };
        self.next = Some(base + spacing);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.next
    }
}

/// Packets of constant-rate traffic and the time between two packets.
#[derive(Clone, Debug)]
pub(super) struct Spacing {
    rate: Rate,
    shape: Shape,
    noise: Option<Stream>,
    /// Bytes spaced so far. The sum of spacings equals the transmission time of these bytes, so that no
    /// fraction of a nanosecond is lost.
    bytes: u64,
}

impl Spacing {
    pub(super) const fn new(rate: Rate, shape: Shape) -> Self {
        Self { rate, shape, noise: None, bytes: 0 }
    }

    pub(super) fn with_noise(self, noise: Stream) -> Self {
        Self { noise: Some(noise), ..self }
    }

    pub(super) const fn packet(&self, flow: FlowId, destination: Destination) -> Outgoing {
        Outgoing {
            flow,
            destination,
            wire_bytes: self.shape.wire_bytes,
            payload_bytes: self.shape.wire_bytes.saturating_sub(self.shape.header_bytes),
            ecn: Ecn::NotCapable,
            body: Body::Filler,
        }
    }

    /// The time from a packet to the next.
    pub(super) fn next(&mut self) -> Duration {
        let before = Instant::ZERO + self.rate.time_of(self.bytes);
        self.bytes = self.bytes.saturating_add(self.shape.wire_bytes.into());
        let constant = (Instant::ZERO + self.rate.time_of(self.bytes)).since(before);
        match &mut self.noise {
            None => constant,
            Some(noise) => {
                let half = Duration::from_nanos(constant.as_nanos() / 2);
                half + chance::uniform_duration(noise, constant)
            }
        }
    }
}
