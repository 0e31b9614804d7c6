//! The kernels of x86-64. A value of [`Avx2`] or [`Gfni`] is the proof that the processor has the
//! instructions.

#![expect(
    unsafe_code,
    reason = "calls of functions compiled for more than every processor has, and vector loads"
)]

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{
    __m256i, __m512i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm256_add_epi8, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_cmpgt_epi8, _mm256_loadu_si256, _mm256_set1_epi8,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16, _mm256_storeu_si256, _mm256_xor_si256,
    _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8,
    _mm512_set1_epi64, _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512,
};

use super::{scalar, scalar_sum_slots, scalar_times_alpha_add};
use crate::gf256::{SPLIT, Split, slow_mul};

/// Shuffles of 32 bytes at a time look both halves of a byte up in the split table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Avx2(());

/// Products of 64 bytes at a time. The instruction that multiplies in GF(2^8) has another polynomial (0x11B),
/// so the kernel uses the instruction that applies a matrix over GF(2) to every byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gfni(());

/// alpha^8 = alpha^4 + alpha^3 + alpha^2 + 1.
const REDUCTION: i8 = 0x1D;

/// The matrix of every factor, 2 KiB.
static MATRICES: [u64; 256] = matrices();

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// Both have the same length.
    pub(super) fn mul_add(self, target: &mut [u8], source: &[u8], factor: u8) {
        // SAFETY: only `detect` makes a `Self`, where the processor has AVX2.
        unsafe { mul_add_avx2(target, source, factor) }
    }

    /// Both have the same length.
    pub(super) fn times_alpha_add(self, target: &mut [u8], source: &[u8]) {
        // SAFETY: only `detect` makes a `Self`, where the processor has AVX2.
        unsafe { times_alpha_add_avx2(target, source) }
    }

    pub(super) fn sum_slots(
        self,
        pool: &mut [u8],
        width: usize,
        target: u32,
        input: Option<&[u8]>,
        slots: &[u32],
    ) {
        // SAFETY: only `detect` makes a `Self`, where the processor has AVX2.
        unsafe { sum_slots_avx2(pool, width, target, input, slots) }
    }

    pub(super) fn add_slots(self, sum: &mut [u8], pool: &[u8], slots: &[u32]) {
        // SAFETY: only `detect` makes a `Self`, where the processor has AVX2.
        unsafe { add_slots_avx2(sum, pool, slots) }
    }
}

impl Gfni {
    pub(super) fn detect() -> Option<Self> {
        let detected = is_x86_feature_detected!("gfni")
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw");
        detected.then_some(Self(()))
    }

    /// Both have the same length.
    pub(super) fn mul_add(self, target: &mut [u8], source: &[u8], factor: u8) {
        // SAFETY: only `detect` makes a `Self`, where the processor has GFNI, AVX-512F and AVX-512BW.
        unsafe { mul_add_gfni(target, source, factor) }
    }

    /// Both have the same length.
    pub(super) fn times_alpha_add(self, target: &mut [u8], source: &[u8]) {
        // SAFETY: only `detect` makes a `Self`; a processor with AVX-512F has AVX2.
        unsafe { times_alpha_add_avx2(target, source) }
    }

    pub(super) fn sum_slots(
        self,
        pool: &mut [u8],
        width: usize,
        target: u32,
        input: Option<&[u8]>,
        slots: &[u32],
    ) {
        // SAFETY: only `detect` makes a `Self`, where the processor has GFNI, AVX-512F and AVX-512BW.
        unsafe { sum_slots_avx512(pool, width, target, input, slots) }
    }

    pub(super) fn add_slots(self, sum: &mut [u8], pool: &[u8], slots: &[u32]) {
        // SAFETY: only `detect` makes a `Self`, where the processor has GFNI, AVX-512F and AVX-512BW.
        unsafe { add_slots_avx512(sum, pool, slots) }
    }
}

