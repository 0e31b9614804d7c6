//! The round-trip time, measured from packets to the resulting NAKs.

use crate::time::Duration;

/// Weight of a new deviation (Thapliyal et al., pseudo-code).
const SIGMA_GAIN: f64 = 0.125;
/// Of samples below half the mean, every `SHORT_SAMPLES`th counts: NAKs for retransmitted packets cause short
/// samples (`docs/errata/le-sbcc.md`).
const SHORT_SAMPLES: u32 = 10;
const LEAST: f64 = 1e-4;

/// Mean and mean deviation of the round-trip time, including receivers' back-off. Neither exceeds the longest
/// sample allowed.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    srtt: f64,
    sigma: f64,
    gain: f64,
    longest: f64,
    short: u32,
    /// Whether the mean is a guess, which the first sample replaces.
    is_assumed: bool,
}

impl RoundTrip {
    /// Begins with a mean of `first` and a deviation of half the mean. Samples have the weight `gain`, and
    /// are limited to `longest`.
    pub fn new(first: Duration, gain: f64, longest: Duration) -> Self {
        let longest = longest.as_secs_f64().max(LEAST);
        let srtt = first.as_secs_f64().clamp(LEAST, longest);
        Self { srtt, sigma: srtt / 2.0, gain, longest, short: 0, is_assumed: false }
    }

    /// Marks the mean as a guess, which the first sample replaces. The deviation becomes half the sample, as
    /// in TCP (RFC 6298, section 2.2), or half the difference from the guess if larger: a NAK that came
    /// through an empty queue says little of a full queue.
    #[must_use]
    pub const fn assumed(mut self) -> Self {
        self.is_assumed = true;
        self
    }

    /// Records an answer of a receiver, which replaces a shorter guess. A sample still replaces the answer.
    pub fn heard(&mut self, answer: Duration) {
        let answer = answer.as_secs_f64().min(self.longest);
        if self.is_assumed && answer > self.srtt {
            (self.srtt, self.sigma) = (answer, answer / 2.0);
        }
    }

    /// Takes a sample. Returns whether the sample counted.
    pub fn sample(&mut self, sample: Duration) -> bool {
        let sample = sample.as_secs_f64().clamp(LEAST, self.longest);
        if self.is_assumed {
            let sigma = sample.max((self.srtt - sample).abs()) / 2.0;
            (self.srtt, self.sigma, self.is_assumed) = (sample, sigma, false);
            return true;
        }
        if sample < self.srtt / 2.0 {
            self.short = (self.short + 1) % SHORT_SAMPLES;
            if self.short != 0 {
                return false;
            }
        }
        let error = sample - self.srtt;
        self.srtt += self.gain * error;
        self.sigma += SIGMA_GAIN * (error.abs() - self.sigma);
        true
    }

    /// Whether the mean is still a guess, without any sample.
    pub const fn is_assumed(&self) -> bool {
        self.is_assumed
    }

    /// Mean in seconds.
    pub const fn srtt(&self) -> f64 {
        self.srtt
    }

    /// Mean deviation in seconds.
    pub const fn sigma(&self) -> f64 {
        self.sigma
    }

    /// SRTT + 2 sigma, in seconds: the spacing of a receiver's loss events, and of increases.
    pub const fn spacing(&self) -> f64 {
        self.srtt + 2.0 * self.sigma
    }

    /// SRTT + 4 sigma, in seconds: TCP's timeout.
    pub const fn timeout(&self) -> f64 {
        self.srtt + 4.0 * self.sigma
    }
}
