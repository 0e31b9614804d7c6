//! LE-SBCC: a fair single rate, computed by the sender alone (Thapliyal, Sidhartha, Li, Kalyanaraman, about
//! 2001).
//!
//! Receivers report only missing packets ("loss indications": NAKs, which any PGM receiver sends). From loss
//! indications the sender computes the rate of a TCP connection to the worst receiver:
//!
//! ```text
//! loss indication -> round-trip time -> LI2LE -> Max-LPRF -> ATF -> AIMD or TFRC -> rate
//! ```
//!
//! | module | stage |
//! |---|---|
//! | [`RoundTrip`] | mean and deviation of the time from a packet to the NAK for the packet |
//! | [`Receivers`] | LI2LE: at most one loss event per receiver and round trip |
//! | | Max-LPRF: of all receivers' loss events, passes as many as the worst receiver has |
//! | [`Chain`] | ATF: at most one reduction every 1.5 round trips, and a pause; the rate |
//!
//! Each stage can be switched off, as in the paper: [`Stages`]. Departures from the paper:
//! `docs/errata/le-sbcc.md`.
//!
//! The effect of hostile receivers is bounded. The rate never falls below one packet per
//! [`LeSbccConfig::floor_period`]. A receiver counts at most once per round trip, and once per transmission
//! of a packet. State is at most [`LeSbccConfig::with_receivers_max`] receivers of [`RECEIVER_BYTES_MAX`]
//! bytes.
//!
//! With [`LeSbccConfig::with_dismissal`], a receiver that holds the rate at a floor is dismissed. Otherwise,
//! a receiver that claims to lose every packet looks like a receiver behind a dead link. Either receiver
//! brings the rate down to the floor, and no lower. An operator may set a higher floor
//! ([`LeSbccConfig::with_min_rate`]).
//!
//! Forged NAKs can make the round trip look as long as [`LeSbccConfig::with_rtt_max`], or short. The rate
//! then grows slower or faster than a TCP connection's rate, up to [`LeSbccConfig::with_max_rate`] if
//! configured.

mod chain;
mod dismissal;
mod receivers;
#[cfg(test)]
mod tests;

pub use chain::{Chain, ChainCounters, Indication, Intervals, Stage};
pub use receivers::{RECEIVER_BYTES_MAX, Receivers, RoundTrip, UNPROVEN};

use crate::rate::Rate;
use crate::time::Duration;

/// Active stages. All stages are active, except in experiments that show the effect of a missing stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages {
    /// LI2LE: at most one loss event per receiver and round trip. Without this stage each indication is a
    /// loss event.
    pub li2le: bool,
    /// Max-LPRF: as many events pass as the worst receiver has. Without this stage each event passes.
    pub max_lprf: bool,
    /// ATF: at most one reduction per epoch. Without this stage each passed event is a reduction, and there
    /// is no pause.
    pub atf: bool,
}

impl Stages {
    /// All stages.
    pub const ALL: Self = Self { li2le: true, max_lprf: true, atf: true };
}

/// Time between reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epoch {
    /// 1.5 (SRTT + 4 sigma), as in the paper's pseudo-code.
    Code,
    /// SRTT + 4 sigma, as in the paper's text.
    Text,
}

/// Rate module: computes a rate from the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// A packet more each round trip; half the rate at an event.
    Aimd,
    /// Throughput of TCP's equation at the rate of events.
    Tfrc,
    /// Binomial with k = l = 1/2: of W packets per round trip, 1/sqrt(W) more each round trip, and
    /// 2/3 sqrt(W) less at an event (Bansal, Balakrishnan 2001).
    Sqrt,
    /// Binomial with k = 1, l = 0: of W packets per round trip, 1/W more each round trip, and 2/3 less at an
    /// event (Bansal, Balakrishnan 2001).
    Iiad,
}

impl Module {
    /// All modules.
    pub const ALL: [Self; 4] = [Self::Aimd, Self::Tfrc, Self::Sqrt, Self::Iiad];

    /// Exponents k of the increase and l of the decrease (Bansal, Balakrishnan 2001); of TFRC not used.
    const fn exponents(self) -> (f64, f64) {
        match self {
            Self::Aimd | Self::Tfrc => (0.0, 1.0),
            Self::Sqrt => (0.5, 0.5),
            Self::Iiad => (1.0, 0.0),
        }
    }
}

