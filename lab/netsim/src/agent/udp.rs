//! Traffic without congestion control: sources at a constant rate, also in bursts, and an agent that only
//! listens.

use headwater_proto::rng::Stream;
use headwater_proto::{Duration, Ecn, Instant, Rate};

use super::{Agent, Arrival, Outbox};
use crate::chance;
use crate::engine::{Body, Destination, Outgoing};
use crate::network::{FlowId, GroupId};

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

/// Distribution of the length of on or off periods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Period {
    /// Exponential with this mean.
    Exponential(Duration),
    /// Pareto with this mean and a shape above 1; below 2 many sources together are self-similar.
    Pareto(Duration, f64),
}

impl Period {
    fn draw(self, stream: &mut Stream) -> Duration {
        chance::seconds(match self {
            Self::Exponential(mean) => chance::exponential(stream, mean.as_secs_f64()),
            Self::Pareto(mean, shape) => chance::pareto(stream, mean.as_secs_f64(), shape),
        })
    }
}

/// Sends at a constant rate in periods of random length. Begins with an on period.
///
/// The mean rate is the constant rate times the share of on time: when an on period ends, the time left until
/// the next packet carries over to the next on period.
#[derive(Clone, Debug)]
pub struct OnOff {
    flow: FlowId,
    destination: Destination,
    spacing: Spacing,
    on: Period,
    off: Period,
    periods: Stream,
    /// End of the on period; `None` in an off period.
    on_ends: Option<Instant>,
    /// On time left until the next packet.
    to_packet: Duration,
    next: Option<Instant>,
}

impl OnOff {
    /// A source of packets of this shape, at `rate` in bits on the wire while on. `periods` draws the
    /// lengths.
    #[must_use]
    pub const fn new(
        flow: FlowId,
        destination: Destination,
        (rate, shape): (Rate, Shape),
        (on, off): (Period, Period),
        periods: Stream,
    ) -> Self {
        Self {
            flow,
            destination,
            spacing: Spacing::new(rate, shape),
            on,
            off,
            periods,
            on_ends: None,
            to_packet: Duration::ZERO,
            next: None,
        }
    }

    /// Draws spacings from `noise`, uniform on 50 to 150 % of the constant spacing.
    #[must_use]
    pub fn with_noise(self, noise: Stream) -> Self {
        Self { spacing: self.spacing.with_noise(noise), ..self }
    }

    fn come_on(&mut self, now: Instant) {
        let ends = now + self.on.draw(&mut self.periods);
        self.wait(now, ends);
    }

    /// Schedules the next packet if the on period lasts until then (`ends`); otherwise schedules the end of
    /// the following off period.
    fn wait(&mut self, now: Instant, ends: Instant) {
        // After a pause or a clock step, an on period that should have ended already ends now.
        let ends = ends.max(now);
        let packet = now + self.to_packet;
        if packet <= ends {
            self.on_ends = Some(ends);
            self.next = Some(packet);
        } else {
            self.on_ends = None;
            self.to_packet = packet.since(ends);
            self.next = Some(ends + self.off.draw(&mut self.periods));
        }
    }
}

impl Agent for OnOff {
    fn start(&mut self, outbox: &mut Outbox<'_>) {
        self.come_on(outbox.now());
    }

    fn receive(&mut self, _arrival: Arrival<'_>, _outbox: &mut Outbox<'_>) {}

    fn timeout(&mut self, outbox: &mut Outbox<'_>) {
        let now = outbox.now();
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        match self.on_ends {
            None => self.come_on(now),
            Some(ends) => {
                outbox.send(self.spacing.packet(self.flow, self.destination));
                self.to_packet = self.spacing.next();
                self.wait(now, ends);
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.next
    }
}

/// Counts arriving packets, and joins its groups at the start. The counts are in the agent's counters.
#[derive(Clone, Debug, Default)]
pub struct Sink {
    groups: Vec<GroupId>,
}

impl Sink {
    /// Creates a sink for unicast packets.
    #[must_use]
    pub const fn new() -> Self {
        Self { groups: Vec::new() }
    }

    /// Creates a sink that joins `groups`.
    #[must_use]
    pub const fn of_groups(groups: Vec<GroupId>) -> Self {
        Self { groups }
    }
}

impl Agent for Sink {
    fn start(&mut self, outbox: &mut Outbox<'_>) {
        self.groups.iter().for_each(|group| outbox.join(*group));
    }

    fn receive(&mut self, _arrival: Arrival<'_>, _outbox: &mut Outbox<'_>) {}

    fn timeout(&mut self, _outbox: &mut Outbox<'_>) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}
