//! The draws that queues and loss models make of a random stream.

use rand::Rng;

const BITS: u32 = 53;
const RANGE: f64 = (1_u64 << BITS) as f64;

/// Uniform on [0, 1), a multiple of 2^-53: the high bits of one draw.
pub(crate) fn unit(draw: &mut impl Rng) -> f64 {
    (draw.next_u64() >> (u64::BITS - BITS)) as f64 / RANGE
}

/// A coin with a fixed probability, tossed in integers: the same on every machine, with no float on the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coin {
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
    pub(super) fn new(probability: f64) -> Self {
        Self { heads: (probability * RANGE) as u64 }
    }

    /// One toss, one draw. Probability 0 is never heads, 1 always.
    pub(super) fn toss(self, draw: &mut impl Rng) -> bool {
        (draw.next_u64() >> (u64::BITS - BITS)) < self.heads
    }
}
