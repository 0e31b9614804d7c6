//! Status of controls, for display.

use core::fmt;
use core::net::SocketAddr;

use headwater_wire::extensions::Levels;

use crate::rate::Rate;
use crate::time::Duration;

/// Status of a sender that sends only the levels that receivers report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemandStatus {
    /// Highest level reported of late; 0 for none.
    pub held: u16,
    /// Highest level that is sent.
    pub ceiling: u16,
    /// Whether a receiver ever reported.
    pub has_reports: bool,
    /// Whether the ceiling is bounded, because receivers lose most packets of the levels that they hold.
    pub is_limited: bool,
}

/// Status of a receiving control, for display.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Status {
    /// Name of the control; `unknown` until the session has described the control, empty if no control is
    /// described.
    pub name: &'static str,
    /// Subscribed channels, including pending joins.
    pub channels: u16,
    /// Fair rate as estimated by the control, in bit/s of UDP payload.
    pub fair_rate: Option<Rate>,
    /// Round-trip time, queueing included.
    pub rtt: Option<Duration>,
    /// Recent mean time from a join to the first packet. Includes the packet spacing of a slow channel.
    pub join_latency: Option<Duration>,
    /// Longest recent join latency.
    pub join_latency_max: Option<Duration>,
    /// Recent loss events per packet.
    pub loss_event_rate: Option<f64>,
    /// Packets sent that report losses to the sender.
    pub naks: Option<u64>,
    /// Maximum packets in flight, if each packet is requested.
    pub window: Option<u16>,
    /// Estimate of the path, if the control makes one.
    pub path: Option<PathStatus>,
    /// Address of a sender that sends the levels that receivers report, but does not react to reports.
    pub unheard: Option<SocketAddr>,
    /// Levels that the sender sends, as announced last; `None` if all are sent.
    pub levels: Option<Levels>,
    /// Time until the receiver joins again, if the sender has dismissed the receiver.
    pub dismissed: Option<Duration>,
}

/// Reason other than the path for which a receiver subscribes to no further level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateLimit {
    /// The receiver has all levels that the sender sends.
    Sender,
    /// The next level exceeds the configured maximum rate of the receiver.
    Receiver,
    /// The next level exceeds the rate that the receiver's host reads.
    Host,
}

impl RateLimit {
    /// Returns the name in the event log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
            Self::Host => "host",
        }
    }
}

impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sender => "at the sender's highest rate",
            Self::Receiver => "at the receiver's own maximum rate",
            Self::Host => "at the rate that this host reads",
        })
    }
}

/// Bottleneck of a receiver's path as a control estimates it, and the effects on the receiver.
///
/// Displays as a line that explains the rate of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathStatus {
    /// Whether no other traffic shares the bottleneck.
    pub is_alone: bool,
    /// Rate of the bottleneck in bit/s of UDP payload, after an overload the rate that arrived; `None` until
    /// known.
    pub bottleneck: Option<Rate>,
    /// Part of the bottleneck used by other traffic, from 0 to 1; `None` until known.
    pub others: Option<f64>,
    /// Queueing delay at which the bottleneck drops packets; `None` before the first drop.
    pub queue_depth: Option<Duration>,
    /// Recent part of packets lost by chance.
    pub chance: f64,
    /// Packets lost by chance.
    pub chance_losses: u64,
    /// Levels left because most packets did not arrive.
    pub levels_left: u64,
    /// Current limit of the rate other than the path.
    pub limit: Option<RateLimit>,
}

/// Returns an estimated rate with three significant digits.
fn rounded(rate: Rate) -> Rate {
    let unit = 10_u64.pow(rate.as_bits().ilog10().saturating_sub(2));
    Rate::from_bits(rate.as_bits() / unit * unit).unwrap_or(rate)
}

impl fmt::Display for PathStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(limit) = self.limit {
            write!(f, "{limit}, ")?;
        }
        match (self.bottleneck, self.is_alone) {
            (None, _) if self.limit.is_some() => write!(f, "no queue seen")?,
            (None, _) => write!(f, "no queue seen yet, so the path's rate is unknown")?,
            (Some(rate), true) => write!(f, "alone on a path of {}", rounded(rate))?,
            (Some(rate), false) if self.others.is_none() => {
                write!(f, "after an overload of a path of {}", rounded(rate))?;
            }
            (Some(rate), false) => write!(f, "beside others on a path of {}", rounded(rate))?,
        }
        if let Some(part) = self.others.filter(|_| !self.is_alone) {
            write!(f, ", who have {:.0} %", 100.0 * part)?;
        }
        if self.chance >= 0.001 {
            write!(f, ", {:.1} % lost by chance", 100.0 * self.chance)?;
        }
        if self.levels_left > 0 {
            let levels = if self.levels_left == 1 { "level" } else { "levels" };
            write!(f, ", {} {levels} left by overload", self.levels_left)?;
        }
        Ok(())
    }
}
