//! Queue of reports to echo, from which receivers measure round-trip times (RFC 4654, section 3.5).

use core::net::SocketAddr;

use crate::tfmcc::message::Echo;

use crate::stamp::later_us;
use headwater_proto::time::Instant;

/// Maximum number of queued reports; the least urgent further reports get no echo, and their receivers report
/// again.
pub const ECHOES_MAX: usize = 64;

/// Identity of a receiver; an identifier alone may be drawn, or forged, twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub id: u32,
    pub address: SocketAddr,
}

/// Report waiting for its echo.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub who: Who,
    /// Timestamp of the report, by the receiver's clock.
    pub timestamp_us: u32,
    /// Arrival time of the report.
    pub at: Instant,
    /// Whether the receiver has measured its round-trip time.
    pub has_rtt: bool,
    /// Rate in the report.
    pub rate: f64,
}

impl Pending {
    /// Orders receivers without a round-trip time first, then by rate.
    fn is_before(&self, other: &Self) -> bool {
        (self.has_rtt, self.rate) < (other.has_rtt, other.rate)
    }

    pub fn echo(&self, now: Instant, is_clr: bool) -> Echo {
        Echo { receiver: self.who.id, timestamp_us: later_us(self.timestamp_us, self.at, now), is_clr }
    }
}

/// Queue of at most [`ECHOES_MAX`] reports.
#[derive(Clone, Debug, Default)]
pub(super) struct Echoes(Vec<Pending>);

impl Echoes {
    pub fn push(&mut self, pending: Pending) {
        self.0.retain(|other| other.who != pending.who);
        if self.0.len() == ECHOES_MAX {
            let last = (0..self.0.len())
                .reduce(|last, one| if self.0[last].is_before(&self.0[one]) { one } else { last });
            match last.filter(|last| pending.is_before(&self.0[*last])) {
                Some(last) => _ = self.0.swap_remove(last),
                None => return,
            }
        }
        self.0.push(pending);
    }

    /// Removes and returns the most urgent report.
    pub fn pop(&mut self) -> Option<Pending> {
        let first = (0..self.0.len())
            .reduce(|first, one| if self.0[one].is_before(&self.0[first]) { one } else { first })?;
        Some(self.0.swap_remove(first))
    }
}