/// Reads lines of 64 bytes into the caches.
pub(super) fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(64) {
        // SAFETY: prefetching has no effect but on speed; all x86-64 processors have the instruction.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}

#[target_feature(enable = "avx2")]
fn mul_add_avx2(target: &mut [u8], source: &[u8], factor: u8) {
    let Split { low, high } = &SPLIT[usize::from(factor)];
    // SAFETY: both arrays have the 16 bytes that are read.
    let (low, high) =
        unsafe { (_mm_loadu_si128(low.as_ptr().cast()), _mm_loadu_si128(high.as_ptr().cast())) };
    let (low, high) = (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high));
    let nibble = _mm256_set1_epi8(15);
    let (targets, target_rest) = target.as_chunks_mut::<32>();
    let (sources, source_rest) = source.as_chunks::<32>();
    for (target, source) in targets.iter_mut().zip(sources) {
        // SAFETY: both arrays have the 32 bytes that are read.
        let (t, s) = unsafe {
            (_mm256_loadu_si256(target.as_ptr().cast()), _mm256_loadu_si256(source.as_ptr().cast()))
        };
        let low = _mm256_shuffle_epi8(low, _mm256_and_si256(s, nibble));
        let high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16::<4>(s), nibble));
        let sum = _mm256_xor_si256(t, _mm256_xor_si256(low, high));
        // SAFETY: the array has the 32 bytes that are written.
        unsafe { _mm256_storeu_si256(target.as_mut_ptr().cast(), sum) };
    }
    scalar(target_rest, source_rest, factor);
}

#[target_feature(enable = "gfni,avx512f,avx512bw")]
fn mul_add_gfni(target: &mut [u8], source: &[u8], factor: u8) {
    let matrix = _mm512_set1_epi64(MATRICES[usize::from(factor)].cast_signed());
    let (targets, target_rest) = target.as_chunks_mut::<64>();
    let (sources, source_rest) = source.as_chunks::<64>();
    for (target, source) in targets.iter_mut().zip(sources) {
        // SAFETY: both arrays have the 64 bytes that are read.
        let (t, s) = unsafe {
            (_mm512_loadu_si512(target.as_ptr().cast()), _mm512_loadu_si512(source.as_ptr().cast()))
        };
        let sum = _mm512_xor_si512(t, _mm512_gf2p8affine_epi64_epi8::<0>(s, matrix));
        // SAFETY: the array has the 64 bytes that are written.
        unsafe { _mm512_storeu_si512(target.as_mut_ptr().cast(), sum) };
    }
    // One bit per byte of the rest, which is shorter than 64 bytes.
    let rest = (1u64 << target_rest.len().min(source_rest.len())) - 1;
    // SAFETY: only the bytes of `rest` are read, and both slices have these bytes.
    let (t, s) = unsafe {
        (
            _mm512_maskz_loadu_epi8(rest, target_rest.as_ptr().cast()),
            _mm512_maskz_loadu_epi8(rest, source_rest.as_ptr().cast()),
        )
    };
    let sum = _mm512_xor_si512(t, _mm512_gf2p8affine_epi64_epi8::<0>(s, matrix));
    // SAFETY: only the bytes of `rest` are written, and the slice has these bytes.
    unsafe { _mm512_mask_storeu_epi8(target_rest.as_mut_ptr().cast(), rest, sum) };
}

#[target_feature(enable = "avx2")]
fn times_alpha_add_avx2(target: &mut [u8], source: &[u8]) {
    let (zero, reduction) = (_mm256_setzero_si256(), _mm256_set1_epi8(REDUCTION));
    let (targets, target_rest) = target.as_chunks_mut::<32>();
    let (sources, source_rest) = source.as_chunks::<32>();
    for (target, source) in targets.iter_mut().zip(sources) {
        // SAFETY: both arrays have the 32 bytes that are read.
        let (t, s) = unsafe {
            (_mm256_loadu_si256(target.as_ptr().cast()), _mm256_loadu_si256(source.as_ptr().cast()))
        };
        let carried = _mm256_and_si256(_mm256_cmpgt_epi8(zero, t), reduction);
        let sum = _mm256_xor_si256(_mm256_xor_si256(_mm256_add_epi8(t, t), carried), s);
        // SAFETY: the array has the 32 bytes that are written.
        unsafe { _mm256_storeu_si256(target.as_mut_ptr().cast(), sum) };
    }
    scalar_times_alpha_add(target_rest, source_rest);
}

