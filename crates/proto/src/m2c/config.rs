//! What a receiver may be told.

use crate::rate::Rate;
use crate::rtt::ProberConfig;
use crate::time::Duration;

/// Configuration of a [`super::Receiver`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiverConfig {
    pub(super) max_rate: Option<Rate>,
    pub(super) rtt_hint: Option<Duration>,
    pub(super) prober: Option<ProberConfig>,
}

impl ReceiverConfig {
    /// Defaults: no cap, no hint, no questions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Most that the receiver takes, in bit/s of UDP payload. Default: what the path carries.
    #[must_use]
    pub fn with_max_rate(mut self, rate: Rate) -> Self {
        self.max_rate = Some(rate);
        self
    }

    /// The round-trip time to the sender without queueing, where it is known: what a join takes beyond it is
    /// then known to be the routers' work, which a TCP beside it does not see. Default: the least that a join
    /// took.
    #[must_use]
    pub fn with_rtt_hint(mut self, rtt: Duration) -> Self {
        self.rtt_hint = Some(rtt);
        self
    }

    /// Asks the sender for that time now and then, by unicast. Default: no.
    #[must_use]
    pub fn with_prober(mut self, prober: ProberConfig) -> Self {
        self.prober = Some(prober);
        self
    }
}
