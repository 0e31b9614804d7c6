//! Link of a simulated sender.

use headwater_proto::{Duration, Instant, Rate};

/// A sender's own link: its driver waits where packets would wait longer than the device's queue holds.
pub struct Uplink {
    /// Time of a packet.
    packet: Duration,
    queue: Duration,
    free: Instant,
}

impl Uplink {
    /// Returns a link of so many Mbit/s for packets of `bytes` of UDP payload.
    pub fn new(megabits: u64, queue_ms: u64, bytes: u16) -> Self {
        let packet = Rate::from_kilobits(1_000 * megabits).time_of(u64::from(bytes) + 66);
        Self { packet, queue: Duration::from_millis(queue_ms), free: Instant::ZERO }
    }

    /// Returns the time at which the driver can hand over the next packet.
    pub fn ready(&self) -> Instant {
        self.free - self.queue
    }

    /// Packets per second.
    pub fn rate(&self) -> f64 {
        1.0 / self.packet.as_secs_f64()
    }

    /// Returns the time at which a packet handed over now has left.
    pub fn carry(&mut self, now: Instant) -> Instant {
        self.free = self.free.max(now) + self.packet;
        self.free
    }
}
