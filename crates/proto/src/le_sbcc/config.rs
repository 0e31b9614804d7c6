//! What a chain may be told.

use crate::rate::Rate;
use crate::time::Duration;

/// Stages that are at work; all, unless something is to be shown by leaving one out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages {
    /// At most one loss event of a receiver each round trip. Without it each indication is an event.
    pub li2le: bool,
    /// As many events pass as the worst receiver has. Without it each event passes.
    pub max_lprf: bool,
    /// At most one reduction each epoch. Without it each event that passes is a reduction, and there is no
    /// pause.
    pub atf: bool,
}

impl Stages {
    /// All of them.
    pub const ALL: Self = Self { li2le: true, max_lprf: true, atf: true };
}

/// How far apart reductions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epoch {
    /// 1.5 (SRTT + 4 sigma), as the paper's pseudo-code has it.
    Code,
    /// SRTT + 4 sigma, as its text has it.
    Text,
}

/// What makes a rate of the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// One packet more each round trip, half at an event.
    Aimd,
    /// The rate of TCP's equation at the events' rate.
    Tfrc,
}

/// From when a sample of the round-trip time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Samples {
    /// From when the packet behind the lost one was sent, by which its receiver noticed.
    Noticed,
    /// From when the lost packet was sent, as the paper's pseudo-code has it: the wait for the packet behind
    /// it, and a pause in between, count as round trip. For experiments without repairs: what is asked for by
    /// a timer counts as well.
    Sent,
}

/// Configuration of a [`super::Chain`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
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
}

impl Config {
    /// For packets of `segment_bytes`, headers that count included; at least 1. It begins at a round-trip
    /// time of 200 ms (the paper's testbed) and one packet each of it.
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
        }
    }

    /// The round-trip time to begin with, 1 ms at least. Default: 200 ms.
    #[must_use]
    pub fn with_rtt(mut self, rtt: Duration) -> Self {
        self.rtt = rtt.max(Duration::from_millis(1));
        self
    }

    /// Longest sample of the round-trip time that counts in full; what is longer counts as this. It bounds
    /// what late and forged NAKs do. Default: 2 s.
    #[must_use]
    pub fn with_rtt_max(mut self, rtt: Duration) -> Self {
        self.rtt_max = rtt.max(Duration::from_millis(1));
        self
    }

    /// Weight of a new sample in SRTT, above 0 and at most 1. Default: 0.125, as TCP; the paper's pseudo-code
    /// reads 0.875.
    #[must_use]
    pub fn with_srtt_gain(mut self, gain: f64) -> Self {
        self.srtt_gain = gain.clamp(0.001, 1.0);
        self
    }

    /// The rate to begin with. Default: a packet each round trip.
    #[must_use]
    pub fn with_initial_rate(mut self, rate: Rate) -> Self {
        self.initial_rate = Some(rate);
        self
    }

    /// Whether AIMD doubles its rate each SRTT + 2 sigma until the first loss event, as TCP does and as the
    /// TFRC module does at any rate. Before that event nothing is known of the round-trip time, so that a
    /// packet more each of it takes minutes on a fast network. With either module, losses of that time then
    /// count for the rate at which their packets were sent, and a receiver's answer ([`super::Chain::heard`])
    /// takes the place of a guess of the round-trip time that is shorter, up to 0.6 s. Default: no, as the
    /// paper.
    #[must_use]
    pub fn with_doubling_at_start(mut self, doubles: bool) -> Self {
        self.doubles_at_start = doubles;
        self
    }

    /// Least time in which the rate doubles at the start while no receiver was heard; `None`: not before.
    /// Default: SRTT + 2 sigma will do.
    #[must_use]
    pub fn with_blind_doubling(mut self, least: Option<Duration>) -> Self {
        self.blind_doubling = least;
        self
    }

    /// Whether the round-trip time to begin with is a guess, which the first sample replaces, as TCP's does
    /// (RFC 6298, section 2.2). A guess that is too long stays long otherwise, as of samples below half the
    /// mean every tenth counts. And whether a sample longer than the mean counts only for packets sent after
    /// a loss event of the same receiver: before that its host may not know the way to the source. Default:
    /// no, as the paper.
    #[must_use]
    pub fn with_assumed_rtt(mut self, is_assumed: bool) -> Self {
        self.rtt_is_assumed = is_assumed;
        self
    }

    /// Most that is ever sent. Default: what the network takes.
    #[must_use]
    pub fn with_max_rate(mut self, rate: Rate) -> Self {
        self.max_rate = Some(rate);
        self
    }

    /// Least that is ever sent, where that is above the floor; a reduction from less than four times that
    /// makes no pause. Default: the floor.
    #[must_use]
    pub fn with_min_rate(mut self, rate: Rate) -> Self {
        self.min_rate = Some(rate);
        self
    }

    /// Receivers that are told apart, at least 1; beyond it new ones count as one. Default: 65 536, in some 4
    /// MiB.
    #[must_use]
    pub fn with_receivers_max(mut self, receivers: u32) -> Self {
        self.receivers_max = receivers.max(1);
        self
    }

    /// Stages at work. Default: all.
    #[must_use]
    pub fn with_stages(mut self, stages: Stages) -> Self {
        self.stages = stages;
        self
    }

    /// How far apart reductions are. Default: [`Epoch::Code`].
    #[must_use]
    pub fn with_epoch(mut self, epoch: Epoch) -> Self {
        self.epoch = epoch;
        self
    }

    /// What makes the rate. Default: [`Module::Aimd`].
    #[must_use]
    pub fn with_module(mut self, module: Module) -> Self {
        self.module = module;
        self
    }

    /// From when samples of the round-trip time count. Default: [`Samples::Noticed`].
    #[must_use]
    pub fn with_samples(mut self, samples: Samples) -> Self {
        self.samples = samples;
        self
    }

    /// Longest time from packet to packet at the floor: 5 times the longest round trip, or 1 s. The pause
    /// after a reduction may add half of it.
    pub fn floor_period(&self) -> Duration {
        // SRTT and sigma are below the longest sample.
        self.rtt_max.saturating_mul(5).max(Duration::from_secs(1))
    }

    /// The rate to begin with, where it is not a packet each initial round-trip time.
    pub const fn initial_rate(&self) -> Option<Rate> {
        self.initial_rate
    }

    /// What makes the rate.
    pub const fn module(&self) -> Module {
        self.module
    }

    /// Receivers that are told apart.
    pub const fn receivers_max(&self) -> u32 {
        self.receivers_max
    }
}
