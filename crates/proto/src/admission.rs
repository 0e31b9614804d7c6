//! Admission of datagrams whose source address may be forged: words that prove an address, and rate limits
//! for addresses and for networks.
//!
//! A forger can write any source address, but receives only datagrams sent to its own networks. An end
//! therefore sends each new address a word and takes requests that return the word. Limits by network bound
//! the datagrams caused by addresses without a word: a forger that owns one network cannot use the share of
//! others.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::VecDeque;

use crate::time::{Duration, Instant};

/// Usual lifetime of a word: a word is valid in the minute of its making and in the next minute.
const WORD_TIME: Duration = Duration::from_secs(60);
/// Buckets of a [`PrefixLimiter`]: 32 kB. Networks that share a bucket share a limit.
const BUCKETS: usize = 4_096;
/// Datagrams a second of one bucket.
const BUCKET_PER_SECOND: u32 = 20;

/// Secret key of words and buckets, drawn at random by the driver.
pub type AdmissionKey = [u8; 32];

/// Proof that an address receives: keyed BLAKE3 of the address, the port and the period. Zeros stand for no
/// word.
pub type Word = [u8; 8];

/// Result of checking a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordAge {
    /// Made in this period.
    Current,
    /// Made in the previous period: still valid, and soon to be replaced.
    Previous,
}

/// Makes and checks words. Keeps no state for an address.
#[derive(Clone)]
pub struct Words {
    key: AdmissionKey,
    lifetime: Duration,
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Words").finish_non_exhaustive()
    }
}

impl Words {
    /// Creates the words of a key.
    pub const fn new(key: AdmissionKey) -> Self {
        Self { key, lifetime: WORD_TIME }
    }

    /// Creates words that are valid in a period of `lifetime` and in the next period.
    pub(crate) const fn lasting(key: AdmissionKey, lifetime: Duration) -> Self {
        Self { key, lifetime }
    }

    /// Returns the word of an address at an instant.
    pub fn word(&self, now: Instant, address: SocketAddr) -> Word {
        self.word_of(now, address, 0)
    }

    /// Returns the word of one of several ends at an address.
    pub(crate) fn word_of(&self, now: Instant, address: SocketAddr, end: u64) -> Word {
        self.of_period(self.period(now), address, end)
    }

    /// Checks a word that an address brings; `None` if the word is invalid.
    pub fn check(&self, now: Instant, address: SocketAddr, word: &Word) -> Option<WordAge> {
        self.check_of(now, address, 0, word)
    }

    /// Checks a word that one of several ends at an address brings; `None` if the word is invalid.
    pub(crate) fn check_of(
        &self,
        now: Instant,
        address: SocketAddr,
        end: u64,
        word: &Word,
    ) -> Option<WordAge> {
        if *word == Word::default() {
            return None;
        }
        let period = self.period(now);
        if self.of_period(period, address, end) == *word {
            return Some(WordAge::Current);
        }
        let previous = period.checked_sub(1)?;
        (self.of_period(previous, address, end) == *word).then_some(WordAge::Previous)
    }

    const fn period(&self, now: Instant) -> u64 {
        now.as_nanos() / self.lifetime.as_nanos()
    }

    fn of_period(&self, period: u64, address: SocketAddr, end: u64) -> Word {
        let mut input = [0; 34];
        input[..16].copy_from_slice(&octets(address.ip()));
        input[16..18].copy_from_slice(&address.port().to_be_bytes());
        input[18..26].copy_from_slice(&period.to_be_bytes());
        input[26..].copy_from_slice(&end.to_be_bytes());
        *blake3::keyed_hash(&self.key, &input).as_bytes().first_chunk().expect("32 bytes")
    }
}

/// Address as IPv6, with IPv4 mapped.
fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Network of an address: /24 of IPv4, /56 of IPv6, the smallest that a site usually has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix([u8; 8]);

impl Prefix {
    /// Returns the network of an address.
    pub fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            // 5 is no first byte of an IPv6 address in use, so that the two versions never share a prefix.
            IpAddr::V4(ip) => {
                let [a, b, c, _] = ip.octets();
                Self([5, 0, 0, 0, 0, a, b, c])
            }
            IpAddr::V6(ip) => {
                let [a, b, c, d, e, f, g, ..] = ip.octets();
                Self([a, b, c, d, e, f, g, 0])
            }
        }
    }
}

/// Returns the first and the last address of the network of an address: see [`Prefix`].
pub fn network(ip: IpAddr) -> [IpAddr; 2] {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            [ip.to_bits() & !0xFF, ip.to_bits() | 0xFF].map(|ip| Ipv4Addr::from_bits(ip).into())
        }
        IpAddr::V6(ip) => {
            let hosts = u128::MAX >> 56;
            [ip.to_bits() & !hosts, ip.to_bits() | hosts].map(|ip| Ipv6Addr::from_bits(ip).into())
        }
    }
}

/// Limit of datagrams for each network: 20 a second, and a burst. Memory: 32 kB.
#[derive(Clone)]
pub struct PrefixLimiter {
    key: AdmissionKey,
    limit: Limit,
    /// Time at which the next datagram of a bucket conforms.
    due: Box<[Instant]>,
}

impl fmt::Debug for PrefixLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrefixLimiter").finish_non_exhaustive()
    }
}

