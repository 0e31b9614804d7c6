//! State of receivers: time of the last loss event, and number of loss events. LI2LE and Max-LPRF.
//!
//! Counts fade by a tenth at regular intervals. Instead of an update of all counts, the weight of new events
//! grows, which leaves the share of the worst receiver unchanged. Each indication checks two receivers in
//! turn and forgets receivers with a faded count.

use core::net::IpAddr;

use rand::Rng;

use super::Estimator;
use crate::time::{Duration, Instant};

/// Maximum number of bytes per receiver, including room to grow and the receiver's place in the table.
pub const RECEIVER_BYTES_MAX: usize = 2 * size_of::<Receiver>() + 4 * size_of::<u32>();

/// Minimum count; receivers with a lower count are forgotten (`docs/errata/le-sbcc.md`).
const NEGLIGIBLE: f64 = 0.01;
/// Factor of a count at each fading.
const FADED: f64 = 0.9;
/// Maximum weight of an event, above which all counts are scaled down: a double holds 10^308.
const WEIGHT_MAX: f64 = 1e100;
/// Receivers checked for each indication.
const SWEPT: usize = 2;
/// Marks a bucket without a receiver.
const EMPTY: u32 = u32::MAX;
const BUCKETS_MIN: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Receiver {
    /// Address, with IPv4 mapped into IPv6; [`OTHERS`] for all receivers beyond the table's bound.
    key: u128,
    /// Time of the last loss event.
    last: Instant,
    /// Number of loss events, in units of an event's weight at the beginning of the table.
    count: f64,
}

/// The unspecified address, from which no datagram comes.
const OTHERS: u128 = 0;
/// Receiver that stands for all receivers of unproven addresses, and for all beyond the table's bound.
pub const UNPROVEN: IpAddr = IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED);

/// Receivers with recent loss events. An indication takes constant time, regardless of the number of
/// receivers.
#[derive(Clone, Debug)]
pub struct Receivers {
    receivers: Vec<Receiver>,
    /// Open addressing with linear probing: indices into `receivers`. At most half of the buckets are used.
    buckets: Vec<u32>,
    /// Secret of the hash, so that no attacker can aim at a bucket.
    secret: [u64; 2],
    receivers_max: usize,
    /// Weight of a new event.
    weight: f64,
    sum: f64,
    most: f64,
    worst: u128,
    swept: usize,
}

impl Receivers {
    /// Creates an empty table for at most `receivers_max` receivers. `draw` provides the secret of the hash.
    pub fn new(receivers_max: u32, draw: &mut impl Rng) -> Self {
        Self {
            receivers: Vec::new(),
            buckets: vec![EMPTY; BUCKETS_MIN],
            secret: [draw.next_u64() | 1, draw.next_u64() | 1],
            receivers_max: receivers_max.max(1) as usize,
            weight: 1.0,
            sum: 0.0,
            most: 0.0,
            worst: OTHERS,
            swept: 0,
        }
    }

    /// LI2LE: whether an indication of `receiver`, for a packet last sent at `sent`, is a loss event. The
    /// receiver's last loss event, if any, must be more than `spacing` seconds ago, and before the packet was
    /// sent. Without the second condition a NAK could be replayed at any time.
    pub fn is_event(&self, receiver: IpAddr, now: Instant, sent: Instant, spacing: f64) -> bool {
        let Some(index) = self.find(self.known(key(receiver))) else { return true };
        let last = self.receivers[index].last;
        now.since(last).as_secs_f64() > spacing && sent > last
    }

    /// Whether the packet was sent after a loss event of `receiver`, so that the receiver's host knew the
    /// path to the source. `None` without a loss event of `receiver`.
    pub fn knows_the_way(&self, receiver: IpAddr, sent: Instant) -> Option<bool> {
        self.find(self.known(key(receiver))).map(|index| sent > self.receivers[index].last)
    }