#[target_feature(enable = "avx2")]
fn add_slots_avx2(sum: &mut [u8], pool: &[u8], slots: &[u32]) {
    let width = sum.len();
    let mut done = 0;
    while width - done >= 128 {
        let lanes = sum_lanes::<4>(Some(sum), pool, width, done, slots);
        store_lanes(&mut sum[done..], lanes);
        done += 128;
    }
    if width - done >= 64 {
        let lanes = sum_lanes::<2>(Some(sum), pool, width, done, slots);
        store_lanes(&mut sum[done..], lanes);
        done += 64;
    }
    let rest = &mut sum[done..];
    for &slot in slots {
        scalar(rest, &pool[slot as usize * width + done..][..rest.len()], 1);
    }
}

#[target_feature(enable = "avx2")]
fn sum_slots_avx2(pool: &mut [u8], width: usize, target: u32, input: Option<&[u8]>, slots: &[u32]) {
    let start = target as usize * width;
    let mut done = 0;
    while width - done >= 128 {
        let lanes = sum_lanes::<4>(input, pool, width, done, slots);
        store_lanes(&mut pool[start + done..], lanes);
        done += 128;
    }
    if width - done >= 64 {
        let lanes = sum_lanes::<2>(input, pool, width, done, slots);
        store_lanes(&mut pool[start + done..], lanes);
        done += 64;
    }
    scalar_sum_slots(pool, done..width, width, target, input, slots);
}

/// Sum of 32 bytes for each of `LANES` registers, from byte `first` on, of `input` and of slots of `width`
/// bytes.
#[target_feature(enable = "avx2")]
#[inline]
fn sum_lanes<const LANES: usize>(
    input: Option<&[u8]>,
    pool: &[u8],
    width: usize,
    first: usize,
    slots: &[u32],
) -> [__m256i; LANES] {
    let mut lanes = [_mm256_setzero_si256(); LANES];
    if let Some(input) = input {
        add_lanes(&mut lanes, &input[first..]);
    }
    for &slot in slots {
        add_lanes(&mut lanes, &pool[slot as usize * width + first..]);
    }
    lanes
}

