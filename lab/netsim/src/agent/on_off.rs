//! Packets at a constant rate while on, nothing while off.

use headwater_proto::rng::Stream;
use headwater_proto::{Duration, Instant, Rate};

use super::cbr::{Shape, Spacing};
use super::{Agent, Arrival, Outbox};
use crate::chance;
use crate::engine::Destination;
use crate::network::FlowId;

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