/// Estimator of the round-trip time from samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimator {
    /// Mean and mean deviation of all samples, as published. The samples come from losses, so that queues are
    /// full, and include receivers' back-off. The rate grows by a packet each SRTT + 2 sigma.
    Published,
    /// Mean round-trip time of a TCP connection, from the round-trip times of the empty path and of the full
    /// queue (`docs/design/le-sbcc.md`). The rate grows by a packet each SRTT.
    Sawtooth,
}

/// Start of a sample of the round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Samples {
    /// Transmission of the packet after the lost packet, by which the receiver notices the loss.
    Noticed,
    /// Transmission of the lost packet, as in the paper's pseudo-code. The sample includes the wait for the
    /// next packet, and any pause in between. For experiments without repairs: samples of NAKs sent by a
    /// timer count as well.
    Sent,
}

/// Configuration of a `Chain`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeSbccConfig {
    pub(super) segment_bytes: u16,
    pub(super) rtt: Duration,
    pub(super) rtt_max: Duration,
    pub(super) srtt_gain: f64,
    pub(super) initial_rate: Option<Rate>,
    pub(super) doubles_at_start: bool,
    pub(super) blind_doubling: Option<Duration>,
    pub(super) rtt_is_assumed: bool,
    pub(super) max_rate: Option<Rate>,
    pub(super) min_rate: Option<Rate>,
    pub(super) receivers_max: u32,
    pub(super) stages: Stages,
    pub(super) epoch: Epoch,
    pub(super) module: Module,
    pub(super) samples: Samples,
    pub(super) estimator: Estimator,
    pub(super) dismisses: bool,
}

impl LeSbccConfig {
    /// Creates a configuration for packets of `segment_bytes`, at least 1, including the headers that count.
    /// The initial round-trip time is 200 ms (the paper's testbed), and the initial rate a packet per
    /// round-trip time.
    pub fn new(segment_bytes: u16) -> Self {
        Self {
            segment_bytes: segment_bytes.max(1),
            rtt: Duration::from_millis(200),
            rtt_max: Duration::from_secs(2),
            srtt_gain: 0.125,
            initial_rate: None,
            doubles_at_start: false,
            blind_doubling: Some(Duration::ZERO),
            rtt_is_assumed: false,
            max_rate: None,
            min_rate: None,
            receivers_max: 65_536,
            stages: Stages::ALL,
            epoch: Epoch::Code,
            module: Module::Aimd,
            samples: Samples::Noticed,
            estimator: Estimator::Published,
            dismisses: false,
        }
    }

    /// Whether one receiver cannot hold all others at a very low rate. The rate then stays above
    /// [`Chain::least_rate`]; a receiver that holds the rate there for 10 s is dismissed for 5 minutes, and
    /// the rate doubles again as at the start. NAKs of unproven addresses count as those of one receiver.
    /// Default: no, as in the paper.
    #[must_use]
    pub fn with_dismissal(mut self, dismisses: bool) -> Self {
        self.dismisses = dismisses;
        self
    }

    /// Sets the initial round-trip time, at least 1 ms. Default: 200 ms.
    #[must_use]
    pub fn with_rtt(mut self, rtt: Duration) -> Self {
        self.rtt = rtt.max(Duration::from_millis(1));
        self
    }

    /// Sets the maximum sample of the round-trip time; a longer sample counts as this maximum. The maximum
    /// bounds the effect of late and forged NAKs. Default: 2 s.
    #[must_use]
    pub fn with_rtt_max(mut self, rtt: Duration) -> Self {
        self.rtt_max = rtt.max(Duration::from_millis(1));
        self
    }

    /// Sets the weight of a new sample in SRTT, above 0 and at most 1. Default: 0.125, as in TCP; the paper's
    /// pseudo-code reads 0.875.
    #[must_use]
    pub fn with_srtt_gain(mut self, gain: f64) -> Self {
        self.srtt_gain = gain.clamp(0.001, 1.0);
        self
    }

    /// Sets the initial rate. Default: a packet each round trip.
    #[must_use]
    pub fn with_initial_rate(mut self, rate: Rate) -> Self {
        self.initial_rate = Some(rate);
        self
    }

