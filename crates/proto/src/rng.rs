//! Named random streams: one seed for a run, one independent stream for each element of it.
//!
//! A stream depends on the seed and on its own name only, so that adding an element (a receiver, a link)
//! never shifts another's numbers. The generator is xoshiro256++; the same seed gives the same numbers on
//! every machine.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The generator behind every random stream. Use it through the traits of the `rand` crate.
pub type Stream = Xoshiro256PlusPlus;

/// The seed of a whole run. Entropy is an argument: a driver draws it once and prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// The stream of element `index` of the kind `name`, for example `("receiver", 3)`.
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

/// The high 53 bits of one draw: numbers that a float holds exactly.
fn bits(draw: &mut impl Rng) -> u64 {
    draw.next_u64() >> (u64::BITS - BITS)
}

/// Uniform on [0, 1), a multiple of 2^-53, by one draw.
#[expect(clippy::cast_precision_loss, reason = "below 2^53: the cast is exact")]
pub fn unit(draw: &mut impl Rng) -> f64 {
    bits(draw) as f64 / RANGE
}

/// Uniform on (0, 1], a multiple of 2^-53, by one draw: never 0, so that its logarithm is finite.
#[expect(clippy::cast_precision_loss, reason = "at most 2^53: the cast is exact")]
pub fn unit_above_zero(draw: &mut impl Rng) -> f64 {
    (bits(draw) + 1) as f64 / RANGE
}

/// A coin with a fixed probability, tossed in integers: the same on every machine.
#[derive(Clone, Copy, Debug)]
pub struct Coin {
    /// Of 2^53 equally likely draws, how many are heads.
    heads: u64,
}

impl Coin {
    /// Heads with `probability`, which is in [0, 1], to within 2^-53.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to 2^53: the cast is exact"
    )]
    pub fn new(probability: f64) -> Self {
        Self { heads: (probability * RANGE) as u64 }
    }

    /// One toss, one draw. Probability 0 is never heads, 1 always.
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
