//! Multiply and add of whole symbols over GF(2^8), the inner loop of Reed-Solomon and of planned decoding.
//!
//! A kernel per instruction set; all give the same bytes. Only the files of architectures have unsafe code.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::fmt;
use std::ops::Range;
use std::sync::LazyLock;

use crate::gf256::{SPLIT, Split, times_alpha};

/// Bytes that a portable loop sums up at a time.
const CHUNK: usize = 64;

/// A way to multiply and add symbols that this machine supports. The choice affects only speed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kernel(Instructions);

/// From the slowest to the fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instructions {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2(x86::Avx2),
    #[cfg(target_arch = "x86_64")]
    Gfni(x86::Gfni),
    #[cfg(target_arch = "aarch64")]
    Neon(aarch64::Neon),
}

static CHOSEN: LazyLock<Kernel> =
    LazyLock::new(|| Kernel::available().last().expect("the scalar kernel is always there"));

impl Kernel {
    /// The kernels of this machine, from the slowest to the fastest.
    pub fn available() -> impl Iterator<Item = Self> {
        std::iter::once(Some(Instructions::Scalar)).chain(vector_instructions()).flatten().map(Self)
    }

    /// Returns the fastest kernel, chosen at the first call. All codecs use this kernel.
    pub fn chosen() -> Self {
        *CHOSEN
    }

    /// Name of the instruction set, for people.
    pub fn name(self) -> &'static str {
        match self.0 {
            Instructions::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2(_) => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni(_) => "GFNI/AVX-512",
            #[cfg(target_arch = "aarch64")]
            Instructions::Neon(_) => "NEON",
        }
    }

    /// `target` += `factor` * `source`, byte by byte, in GF(2^8) with the polynomial 0x11D.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn mul_add(self, target: &mut [u8], source: &[u8], factor: u8) {
        assert_eq!(target.len(), source.len(), "symbols of one block have one length");
        match factor {
            0 => return,
            1 => return self.add_slots(target, source, &[0]),
            _ => {}
        }
        match self.0 {
            Instructions::Scalar => scalar(target, source, factor),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2(avx2) => avx2.mul_add(target, source, factor),
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni(gfni) => gfni.mul_add(target, source, factor),
            #[cfg(target_arch = "aarch64")]
            Instructions::Neon(neon) => neon.mul_add(target, source, factor),
        }
    }

    /// `target` = alpha * `target` + `source`: a step of Horner's rule.
    ///
    /// # Panics
    /// If the lengths differ.
    pub(crate) fn times_alpha_add(self, target: &mut [u8], source: &[u8]) {
        assert_eq!(target.len(), source.len(), "symbols of one block have one length");
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2(avx2) => avx2.times_alpha_add(target, source),
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni(gfni) => gfni.times_alpha_add(target, source),
            _ => scalar_times_alpha_add(target, source),
        }
    }

    /// Slot `target` of `pool` = `input`, or zero, + `slots`. A slot has `width` bytes, as the input has.
    ///
    /// # Panics
    /// If the pool has fewer slots, or the input another length.
    pub(crate) fn sum_slots(
        self,
        pool: &mut [u8],
        width: usize,
        target: u32,
        input: Option<&[u8]>,
        slots: &[u32],
    ) {
        assert!(input.is_none_or(|input| input.len() == width), "an input has the width of a slot");
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2(avx2) => avx2.sum_slots(pool, width, target, input, slots),
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni(gfni) => gfni.sum_slots(pool, width, target, input, slots),
            _ => scalar_sum_slots(pool, 0..width, width, target, input, slots),
        }
    }

    /// Asks the processor to read bytes into its caches that a following sum reads.
    pub(crate) fn prefetch(self, bytes: &[u8]) {
        #[cfg(target_arch = "x86_64")]
        x86::prefetch(bytes);
        #[cfg(not(target_arch = "x86_64"))]
        let _ = bytes;
    }

    /// `sum` += the slots of `pool`, each as long as `sum`.
    ///
    /// # Panics
    /// If the pool has fewer slots.
    pub(crate) fn add_slots(self, sum: &mut [u8], pool: &[u8], slots: &[u32]) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2(avx2) => avx2.add_slots(sum, pool, slots),
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni(gfni) => gfni.add_slots(sum, pool, slots),
            // The compiler vectorizes the loop.
            _ => {
                let width = sum.len();
                for &slot in slots {
                    scalar(sum, &pool[slot as usize * width..][..width], 1);
                }
            }
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kernel").field(&self.name()).finish()
    }
}

#[cfg(target_arch = "x86_64")]
fn vector_instructions() -> [Option<Instructions>; 2] {
    [x86::Avx2::detect().map(Instructions::Avx2), x86::Gfni::detect().map(Instructions::Gfni)]
}

