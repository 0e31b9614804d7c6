//! Lateness of hosts: interrupts that are answered late and in batches, and timers that fire late.

use headwater_proto::rng::Stream;
use headwater_proto::{Duration, Instant};

use crate::chance::uniform_duration;

/// Range of a delay, uniform from `min` to `max`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// Least delay.
    pub min: Duration,
    /// Largest delay; not below the least.
    pub max: Duration,
}

impl Delay {
    fn draw(self, stream: &mut Stream) -> Duration {
        let spread = Duration::from_nanos(self.max.as_nanos().saturating_sub(self.min.as_nanos()));
        self.min + uniform_duration(stream, spread)
    }
}

/// Lateness of a node's host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostConfig {
    /// Time from a packet's arrival until an interrupt hands the packet over, together with all packets that
    /// arrived meanwhile. All packets of a batch have the time of the interrupt.
    pub receive: Delay,
    /// Time from the expiry of a timer until the agent is called.
    pub timer: Delay,
}

/// State of a host.
#[derive(Debug)]
pub(crate) struct Host {
    config: HostConfig,
    stream: Stream,
    /// The last interrupt so far, or the pending one.
    interrupt: Instant,
}

impl Host {
    pub(crate) fn new(config: HostConfig, stream: Stream) -> Self {
        Self { config, stream, interrupt: Instant::ZERO }
    }

    /// Returns the interrupt that hands over a packet that arrives at `now`.
    pub(crate) fn interrupt(&mut self, now: Instant) -> Instant {
        if self.interrupt <= now {
            self.interrupt = now + self.config.receive.draw(&mut self.stream);
        }
        self.interrupt
    }

    /// Returns the call for a timer that expired at `deadline`.
    pub(crate) fn wake(&mut self, deadline: Instant) -> Instant {
        deadline + self.config.timer.draw(&mut self.stream)
    }
}
