//! What a sender sends on a group, by numbers and scheduled times of its packets.

use super::clock::duration;

/// Packets due without one heard from which on it is not known whether a group is sent still, and from which
/// on it is not.
const DOUBTFUL: f64 = 1.5;
const CLOSED: f64 = 3.0;

/// One group's packets. Times are the sender's timestamps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    /// Number and time of the last packet of the request before, and of the latest one.
    before: Option<(u32, u32)>,
    latest: Option<(u32, u32)>,
    /// Packets per second, once two were heard.
    rate: Option<f64>,
    is_doubtful: bool,
}

impl Measured {
    /// A packet came.
    pub fn record(&mut self, sequence: u32, stamp: u32) {
        if self.latest.is_none() {
            // The group is sent anew: its rate is to be seen.
            self.rate = None;
        }
        self.latest = Some((sequence, stamp));
    }

    /// A request begins, by a packet of this time on any group.
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
                    // The sender closed it: the group above carries its rate now.
                    *self = Self { rate: Some(0.0), ..Self::default() };
                    return;
                }
                self.is_doubtful = due > DOUBTFUL;
            }
        }
        self.before = self.latest;
    }

    /// Whether anything came since it was joined.
    pub const fn is_heard(&self) -> bool {
        self.latest.is_some() || self.rate.is_some()
    }

    /// Packets per second up to the last request: nothing of a group that is closed, `None` while it is not
    /// known.
    pub fn rate(&self) -> Option<f64> {
        self.rate.filter(|_| !self.is_doubtful)
    }
}