#[cfg(target_arch = "aarch64")]
fn vector_instructions() -> [Option<Instructions>; 1] {
    [aarch64::Neon::detect().map(Instructions::Neon)]
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn vector_instructions() -> [Option<Instructions>; 0] {
    []
}

fn scalar(target: &mut [u8], source: &[u8], factor: u8) {
    if factor == 1 {
        target.iter_mut().zip(source).for_each(|(t, s)| *t ^= s);
        return;
    }
    let Split { low, high } = &SPLIT[usize::from(factor)];
    for (t, &s) in target.iter_mut().zip(source) {
        *t ^= low[usize::from(s & 15)] ^ high[usize::from(s >> 4)];
    }
}

/// The bytes `columns` of the slots of `width` bytes. The compiler vectorizes the loops.
fn scalar_sum_slots(
    pool: &mut [u8],
    columns: Range<usize>,
    width: usize,
    target: u32,
    input: Option<&[u8]>,
    slots: &[u32],
) {
    let mut chunk = [0; CHUNK];
    for start in columns.clone().step_by(CHUNK) {
        let sum = &mut chunk[..CHUNK.min(columns.end - start)];
        match input {
            Some(input) => sum.copy_from_slice(&input[start..][..sum.len()]),
            None => sum.fill(0),
        }
        for &slot in slots {
            scalar(sum, &pool[slot as usize * width + start..][..sum.len()], 1);
        }
        pool[target as usize * width + start..][..sum.len()].copy_from_slice(sum);
    }
}

fn scalar_times_alpha_add(target: &mut [u8], source: &[u8]) {
    for (target, source) in target.iter_mut().zip(source) {
        *target = times_alpha(*target) ^ source;
    }
}

#[cfg(test)]
mod tests {
    use super::Kernel;
    use crate::gf256::slow_mul;
    use proptest::prelude::*;

    #[test]
    fn every_kernel_multiplies_and_adds_for_every_factor_and_byte() {
        let source: Vec<u8> = (0..=255).collect();
        for kernel in Kernel::available() {
            for factor in 0..=255 {
                let mut target: Vec<u8> = (0..=255).rev().collect();
                kernel.mul_add(&mut target, &source, factor);
                for (i, &byte) in target.iter().enumerate() {
                    assert_eq!(byte, source[255 - i] ^ slow_mul(factor, source[i]), "{kernel:?} {factor}");
                }
            }
        }
    }

    #[test]
    fn the_scalar_kernel_is_everywhere_and_the_last_is_chosen() {
        let kernels: Vec<Kernel> = Kernel::available().collect();
        assert_eq!(kernels[0].name(), "scalar");
        assert_eq!(kernels.last(), Some(&Kernel::chosen()));
    }

    #[test]
    #[should_panic(expected = "one length")]
    fn symbols_of_two_lengths_are_a_mistake_of_the_caller() {
        Kernel::chosen().mul_add(&mut [0; 2], &[0; 3], 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

        /// The bytes around the target stay, whatever the lengths and the alignments.
        #[test]
        fn kernels_agree(
            bytes in proptest::collection::vec(any::<u8>(), 900),
            length in 0usize..300,
            source_at in 0usize..150,
            target_at in 450usize..600,
            factor: u8,
        ) {
            let source = &bytes[source_at..source_at + length];
            let mut expected = bytes.clone();
            for (t, &s) in expected[target_at..target_at + length].iter_mut().zip(source) {
                *t ^= slow_mul(factor, s);
            }
            for kernel in Kernel::available() {
                let mut result = bytes.clone();
                kernel.mul_add(&mut result[target_at..target_at + length], source, factor);
                prop_assert!(result == expected, "{kernel:?}");
            }
        }

        #[test]
        fn kernels_take_steps_of_horners_rule(
            source in proptest::collection::vec(any::<u8>(), 300),
            target in proptest::collection::vec(any::<u8>(), 300),
            length in 0usize..300,
        ) {
            let expected: Vec<u8> =
                target.iter().zip(&source).take(length).map(|(t, s)| slow_mul(2, *t) ^ s).collect();
            for kernel in Kernel::available() {
                let mut result = target[..length].to_vec();
                kernel.times_alpha_add(&mut result, &source[..length]);
                prop_assert!(result == expected, "{kernel:?}");
            }
        }

        /// Slots of a pool are added whatever their width.
        #[test]
        fn kernels_add_slots(
            pool in proptest::collection::vec(any::<u8>(), 8 * 900),
            sum in proptest::collection::vec(any::<u8>(), 900),
            slots in proptest::collection::vec(0u32..8, 0..9),
            width in 0usize..900,
        ) {
            let mut expected = sum.clone();
            for slot in &slots {
                let source = &pool[*slot as usize * width..][..width];
                expected.iter_mut().zip(source).for_each(|(t, s)| *t ^= s);
            }
            for kernel in Kernel::available() {
                let mut result = sum.clone();
                kernel.add_slots(&mut result[..width], &pool, &slots);
                prop_assert!(result == expected, "{kernel:?}");
                let mut result = pool.clone();
                kernel.sum_slots(&mut result, width, 3, Some(&sum[..width]), &slots);
                prop_assert!(result[3 * width..4 * width] == expected[..width], "{kernel:?}");
                prop_assert!(result[..3 * width] == pool[..3 * width] && result[4 * width..] == pool[4 * width..]);
                let difference: Vec<u8> = expected.iter().zip(&sum).map(|(a, b)| a ^ b).collect();
                let mut result = pool.clone();
                kernel.sum_slots(&mut result, width, 7, None, &slots);
                prop_assert!(result[7 * width..8 * width] == difference[..width], "{kernel:?}");
            }
        }
    }
}
