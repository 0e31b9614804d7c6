//! Checks of signatures whose pass fits no verified signature: a few at once, a random sample of the rest.

use rand::RngExt;

use super::waiting::Origin;
use crate::machine::{ChannelId, DATAGRAM_BYTES_MAX};
use crate::rng::Stream;
use crate::time::{Duration, Instant};

/// Interval of checks at once: 200 a second, 0.01 of a core.
const INTERVAL: Duration = Duration::from_millis(5);
/// Interval of checks at once of packets sent on request, each of which is signed: 10 000 a second.
const INTERVAL_ON_REQUEST: Duration = Duration::from_micros(100);
/// Most checks at once after a calm.
const SAVED_MAX: u64 = 32;

/// Time in which a sample is drawn.
const SLICE: Duration = Duration::from_millis(10);
/// Packets of a sample while a joined channel has no verified signature: 20 000 checks a second. Beside
/// 100 000 forged signatures a second, 95 of 100 receivers verify one of 15 genuine signatures.
const SAMPLE_OPEN: usize = 200;
/// Packets of a sample otherwise: 2000 checks a second, 0.06 of a core.
const SAMPLE: usize = 20;
/// Checks of samples earned in each slice: 8000 a second, 0.25 of a core, for as long as a flood lasts.
const EARNED: usize = 80;
/// Most checks of samples after a calm: larger samples than the earned ones for 2 s.
const SAVED_SAMPLES_MAX: usize = 24_000;

/// Budget of checks at once, in order of arrival.
#[derive(Debug)]
pub(crate) struct Budget {
    interval: Duration,
    /// Time at which the budget is full again.
    full: Instant,
}

impl Budget {
    pub(crate) fn new(is_on_request: bool) -> Self {
        Self { interval: if is_on_request { INTERVAL_ON_REQUEST } else { INTERVAL }, full: Instant::ZERO }
    }

    /// Takes one check. Returns whether the signature may be checked.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let full = self.full.max(now) + self.interval;
        let has = full.since(now) <= self.interval.saturating_mul(SAVED_MAX);
        if has {
            self.full = full;
        }
        has
    }
}

/// Signed packet of a sample.
#[derive(Debug)]
pub(crate) struct SampledPacket {
    pub(crate) channel: ChannelId,
    pub(crate) arrived: Instant,
    pub(crate) origin: Origin,
    pub(crate) bytes: Vec<u8>,
}

/// Uniform random sample of the signed packets of a slice of time (reservoir sampling): a flood gains nothing
/// from arriving before the genuine packets. Memory: at most 1.8 MB.
#[derive(Debug)]
pub(crate) struct Sample {
    rng: Stream,
    packets: Vec<SampledPacket>,
    /// Size of the slice's sample.
    size: usize,
    /// Packets of the slice so far.
    offered: usize,
    /// End of the slice; `None` without packets.
    end: Option<Instant>,
    /// Checks saved at the start of the latest slice.
    saved: usize,
    start: Instant,
}

impl Sample {
    pub(crate) fn new(rng: Stream) -> Self {
        let (packets, saved, start) = (Vec::new(), SAVED_SAMPLES_MAX, Instant::ZERO);
        Self { rng, packets, size: 0, offered: 0, end: None, saved, start }
    }

    /// Offers a packet. Returns whether a packet was dropped: this packet or an earlier one.
    pub(crate) fn offer(
        &mut self,
        is_open: impl FnOnce() -> bool,
        now: Instant,
        (channel, origin, bytes): (ChannelId, Origin, &[u8]),
    ) -> bool {
        if bytes.len() > DATAGRAM_BYTES_MAX {
            return true;
        }
        if self.end.is_none() {
            self.begin_slice(now, if is_open() { SAMPLE_OPEN } else { SAMPLE });
        }
        self.offered += 1;
        let is_full = self.packets.len() == self.size;
        let place = if is_full { self.rng.random_range(0..self.offered) } else { self.packets.len() };
        let packet = || SampledPacket { channel, arrived: now, origin, bytes: bytes.to_vec() };
        match self.packets.get_mut(place) {
            Some(earlier) => *earlier = packet(),
            None if !is_full => self.packets.push(packet()),
            None => {}
        }
        is_full
    }

    fn begin_slice(&mut self, now: Instant, size: usize) {
        let slices = now.since(self.start).as_nanos() / SLICE.as_nanos();
        let earned = usize::try_from(slices).unwrap_or(usize::MAX).saturating_mul(EARNED);
        self.saved = self.saved.saturating_add(earned).min(SAVED_SAMPLES_MAX);
        (self.start, self.end) = (now, Some(now + SLICE));
        (self.offered, self.size) = (0, size.min(self.saved));
    }

    /// Takes the sample at the end of the slice.
    pub(crate) fn take(&mut self, now: Instant) -> Vec<SampledPacket> {
        if self.end.is_none_or(|end| now < end) {
            return Vec::new();
        }
        self.end = None;
        self.saved -= self.packets.len();
        core::mem::take(&mut self.packets)
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns the end of the slice.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.end
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.packets.iter().map(|packet| size_of::<SampledPacket>() + packet.bytes.capacity()).sum()
    }
}
