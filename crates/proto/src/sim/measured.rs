//! Sending rate of a group, measured from sequence numbers and scheduled times of the group's packets.

use super::clock::duration;

/// Number of packets due since the last received packet. Above `DOUBTFUL` the group's rate counts as unknown;
/// above `CLOSED` the group counts as closed by the sender.
const DOUBTFUL: f64 = 1.5;
const CLOSED: f64 = 3.0;

/// Packets of a group. Times are the sender's timestamps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    /// Sequence number and timestamp of the last packet of the previous request, and of the latest packet.
    before: Option<(u32, u32)>,
    latest: Option<(u32, u32)>,
    /// Packets per second, once two packets were received.
    rate: Option<f64>,
    is_doubtful: bool,
}

impl Measured {
    /// Records a received packet.
    pub fn record(&mut self, sequence: u32, stamp: u32) {
        if self.latest.is_none() {
            // The sender reopened the group: the rate must be measured again.
            self.rate = None;
        }
        self.latest = Some((sequence, stamp));
    }

    /// Begins a request, at the timestamp of the first packet of the request on any group.
    pub fn settle(&mut self, stamp: u32) {
        self.is_doubtful = false;
        if let (Some((first, from)), Some((last, to))) = (self.before, self.latest) {
            let (packets, time) = (last.wrapping_sub(first), to.wrapping_sub(from));
            if packets > 0 && time > 0 && packets < 1 << 31 && time < 1 << 31 {
                self.rate = Some(f64::from(packets) / duration(time).as_secs_f64());
            } else if let Some(rate) = self.rate.filter(|_| packets == 0) {
                let silence = u32::try_from(stamp.wrapping_sub(to).cast_signed()).unwrap_or(0);
                let due = rate * duration(silence).as_secs_f64();
                if due > CLOSED {
                    // The sender closed the group: the group above carries the rate now.
                    *self = Self { rate: Some(0.0), ..Self::default() };
                    return;
                }
                self.is_doubtful = due > DOUBTFUL;
            }
        }
        self.before = self.latest;
    }

    /// Whether any packet arrived since the join.
    pub const fn is_heard(&self) -> bool {
        self.latest.is_some() || self.rate.is_some()
    }

    /// Packets per second up to the last request: 0 for a closed group, `None` while the rate is unknown.
    pub fn rate(&self) -> Option<f64> {
        self.rate.filter(|_| !self.is_doubtful)
    }
}
