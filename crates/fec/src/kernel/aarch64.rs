//! The kernel of AArch64. A value of [`Neon`] is the proof that the processor has the instructions.

#![expect(
    unsafe_code,
    reason = "calls of functions compiled for more than every processor has, and vector loads"
)]

use std::arch::aarch64::{vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8};
use std::arch::is_aarch64_feature_detected;

use super::scalar;
use crate::gf256::{SPLIT, Split};

/// Shuffles of 16 bytes at a time look both halves of a byte up in the split table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Neon(());

impl Neon {
    pub(super) fn detect() -> Option<Self> {
        is_aarch64_feature_detected!("neon").then_some(Self(()))
    }

    /// Both have the same length.
    pub(super) fn mul_add(self, target: &mut [u8], source: &[u8], factor: u8) {
        // SAFETY: only `detect` makes a `Self`, where the processor has NEON.
        unsafe { mul_add_neon(target, source, factor) }
    }
}

#[target_feature(enable = "neon")]
fn mul_add_neon(target: &mut [u8], source: &[u8], factor: u8) {
    let Split { low, high } = &SPLIT[usize::from(factor)];
    // SAFETY: both arrays have the 16 bytes that are read.
    let (low, high) = unsafe { (vld1q_u8(low.as_ptr()), vld1q_u8(high.as_ptr())) };
    let nibble = vdupq_n_u8(15);
    let (targets, target_rest) = target.as_chunks_mut::<16>();
    let (sources, source_rest) = source.as_chunks::<16>();
    for (target, source) in targets.iter_mut().zip(sources) {
        // SAFETY: both arrays have the 16 bytes that are read.
        let (t, s) = unsafe { (vld1q_u8(target.as_ptr()), vld1q_u8(source.as_ptr())) };
        let low = vqtbl1q_u8(low, vandq_u8(s, nibble));
        let high = vqtbl1q_u8(high, vshrq_n_u8::<4>(s));
        let sum = veorq_u8(t, veorq_u8(low, high));
        // SAFETY: the array has the 16 bytes that are written.
        unsafe { vst1q_u8(target.as_mut_ptr(), sum) };
    }
    scalar(target_rest, source_rest, factor);
}
