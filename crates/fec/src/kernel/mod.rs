//! Multiply and add of whole symbols over GF(2^8), the inner loop of Reed-Solomon and of planned decoding.
//!
//! A kernel per instruction set; all give the same bytes. Only the files of architectures have unsafe code.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::fmt;
use std::sync::LazyLock;

use crate::gf256::{SPLIT, Split};

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
        if factor == 0 {
            return;
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

    /// `target` += `factors[i]` * source i for up to four symbols, which `sources` holds in sequence:
    /// `target` is read and written once for all symbols.
    ///
    /// # Panics
    /// If the length of `sources` is not `target.len()` times the number of factors.
    pub(crate) fn mul_add_some(self, target: &mut [u8], sources: &[u8], factors: &[u8]) {
        assert_eq!(target.len() * factors.len(), sources.len(), "a factor for each symbol");
        #[cfg(target_arch = "x86_64")]
        if let (Instructions::Gfni(gfni), Ok(factors)) = (self.0, factors.try_into()) {
            gfni.mul_add_four(target, sources, factors);
            return;
        }
        for (&factor, source) in factors.iter().zip(sources.chunks_exact(target.len().max(1))) {
            self.mul_add(target, source, factor);
        }
    }

    /// Passes over a block (`mul_add` of each of its symbols) that take less time than following a RaptorQ
    /// plan once, at k = 1002.
    pub(crate) fn dense_max(self) -> u32 {
        match self.0 {
            Instructions::Scalar => 0,
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni(_) => 60,
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            _ => 20,
        }
    }

    /// Whether the kernel works byte by byte, more than ten times slower than the other kernels.
    pub(crate) fn is_scalar(self) -> bool {
        self.0 == Instructions::Scalar
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
        assert!(kernels[0].is_scalar());
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

        /// Several products in one pass are those one after the other.
        #[test]
        fn kernels_add_several_products(
            sources in proptest::collection::vec(any::<u8>(), 4 * 300),
            target in proptest::collection::vec(any::<u8>(), 300),
            factors in proptest::collection::vec(prop_oneof![Just(0), Just(1), any::<u8>()], 0..5),
            length in 0usize..300,
        ) {
            let sources = &sources[..factors.len() * length];
            let mut expected = target.clone();
            for (&factor, source) in factors.iter().zip(sources.chunks(length.max(1))) {
                expected.iter_mut().zip(source).for_each(|(t, &s)| *t ^= slow_mul(factor, s));
            }
            for kernel in Kernel::available() {
                let mut result = target.clone();
                kernel.mul_add_some(&mut result[..length], sources, &factors);
                prop_assert!(result == expected, "{kernel:?}");
            }
        }
    }
}
