//! What is known of receivers: when each last had a loss event, and how many it had. LI2LE and Max-LPRF.
//!
//! Counts fade by a tenth each so often. Rather than touch all of them, a new event weighs so much more: the
//! share of the worst receiver is the same. Each indication looks at two receivers in turn and forgets those
//! whose count has faded away.

use core::net::IpAddr;

use rand::Rng;

use crate::time::Instant;

/// Bytes that a receiver takes, room to grow and its place in the table included.
pub const RECEIVER_BYTES_MAX: usize = 2 * size_of::<Receiver>() + 4 * size_of::<u32>();

/// Counts below it are forgotten (`docs/errata/le-sbcc.md`).
const NEGLIGIBLE: f64 = 0.01;
/// What is left of a count at each fading.
const FADED: f64 = 0.9;
/// All is scaled down before the weight of an event gets beyond it: a double holds 10^308.
const WEIGHT_MAX: f64 = 1e100;
/// Receivers looked at for each indication.
const SWEPT: usize = 2;
/// Buckets that hold no receiver.
const EMPTY: u32 = u32::MAX;
const BUCKETS_MIN: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Receiver {
    /// Its address, IPv4 mapped into IPv6; [`OTHERS`] for all beyond the table's bound.
    key: u128,
    /// Of its last loss event.
    last: Instant,
    /// Its loss events, in units of their weight when the table began.
    count: f64,
}

/// The unspecified address, from which no datagram comes.
const OTHERS: u128 = 0;

/// Receivers that had loss events of late. Constant time for each indication, whatever their number.
#[derive(Clone, Debug)]
pub struct Receivers {
    receivers: Vec<Receiver>,
    /// Open addressing with linear probing: indices into `receivers`. At most half are used.
    buckets: Vec<u32>,
    /// Secret of the hash, so that nobody can aim at one bucket.
    secret: [u64; 2],
    receivers_max: usize,
    /// What an event counts.
    weight: f64,
    sum: f64,
    most: f64,
    worst: u128,
    swept: usize,
}

impl Receivers {
    /// None yet; at most `receivers_max`. `draw` gives the secret of the hash.
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

    /// LI2LE: an indication of `receiver` for a packet last sent at `sent` is a loss event if its last one is
    /// longer ago than `spacing` seconds, and before that packet. Without the second a NAK could be replayed
    /// at leisure.
    pub fn is_event(&self, receiver: IpAddr, now: Instant, sent: Instant, spacing: f64) -> bool {
        let Some(index) = self.find(self.known(key(receiver))) else { return true };
        let last = self.receivers[index].last;
        now.since(last).as_secs_f64() > spacing && sent > last
    }

    /// Whether a packet was sent after a loss event of `receiver`, so that what it says of that packet had a
    /// way to go by. `None` where it had none.
    pub fn knows_the_way(&self, receiver: IpAddr, sent: Instant) -> Option<bool> {
        self.find(self.known(key(receiver))).map(|index| sent > self.receivers[index].last)
    }

    /// Max-LPRF: counts a loss event of `receiver`. The share of the worst receiver in all events: with this
    /// probability one event passes, so that as many pass as the worst has.
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

    /// All counts fade by a tenth.
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

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.receivers.capacity() * size_of::<Receiver>()
            + self.buckets.capacity() * size_of::<u32>()
    }

    /// Receivers remembered.
    pub fn len(&self) -> usize {
        self.receivers.len()
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.receivers.is_empty()
    }

    /// The receiver with most loss events of late, and its share in all of them. `None` before the first
    /// event, and when it is one of those beyond the bound.
    pub fn worst(&self) -> Option<(IpAddr, f64)> {
        let address = core::net::Ipv6Addr::from_bits(self.worst).to_canonical();
        (self.worst != OTHERS && !self.is_empty()).then_some((address, self.most / self.sum))
    }

    /// Loss events of a receiver, faded.
    pub fn count(&self, receiver: IpAddr) -> f64 {
        self.find(key(receiver)).map_or(0.0, |index| self.receivers[index].count / self.weight)
    }

    /// Whom a key counts for: itself, or all those beyond the bound.
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

    /// Receivers in the buckets where `key` may stand.
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

    /// Forgets a receiver; the last one takes its place.
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

    /// Takes a receiver out of its bucket, and moves those behind it up that would not be found any more.
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