    /// Whether AIMD doubles the rate each SRTT + 2 sigma until the first loss event, as TCP does. The TFRC
    /// module doubles in any case. Before the first loss event the round-trip time is unknown, so an increase
    /// of a packet each round trip takes minutes on a fast network.
    ///
    /// With doubling and either module, losses of the start count for the rate at which the lost packets were
    /// sent. A receiver's answer (`Chain::heard`), limited to 0.6 s, replaces a shorter guess of the
    /// round-trip time. Default: no, as in the paper.
    #[must_use]
    pub fn with_doubling_at_start(mut self, doubles: bool) -> Self {
        self.doubles_at_start = doubles;
        self
    }

    /// Sets the minimum doubling time at the start while no receiver has been heard; `None`: no doubling
    /// until a receiver is heard. Default: 0, so that the rate doubles each SRTT + 2 sigma.
    #[must_use]
    pub fn with_blind_doubling(mut self, least: Option<Duration>) -> Self {
        self.blind_doubling = least;
        self
    }

    /// Whether the initial round-trip time is a guess. The first sample replaces a guess, as in TCP (RFC
    /// 6298, section 2.2). Otherwise an initial value that is too long decays slowly, because only every
    /// tenth sample below half the mean counts. With a guess, a sample longer than the mean counts only for
    /// packets sent after a loss event of the same receiver: before this event the receiver's host may not
    /// know the path to the source. Default: no, as in the paper.
    #[must_use]
    pub fn with_assumed_rtt(mut self, is_assumed: bool) -> Self {
        self.rtt_is_assumed = is_assumed;
        self
    }

    /// Sets the maximum rate. Default: no limit beyond the network's.
    #[must_use]
    pub fn with_max_rate(mut self, rate: Rate) -> Self {
        self.max_rate = Some(rate);
        self
    }

    /// Sets the minimum rate, if above the floor. A reduction from less than four times the minimum makes no
    /// pause. Default: the floor.
    #[must_use]
    pub fn with_min_rate(mut self, rate: Rate) -> Self {
        self.min_rate = Some(rate);
        self
    }

    /// Sets the maximum number of receivers with separate state, at least 1. Receivers beyond the maximum
    /// count as a single receiver. Default: 65 536, in some 4 MiB.
    #[must_use]
    pub fn with_receivers_max(mut self, receivers: u32) -> Self {
        self.receivers_max = receivers.max(1);
        self
    }

    /// Sets the active stages. Default: all.
    #[must_use]
    pub fn with_stages(mut self, stages: Stages) -> Self {
        self.stages = stages;
        self
    }

    /// Sets the time between reductions. Default: [`Epoch::Code`].
    #[must_use]
    pub fn with_epoch(mut self, epoch: Epoch) -> Self {
        self.epoch = epoch;
        self
    }

    /// Sets the rate module. Default: [`Module::Aimd`].
    #[must_use]
    pub fn with_module(mut self, module: Module) -> Self {
        self.module = module;
        self
    }

    /// Sets the start of samples of the round-trip time. Default: [`Samples::Noticed`].
    #[must_use]
    pub fn with_samples(mut self, samples: Samples) -> Self {
        self.samples = samples;
        self
    }

    /// Sets the estimator of the round-trip time. Default: [`Estimator::Published`].
    #[must_use]
    pub fn with_estimator(mut self, estimator: Estimator) -> Self {
        self.estimator = estimator;
        self
    }

    /// Returns the maximum time between two packets at the floor: 5 times the longest round trip, at least 1
    /// s. The pause after a reduction may add half of this time.
    pub fn floor_period(&self) -> Duration {
        // SRTT and sigma are below the longest sample.
        self.rtt_max.saturating_mul(5).max(Duration::from_secs(1))
    }

    /// Returns the initial rate, if other than a packet per initial round-trip time.
    pub const fn initial_rate(&self) -> Option<Rate> {
        self.initial_rate
    }

    /// Returns the estimator of the round-trip time.
    pub const fn estimator(&self) -> Estimator {
        self.estimator
    }

    /// Returns the rate module.
    pub const fn module(&self) -> Module {
        self.module
    }
}
