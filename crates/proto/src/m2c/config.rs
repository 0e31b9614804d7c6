//! Configuration of an M2C receiver.

use crate::control::Rules;
use crate::rate::Rate;
use crate::rtt::ProberConfig;
use crate::time::Duration;

/// Configuration of a [`super::Receiver`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiverConfig {
    pub(super) max_rate: Option<Rate>,
    pub(super) rtt_hint: Option<Duration>,
    pub(super) prober: Option<ProberConfig>,
    pub(super) rules: Rules,
}

impl ReceiverConfig {
    /// Returns the defaults: no rate cap, no round-trip hint, no round-trip requests.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum rate of the receiver, in bit/s of UDP payload. Default: limited by the path only.
    #[must_use]
    pub fn with_max_rate(mut self, rate: Rate) -> Self {
        self.max_rate = Some(rate);
        self
    }

    /// Sets the round-trip time to the sender without queueing, if known. Join time beyond the hint is then
    /// attributed to the routers; a TCP flow on the path does not see that time. Default: the shortest join
    /// time.
    #[must_use]
    pub fn with_rtt_hint(mut self, rtt: Duration) -> Self {
        self.rtt_hint = Some(rtt);
        self
    }

    /// Sets the rules. Default: [`Rules::Revised`]; [`Rules::Published`] repeats experiments of the papers.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Enables unicast round-trip requests to the sender. Default: off.
    #[must_use]
    pub fn with_prober(mut self, prober: ProberConfig) -> Self {
        self.prober = Some(prober);
        self
    }
}