#[target_feature(enable = "avx2")]
#[inline]
fn add_lanes<const LANES: usize>(lanes: &mut [__m256i; LANES], source: &[u8]) {
    let source = &source[..32 * LANES];
    for (at, lane) in lanes.iter_mut().enumerate() {
        // SAFETY: the slice has 32 bytes for each lane.
        let added = unsafe { _mm256_loadu_si256(source.as_ptr().add(32 * at).cast()) };
        *lane = _mm256_xor_si256(*lane, added);
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store_lanes<const LANES: usize>(target: &mut [u8], lanes: [__m256i; LANES]) {
    let target = &mut target[..32 * LANES];
    for (at, lane) in lanes.into_iter().enumerate() {
        // SAFETY: the slice has 32 bytes for each lane.
        unsafe { _mm256_storeu_si256(target.as_mut_ptr().add(32 * at).cast(), lane) };
    }
}

#[target_feature(enable = "avx512f")]
fn add_slots_avx512(sum: &mut [u8], pool: &[u8], slots: &[u32]) {
    let width = sum.len();
    let mut done = 0;
    while width - done >= 704 {
        let lanes = sum_wide_lanes::<11>(Some(sum), pool, width, done, slots);
        store_wide_lanes(&mut sum[done..], lanes);
        done += 704;
    }
    while width - done >= 256 {
        let lanes = sum_wide_lanes::<4>(Some(sum), pool, width, done, slots);
        store_wide_lanes(&mut sum[done..], lanes);
        done += 256;
    }
    while width - done >= 64 {
        let lanes = sum_wide_lanes::<1>(Some(sum), pool, width, done, slots);
        store_wide_lanes(&mut sum[done..], lanes);
        done += 64;
    }
    let rest = &mut sum[done..];
    if !rest.is_empty() {
        for &slot in slots {
            scalar(rest, &pool[slot as usize * width + done..][..rest.len()], 1);
        }
    }
}

#[target_feature(enable = "avx512f")]
fn sum_slots_avx512(pool: &mut [u8], width: usize, target: u32, input: Option<&[u8]>, slots: &[u32]) {
    let start = target as usize * width;
    let mut done = 0;
    while width - done >= 704 {
        let lanes = sum_wide_lanes::<11>(input, pool, width, done, slots);
        store_wide_lanes(&mut pool[start + done..], lanes);
        done += 704;
    }
    while width - done >= 256 {
        let lanes = sum_wide_lanes::<4>(input, pool, width, done, slots);
        store_wide_lanes(&mut pool[start + done..], lanes);
        done += 256;
    }
    while width - done >= 64 {
        let lanes = sum_wide_lanes::<1>(input, pool, width, done, slots);
        store_wide_lanes(&mut pool[start + done..], lanes);
        done += 64;
    }
    if done < width {
        scalar_sum_slots(pool, done..width, width, target, input, slots);
    }
}

/// Sum of 64 bytes for each of `LANES` registers, as [`sum_lanes`].
#[target_feature(enable = "avx512f")]
#[inline]
fn sum_wide_lanes<const LANES: usize>(
    input: Option<&[u8]>,
    pool: &[u8],
    width: usize,
    first: usize,
    slots: &[u32],
) -> [__m512i; LANES] {
    let mut lanes = [_mm512_setzero_si512(); LANES];
    if let Some(input) = input {
        add_wide_lanes(&mut lanes, &input[first..]);
    }
    for &slot in slots {
        add_wide_lanes(&mut lanes, &pool[slot as usize * width + first..]);
    }
    lanes
}

#[target_feature(enable = "avx512f")]
#[inline]
fn add_wide_lanes<const LANES: usize>(lanes: &mut [__m512i; LANES], source: &[u8]) {
    let source = &source[..64 * LANES];
    for (at, lane) in lanes.iter_mut().enumerate() {
        // SAFETY: the slice has 64 bytes for each lane.
        let added = unsafe { _mm512_loadu_si512(source.as_ptr().add(64 * at).cast()) };
        *lane = _mm512_xor_si512(*lane, added);
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store_wide_lanes<const LANES: usize>(target: &mut [u8], lanes: [__m512i; LANES]) {
    let target = &mut target[..64 * LANES];
    for (at, lane) in lanes.into_iter().enumerate() {
        // SAFETY: the slice has 64 bytes for each lane.
        unsafe { _mm512_storeu_si512(target.as_mut_ptr().add(64 * at).cast(), lane) };
    }
}

/// Bit i of a product is the parity of the factor's byte 7 - i with the byte multiplied. Bit j of byte 7 - i
/// is bit i of `factor` * 2^j.
const fn matrices() -> [u64; 256] {
    let mut matrices = [0; 256];
    let mut factor = 0u8;
    loop {
        let mut j = 0;
        while j < 8 {
            let product = slow_mul(factor, 1 << j);
            let mut i = 0;
            while i < 8 {
                let bit = (product >> i & 1) as u64;
                matrices[factor as usize] |= bit << (8 * (7 - i) + j);
                i += 1;
            }
            j += 1;
        }
        if factor == u8::MAX {
            return matrices;
        }
        factor += 1;
    }
}
