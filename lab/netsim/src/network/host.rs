//! Lateness of hosts: interrupts that are answered late and in batches, timers that fire late, and pauses.

use headwater_proto::rng::Stream;
use headwater_proto::{Duration, Instant};

use crate::chance::{exponential, seconds, uniform_duration};

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
    /// Pauses, in which no timer calls an agent: another program has the processor.
    pub pause: Option<Pause>,
}

/// Pauses of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Mean time from the end of a pause to the start of the next pause, which is exponential.
    pub interval: Duration,
    /// Length of a pause.
    pub length: Delay,
}

/// State of a host.
#[derive(Debug)]
pub(crate) struct Host {
    config: HostConfig,
    stream: Stream,
    /// The last interrupt so far, or the pending one.
    interrupt: Instant,
    /// Start and end of the last pause so far, or of the next.
    pause: (Instant, Instant),
}

impl Host {
    pub(crate) fn new(config: HostConfig, stream: Stream) -> Self {
        Self { config, stream, interrupt: Instant::ZERO, pause: (Instant::ZERO, Instant::ZERO) }
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
        let call = deadline + self.config.timer.draw(&mut self.stream);
        self.after_pause(call)
    }

    /// Returns the end of the pause at `at`; `at` if the host runs.
    fn after_pause(&mut self, at: Instant) -> Instant {
        let Some(Pause { interval, length }) = self.config.pause else { return at };
        while self.pause.1 <= at {
            let start = self.pause.1 + seconds(exponential(&mut self.stream, interval.as_secs_f64()));
            self.pause = (start, start + length.draw(&mut self.stream));
        }
        if self.pause.0 <= at { self.pause.1 } else { at }
    }
}

#[cfg(test)]
mod tests {
    use headwater_proto::Seed;

    use super::*;

    #[test]
    fn a_host_calls_no_timer_during_a_pause() {
        let ms = Duration::from_millis;
        let pause = Pause { interval: ms(100), length: Delay { min: ms(10), max: ms(30) } };
        let mut host =
            Host::new(HostConfig { pause: Some(pause), ..HostConfig::default() }, Seed(3).stream("host", 0));
        let (mut paused, mut longest) = (0_u32, Duration::ZERO);
        for i in 0..100_000 {
            let deadline = Instant::ZERO + ms(i);
            let late = host.wake(deadline).since(deadline);
            paused += u32::from(late > Duration::ZERO);
            longest = longest.max(late);
        }
        // 20 ms in 120, in the mean.
        assert!((14_000..19_500).contains(&paused), "{paused} of 100 000 ms");
        assert!((ms(28)..=ms(30)).contains(&longest), "{longest:?}");
    }
}
