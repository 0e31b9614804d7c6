//! Which congestion control a session runs.

use headwater_fec::Order;
use headwater_proto::Rate;

/// The congestion control of a session, with what its sender must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CongestionControl {
    /// One channel at a rate that the operator chose: for networks of one's own, since it is fair to nobody.
    Fixed {
        /// Bits of UDP payload per second.
        rate: Rate,
    },
}

impl CongestionControl {
    /// Its name, as the command line spells it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fixed { .. } => "fixed",
        }
    }

    /// Channels of a session under it.
    pub const fn channels(&self) -> u16 {
        match self {
            Self::Fixed { .. } => 1,
        }
    }

    /// The highest rate at which it sends to one receiver.
    pub const fn rate_max(&self) -> Rate {
        match self {
            Self::Fixed { rate } => *rate,
        }
    }

    /// What block sizes are chosen for.
    pub(crate) const fn order(&self) -> Order {
        Order::Spread { rate: self.rate_max().as_bits() }
    }
}