    /// Max-LPRF: counts a loss event of `receiver`, and returns the worst receiver's share of all events.
    /// Events pass with this probability, so that as many events pass as the worst receiver has.
    pub fn event(&mut self, receiver: IpAddr, now: Instant) -> f64 {
        self.sweep();
        let key = self.known(key(receiver));
        let index = self.find(key).unwrap_or_else(|| self.insert(key, now));
        let receiver = &mut self.receivers[index];
        receiver.last = now;
        receiver.count += self.weight;
        self.sum += self.weight;
        if receiver.count >= self.most {
            self.most = receiver.count;
            self.worst = key;
        }
        self.most / self.sum
    }

    /// Fades all counts by a tenth.
    pub fn fade(&mut self) {
        self.weight /= FADED;
        if self.weight > WEIGHT_MAX {
            let weight = self.weight;
            self.receivers.iter_mut().for_each(|receiver| receiver.count /= weight);
            self.sum = self.receivers.iter().map(|receiver| receiver.count).sum();
            self.most /= weight;
            self.weight = 1.0;
        }
    }

    /// Returns the size of the table in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.receivers.capacity() * size_of::<Receiver>()
            + self.buckets.capacity() * size_of::<u32>()
    }

    /// Number of receivers remembered.
    pub fn len(&self) -> usize {
        self.receivers.len()
    }

    /// Whether no receiver is remembered.
    pub fn is_empty(&self) -> bool {
        self.receivers.is_empty()
    }

    /// Returns the receiver with most recent loss events, and the receiver's share of all events. `None`
    /// before the first event, and if the worst entry is the shared entry of receivers beyond the bound.
    pub fn worst(&self) -> Option<(IpAddr, f64)> {
        let address = core::net::Ipv6Addr::from_bits(self.worst).to_canonical();
        (self.worst != OTHERS && !self.is_empty()).then_some((address, self.most / self.sum))
    }

    /// Forgets the receiver with most recent loss events, and returns the receiver; `None` before the first
    /// event.
    pub(super) fn forget_worst(&mut self) -> Option<IpAddr> {
        let index = self.find(self.worst)?;
        let worst = core::net::Ipv6Addr::from_bits(self.worst).to_canonical();
        self.forget(index);
        self.most = 0.0;
        for receiver in &self.receivers {
            if receiver.count > self.most {
                (self.most, self.worst) = (receiver.count, receiver.key);
            }
        }
        Some(if worst.is_unspecified() { UNPROVEN } else { worst })
    }

    /// Whether `receiver` has most recent loss events.
    pub(super) fn is_worst(&self, receiver: IpAddr) -> bool {
        !self.is_empty() && self.worst == key(receiver)
    }

    /// Returns the faded number of loss events of a receiver.
    pub fn count(&self, receiver: IpAddr) -> f64 {
        self.find(key(receiver)).map_or(0.0, |index| self.receivers[index].count / self.weight)
    }

    /// Returns the key that `key` counts for: the same key, or the shared key of receivers beyond the bound.
    fn known(&self, key: u128) -> u128 {
        if self.receivers.len() < self.receivers_max || self.find(key).is_some() { key } else { OTHERS }
    }

    fn sweep(&mut self) {
        for _ in 0..SWEPT.min(self.receivers.len()) {
            if self.swept >= self.receivers.len() {
                self.swept = 0;
            }
            if self.receivers.get(self.swept).is_some_and(|one| one.count < NEGLIGIBLE * self.weight) {
                self.forget(self.swept);
            } else {
                self.swept += 1;
            }
        }
    }

    fn find(&self, key: u128) -> Option<usize> {
        self.probe(key).map(|index| index as usize).find(|index| self.receivers[*index].key == key)
    }

    /// Receivers in the buckets where `key` may be.
    fn probe(&self, key: u128) -> impl Iterator<Item = u32> {
        let mask = self.buckets.len() - 1;
        let home = self.home(key);
        (0..self.buckets.len())
            .map(move |step| self.buckets[(home + step) & mask])
            .take_while(|index| *index != EMPTY)
    }

    fn insert(&mut self, key: u128, now: Instant) -> usize {
        let index = self.receivers.len();
        self.receivers.push(Receiver { key, last: now, count: 0.0 });
        if self.receivers.len() * 2 > self.buckets.len() {
            self.buckets = vec![EMPTY; self.buckets.len() * 2];
            (0..self.receivers.len()).for_each(|index| self.place(index));
        } else {
            self.place(index);
        }
        index
    }

    fn place(&mut self, index: usize) {
        let mask = self.buckets.len() - 1;
        let mut bucket = self.home(self.receivers[index].key);
        while self.buckets[bucket] != EMPTY {
            bucket = (bucket + 1) & mask;
        }
        self.buckets[bucket] = u32::try_from(index).unwrap_or(EMPTY);
    }

    /// Forgets a receiver, and moves the last receiver to the free index.
    fn forget(&mut self, index: usize) {
        let last = self.receivers.len() - 1;
        self.vacate(index);
        if index != last
            && let Some(bucket) = self.bucket_of(last)
        {
            self.buckets[bucket] = u32::try_from(index).unwrap_or(EMPTY);
        }
        let gone = self.receivers.swap_remove(index);
        self.sum = (self.sum - gone.count).max(0.0);
        if self.receivers.is_empty() {
            (self.sum, self.most, self.weight) = (0.0, 0.0, 1.0);
        }
    }

    /// Removes a receiver from a bucket, and moves up the following receivers that could no longer be found.
    fn vacate(&mut self, index: usize) {
        let mask = self.buckets.len() - 1;
        let Some(mut hole) = self.bucket_of(index) else { return };
        let mut bucket = (hole + 1) & mask;
        while self.buckets[bucket] != EMPTY {
            let home = self.home(self.receivers[self.buckets[bucket] as usize].key);
            if bucket.wrapping_sub(home) & mask >= bucket.wrapping_sub(hole) & mask {
                self.buckets[hole] = self.buckets[bucket];
                hole = bucket;
            }
            bucket = (bucket + 1) & mask;
        }
        self.buckets[hole] = EMPTY;
    }

    fn bucket_of(&self, index: usize) -> Option<usize> {
        let mask = self.buckets.len() - 1;
        let home = self.home(self.receivers[index].key);
        let wanted = u32::try_from(index).ok()?;
        (0..self.buckets.len())
            .map(|step| (home + step) & mask)
            .find(|bucket| self.buckets[*bucket] == wanted)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low bits of a hash are one")]
    fn home(&self, key: u128) -> usize {
        let [low, high] = [key as u64 ^ self.secret[0], (key >> 64) as u64 ^ self.secret[1]];
        let folded = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            product as u64 ^ (product >> 64) as u64
        };
        folded(folded(low, high | 1) ^ self.secret[1], self.secret[0]) as usize & (self.buckets.len() - 1)
    }
}

