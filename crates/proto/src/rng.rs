//! Named random streams: one seed for a run, an independent stream for each element of the run.
//!
//! A stream depends only on the seed and on the stream's name, so that an added element (a receiver, a link)
//! never shifts the numbers of another element. The generator is xoshiro256++; the same seed gives the same
//! numbers on every machine.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Generator behind every random stream. Use the generator through the traits of the `rand` crate.
pub type Stream = Xoshiro256PlusPlus;

/// The seed of a whole run. Entropy is an argument: a driver draws the seed once and prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// Returns the stream of element `index` of the kind `name`, for example `("receiver", 3)`.
    pub fn stream(self, name: &str, index: u64) -> Stream {
        let mut hasher = blake3::Hasher::new_derive_key("headwater 2026 random stream");
        hasher.update(&self.0.to_le_bytes());
        hasher.update(&index.to_le_bytes());
        hasher.update(name.as_bytes());
        Stream::from_seed(*hasher.finalize().as_bytes())
    }
}

const BITS: u32 = 53;
const RANGE: f64 = (1_u64 << BITS) as f64;

/// Returns the high 53 bits of one draw: exact in a float.
fn bits(draw: &mut impl Rng) -> u64 {
    draw.next_u64() >> (u64::BITS - BITS)
}

/// Draws a uniform number on [0, 1), a multiple of 2^-53. Uses a single draw.
#[expect(clippy::cast_precision_loss, reason = "below 2^53: the cast is exact")]
pub fn unit(draw: &mut impl Rng) -> f64 {
    bits(draw) as f64 / RANGE
}

/// Draws a uniform number on (0, 1], a multiple of 2^-53. Uses a single draw. Never 0, so that the logarithm
/// is finite.
#[expect(clippy::cast_precision_loss, reason = "at most 2^53: the cast is exact")]
pub fn unit_above_zero(draw: &mut impl Rng) -> f64 {
    (bits(draw) + 1) as f64 / RANGE
}

/// `ln N` of [`crowd_part`], for N = 10 000 members.
const LOG_MEMBERS: f64 = 9.210_340_371_976_184;

/// Draws the part of the longest time that a member of a group waits before a report: few of many members
/// wait for less than half, so that the first reports can hold the others back (Nonnenmacher and Biersack
/// 1999). Uses a single draw.
pub(crate) fn crowd_part(draw: &mut impl Rng) -> f64 {
    (1.0 + libm::log(unit_above_zero(draw)) / LOG_MEMBERS).max(0.0)
}

/// A coin with a fixed probability, tossed in integers: the same results on every machine.
#[derive(Clone, Copy, Debug)]
pub struct Coin {
    /// Number of heads among 2^53 equally likely draws.
    heads: u64,
}

impl Coin {
    /// Returns a coin that shows heads with `probability`, in [0, 1], to within 2^-53.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to 2^53: the cast is exact"
    )]
    pub fn new(probability: f64) -> Self {
        Self { heads: (probability * RANGE) as u64 }
    }

    /// Tosses the coin, with a single draw. Probability 0 never gives heads, probability 1 always does.
    pub fn toss(self, draw: &mut impl Rng) -> bool {
        bits(draw) < self.heads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(seed: u64, name: &str, index: u64) -> u64 {
        Seed(seed).stream(name, index).next_u64()
    }

    #[test]
    fn streams_are_stable_and_apart() {
        assert_eq!(first(1, "link", 0), first(1, "link", 0));
        let all = [first(1, "link", 0), first(1, "link", 1), first(1, "receiver", 0), first(2, "link", 0)];
        for (i, one) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|other| one != other));
        }
    }

    #[test]
    fn streams_do_not_change_between_versions() {
        // Published results name a seed: a new generator would change them all.
        assert_eq!(first(1, "link", 0), 4_931_556_334_450_667_421);
    }
}
