//! Which congestion control a session runs.

use headwater_fec::Order;
use headwater_proto::Rate;

use crate::send::SendOrder;

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

    /// The order to send in: the one wanted, or the one that its rate asks for. Windows are for receivers that get all
    /// of the one channel.
    pub(crate) fn order(&self, wanted: Option<SendOrder>) -> Order {
        let rate = self.rate_max().as_bits();
        match wanted {
            Some(SendOrder::Spread) => Order::Spread { rate },
            Some(SendOrder::Window) => Order::Window,
            None if self.channels() > 1 => Order::Spread { rate },
            None => Order::for_rate(rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_chooses_the_order_unless_it_is_said() {
        let order =
            |rate, wanted| CongestionControl::Fixed { rate: Rate::from_bits(rate).unwrap() }.order(wanted);
        assert_eq!(order(999_999_999, None), Order::Spread { rate: 999_999_999 });
        assert_eq!(order(1_000_000_000, None), Order::Window);
        assert_eq!(order(1_000_000_000, Some(SendOrder::Spread)), Order::Spread { rate: 1_000_000_000 });
        assert_eq!(order(1, Some(SendOrder::Window)), Order::Window);
    }
}