impl PrefixLimiter {
    /// Creates a limiter with bursts of `burst` datagrams. Without the key, a forger cannot choose networks
    /// that share the bucket of another.
    pub fn new(key: AdmissionKey, burst: u32) -> Self {
        let limit = Limit::new(BUCKET_PER_SECOND, burst);
        Self { key, limit, due: vec![Instant::ZERO; BUCKETS].into() }
    }

    /// Whether a datagram caused by an address conforms; a conforming datagram is counted.
    pub fn admits(&mut self, now: Instant, ip: IpAddr) -> bool {
        let hash = blake3::keyed_hash(&self.key, &Prefix::of(ip).0);
        let [low, high, ..] = *hash.as_bytes();
        let bucket = usize::from(u16::from_le_bytes([low, high])) % BUCKETS;
        self.limit.admits(now, &mut self.due[bucket])
    }
}

/// Burst of challenges to one network, for hosts that start at the same time.
const NETWORK_BURST: u32 = 256;
/// Most replies that wait to be sent; requests beyond stay unanswered.
const WAITING_MAX: usize = 256;

/// Replies to be sent, and the limits of challenges among the replies: to all addresses together, and to each
/// network. Memory: 32 kB, and 256 replies.
#[derive(Debug, Clone)]
pub(crate) struct ReplyQueue<T> {
    networks: PrefixLimiter,
    limit: Limit,
    /// Time of the next challenge at the limit.
    due: Instant,
    waiting: VecDeque<T>,
}

impl<T> ReplyQueue<T> {
    pub(crate) fn new(key: AdmissionKey, limit: Limit) -> Self {
        let networks = PrefixLimiter::new(key, NETWORK_BURST);
        Self { networks, limit, due: Instant::ZERO, waiting: VecDeque::new() }
    }

    /// Whether a challenge to an address conforms; a conforming challenge is counted. Above the limit of all
    /// addresses, a challenge costs no more than this check, and a network above its own limit uses nothing
    /// of the limit of all.
    pub(crate) fn admits(&mut self, now: Instant, to: IpAddr) -> bool {
        let mut due = self.due;
        let has_room = self.waiting.len() < WAITING_MAX && self.limit.admits(now, &mut due);
        let is_admitted = has_room && self.networks.admits(now, to);
        if is_admitted {
            self.due = due;
        }
        is_admitted
    }

    /// Queues a reply, if there is room.
    pub(crate) fn push(&mut self, reply: T) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(reply);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.waiting.pop_front()
    }
}

/// Rate with a burst allowance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    spacing: Duration,
    burst: Duration,
}

impl Limit {
    /// Creates a limit of `per_second` messages a second, with bursts of `burst` messages.
    pub(crate) const fn new(per_second: u32, burst: u32) -> Self {
        let per_second = if per_second == 0 { 1 } else { per_second };
        let spacing = Duration::from_nanos(1_000_000_000 / per_second as u64);
        Self { spacing, burst: spacing.saturating_mul(burst as u64) }
    }

    /// Whether a message conforms; a conforming message is counted. `due` is the time of the next message of
    /// a flow at exactly this rate.
    pub(crate) fn admits(self, now: Instant, due: &mut Instant) -> bool {
        if *due > now + self.burst {
            return false;
        }
        *due = (*due).max(now) + self.spacing;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_word_is_valid_for_its_address_in_two_minutes() {
        let words = Words::new([7; 32]);
        let address: SocketAddr = "192.0.2.1:4000".parse().unwrap();
        let word = words.word(at(30_000), address);
        assert_eq!(words.check(at(59_999), address, &word), Some(WordAge::Current));
        assert_eq!(words.check(at(119_999), address, &word), Some(WordAge::Previous));
        assert_eq!(words.check(at(120_000), address, &word), None);
        for other in ["192.0.2.1:4001", "192.0.2.2:4000", "[2001:db8::1]:4000"] {
            assert_eq!(words.check(at(30_000), other.parse().unwrap(), &word), None, "{other}");
        }
        assert_eq!(Words::new([8; 32]).check(at(30_000), address, &word), None);
        assert_eq!(words.check(at(30_000), address, &[0; 8]), None);
    }

    #[test]
    fn a_network_has_its_limit_and_others_have_theirs() {
        let mut limiter = PrefixLimiter::new([7; 32], 4);
        let mut admitted = 0;
        for ms in 0..10_000_u64 {
            // 250 addresses of one network, a datagram each millisecond.
            let last = u8::try_from(ms % 250).unwrap();
            admitted += u32::from(limiter.admits(at(ms), [198, 51, 100, last].into()));
        }
        assert!((200..=205).contains(&admitted), "{admitted} in ten seconds");
        assert!(limiter.admits(at(10_000), [192, 0, 2, 1].into()));
        let ipv6 = |ip: &str| Prefix::of(ip.parse().unwrap());
        assert_eq!(ipv6("2001:db8:1:2aa::1"), ipv6("2001:db8:1:2ff::2"));
        assert_ne!(ipv6("2001:db8:1:2aa::1"), ipv6("2001:db8:1:3aa::1"));
        assert_eq!(ipv6("::ffff:192.0.2.1"), ipv6("192.0.2.77"));
    }
}