fn key(receiver: IpAddr) -> u128 {
    match receiver {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Weight of a new deviation (Thapliyal et al., pseudo-code).
const SIGMA_GAIN: f64 = 0.125;
/// Of samples below half the mean, every `SHORT_SAMPLES`th counts: NAKs for retransmitted packets cause short
/// samples (`docs/errata/le-sbcc.md`).
const SHORT_SAMPLES: u32 = 10;
const LEAST: f64 = 1e-4;

/// Number of recent samples of which the least counts as the round-trip time of a full queue. Samples are
/// longer by receivers' back-off, uniform in 0 to 50 ms: the least of 32 by 1.5 ms on average, the least of 8
/// by 6 ms, as much as a queue of 25 packets at 40 Mbit/s.
const RECENT: usize = 32;

/// Longest usual back-off of a receiver's first answer and of NAKs, in seconds.
const BACK_OFF: f64 = 0.05;

/// Time in seconds until a NAK beyond the round trip: a back-off, and as much for receivers that have not
/// reported the distance yet.
const FEEDBACK: f64 = 2.0 * BACK_OFF;

/// Mean and mean deviation of the round-trip time. Neither exceeds the longest sample allowed.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    srtt: f64,
    sigma: f64,
    gain: f64,
    longest: f64,
    short: u32,
    /// Whether the mean is a guess, which the first sample replaces.
    is_assumed: bool,
    /// Whether a receiver measured the round-trip time.
    is_measured: bool,
    estimator: Estimator,
    /// Least round-trip time of all samples and answers: that of the empty path.
    base: f64,
    /// Last samples, and the number of all samples.
    recent: [f64; RECENT],
    count: usize,
}

impl RoundTrip {
    /// Begins with a mean of `first` and a deviation of half the mean. Samples have the weight `gain`, and
    /// are limited to `longest`.
    pub fn new(first: Duration, gain: f64, longest: Duration) -> Self {
        let longest = longest.as_secs_f64().max(LEAST);
        let srtt = first.as_secs_f64().clamp(LEAST, longest);
        Self {
            srtt,
            sigma: srtt / 2.0,
            gain,
            longest,
            short: 0,
            is_assumed: false,
            is_measured: false,
            estimator: Estimator::Published,
            base: longest,
            recent: [longest; RECENT],
            count: 0,
        }
    }

    /// Sets the estimator.
    #[must_use]
    pub const fn with_estimator(mut self, estimator: Estimator) -> Self {
        self.estimator = estimator;
        self
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
        self.base = self.base.min((answer - BACK_OFF).max(LEAST));
        if self.is_assumed && !self.is_measured && answer > self.srtt {
            (self.srtt, self.sigma) = (answer, answer / 2.0);
        }
    }

    /// Records a round-trip time that a receiver measured. The longest one, with the time for a NAK, replaces
    /// a guess, because the rate must not double before the farthest receiver can answer.
    pub fn measured(&mut self, round_trip: Duration) {
        let round_trip = round_trip.as_secs_f64().clamp(LEAST, self.longest);
        self.base = self.base.min(round_trip);
        let answer = (round_trip + FEEDBACK).min(self.longest);
        if self.is_assumed && (answer > self.srtt || !self.is_measured) {
            (self.srtt, self.sigma) = (answer, answer / 2.0);
        }
        self.is_measured = true;
    }

    /// Takes a sample. Returns whether the sample counted.
    pub fn sample(&mut self, sample: Duration) -> bool {
        let sample = sample.as_secs_f64().clamp(LEAST, self.longest);
        if self.estimator == Estimator::Sawtooth {
            self.follow_sawtooth(sample);
            return true;
        }
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

    /// The window of a TCP connection rises from half to all of the packets that path and queue hold. The
    /// round-trip time rises with the window, but is not below that of the empty path. If the empty path's
    /// round-trip time is a part `x` of the full queue's, the mean is `x^2 - x + 1` of the full queue's for
    /// `x` above a half, and 3/4 below. The mean deviation is half of the mean's distance to the full queue's
    /// where the path never runs empty, so that SRTT + 2 sigma is the round-trip time of the full queue.
    fn follow_sawtooth(&mut self, sample: f64) {
        self.is_assumed = false;
        self.base = self.base.min(sample);
        self.recent[self.count % RECENT] = sample;
        self.count += 1;
        let full = self.recent[..self.count.min(RECENT)].iter().copied().fold(self.longest, f64::min);
        let part = (self.base / full).max(0.5);
        self.srtt = full * (part * part - part + 1.0);
        self.sigma = (full - self.srtt) / 2.0;
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

    /// SRTT + 2 sigma, in seconds: the spacing of a receiver's loss events.
    pub const fn spacing(&self) -> f64 {
        self.srtt + 2.0 * self.sigma
    }

    /// SRTT + 4 sigma, in seconds: TCP's timeout.
    pub const fn timeout(&self) -> f64 {
        self.srtt + 4.0 * self.sigma
    }

    /// Period of doublings in seconds: SRTT + 2 sigma, and the time for a NAK where the samples exclude the
    /// back-off.
    pub fn doubling(&self) -> f64 {
        match self.estimator {
            Estimator::Sawtooth if !self.is_assumed => self.spacing() + FEEDBACK,
            Estimator::Sawtooth | Estimator::Published => self.spacing(),
        }
    }

    /// Period of increases in seconds: SRTT + 2 sigma as published and while the mean is a guess; SRTT as in
    /// TCP otherwise.
    pub fn period(&self) -> f64 {
        match self.estimator {
            Estimator::Sawtooth if !self.is_assumed => self.srtt,
            Estimator::Sawtooth | Estimator::Published => self.spacing(),
        }
    }
}
