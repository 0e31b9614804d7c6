//! What the decoding of a block allocates, by an allocator that counts.

#![expect(unsafe_code, reason = "an allocator that counts calls that of the system")]
#![expect(clippy::disallowed_methods, reason = "the kernel says what is resident")]
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{Random, repairs, source, symbols, with_losses};
use headwater_fec::{LdpcParameters, Parameters, PlanBytes, Scheme, codec, kept_bytes, sending_order};

struct Counting;

thread_local! {
    /// Bytes that the thread has allocated and not freed: other tests, and the harness, do not count.
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.set(NOW.get() - layout.size().cast_signed());
        // SAFETY: the pointer came from `alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    /// A large vector grows in place, by new pages: it is not there twice.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        NOW.set(NOW.get() - layout.size().cast_signed());
        count(size);
        // SAFETY: the pointer came from `alloc` with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Counts bytes in; those that go out are taken from [`NOW`] alone.
fn count(bytes: usize) {
    let now = NOW.get() + bytes.cast_signed();
    NOW.set(now);
    PEAK.set(PEAK.get().max(now));
}

/// The peak of `work` above what is allocated before, in bytes.
fn peak(work: impl FnOnce()) -> usize {
    let before = NOW.get();
    PEAK.set(before);
    work();
    (PEAK.get() - before).cast_unsigned()
}

/// What decoding takes with the block, whose missing places hold the repair symbols, in bytes. The plan is
/// there before, as all threads share it.
fn pipeline_bytes(k: u32, size: u16, lost: usize, extra: usize) -> usize {
    let codec = codec(Parameters::raptorq(size)).unwrap();
    let mut random = Random(u64::from(k) + lost as u64);
    let source = source(&*codec, k, 1);
    let missing = random.sample(0, k, lost);
    let esis: Vec<u32> = (k..).take(lost + extra).collect();
    let sent = symbols(&*codec, k, &source, &esis);
    // Makes what all blocks of this length share.
    codec.decode(k, &mut with_losses(&source, size.into(), &missing), &missing, &repairs(&sent)).unwrap();
    let bytes = peak(|| {
        let mut block = with_losses(&source, size.into(), &missing);
        for (at, symbol) in missing.iter().zip(&sent) {
            block[*at as usize * usize::from(size)..][..size.into()].copy_from_slice(&symbol.1);
        }
        let more = repairs(&sent[lost..]);
        codec.decode_in_place(k, &mut block, &missing, &esis[..lost], &more).unwrap();
        assert!(block == source);
    });
    let bound = usize::try_from(codec.decoding_bytes(k, lost)).unwrap();
    assert!(
        bytes <= bound + bound / 100,
        "k = {k}, T = {size}, {lost} lost, {extra} extra: {bytes}, {bound}"
    );
    println!("k = {k}, T = {size}, {lost} lost, {extra} extra: {bytes} bytes, of {bound}");
    bytes
}

/// What decoding an LDPC block takes in strips of `width` bytes, as a part of the bound that it tells: half
/// of what is received are source symbols, and there are few more than it takes.
fn strips_of_bound(k: u32, width: usize) -> f64 {
    let parameters = Parameters::ldpc(Scheme::LdpcTriangle, 1408, k, 2 * k, LdpcParameters::new(1));
    let codec = codec(parameters).unwrap();
    let received = &sending_order(1, 2 * k)[..(k + k / 100) as usize];
    let mut is_missing = vec![true; k as usize];
    received.iter().filter(|esi| **esi < k).for_each(|esi| is_missing[*esi as usize] = false);
    let missing: Vec<u32> = (0..k).filter(|esi| is_missing[*esi as usize]).collect();
    let esis: Vec<u32> = received.iter().copied().filter(|esi| *esi >= k).collect();
    let bytes = peak(|| {
        let recipe = codec.recipe(k, &missing, &esis).unwrap();
        let (mut block, symbols) = (vec![0; k as usize * width], vec![1; esis.len() * width]);
        let repairs: Vec<&[u8]> = symbols.chunks_exact(width).collect();
        recipe.fill(width, &mut block, &repairs).unwrap();
    });
    bytes as f64 / codec.strip_bytes(k, width) as f64
}

/// Tests run side by side, and the counter counts them all.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
#[test]
fn the_pipeline_of_a_block_has_a_bound() {
    let _alone = ALONE.lock().unwrap();
    for k in [1002, 5008] {
        let all = k as usize;
        for (lost, extra, most) in
            [(0, 0, 1.1), (all / 100, 1, 2.0), (all / 10, 1, 2.0), (all, 1, 2.0), (all, 20, 2.0)]
        {
            let blocks = pipeline_bytes(k, 1408, lost, extra) as f64 / (f64::from(k) * 1408.0);
            assert!(blocks <= most, "k = {k}, {lost} lost, {extra} extra: {blocks:.2} blocks");
        }
    }
    // The longest above 100 Mbit/s, and short blocks or short symbols, where the equations are what counts.
    for (k, size) in [(10_017, 1408), (14_000, 64), (3_000, 1), (300, 8), (100, 64), (10, 16), (1, 64)] {
        let all = k as usize;
        for lost in [1, all.div_ceil(50), all / 2 + 1, all] {
            pipeline_bytes(k, size, lost.min(all), 0);
        }
    }
}

/// The first block of its length, whose equations are made and kept; and a sender's schedule.
#[test]
fn plans_are_made_and_kept_within_their_bound() {
    let _alone = ALONE.lock().unwrap();
    for (k, size) in [(7, 16), (199, 16), (641, 2), (1_091, 1408), (5_010, 64), (20_152, 16), (56_403, 16)] {
        let codec = codec(Parameters::raptorq(size)).unwrap();
        let source = source(&*codec, k, 1);
        let told = PlanBytes::of([k]);
        let before = (NOW.get(), kept_bytes());
        let mut encoder = None;
        let bytes = peak(|| encoder = Some(codec.encoder(k, &source).unwrap())) as u64;
        drop(encoder);
        // Plans that another test has made may have made room: less is kept then.
        let kept = u64::try_from(NOW.get() - before.0).unwrap_or(0);
        println!(
            "k = {k}, T = {size}: {kept} bytes kept of {}, {bytes} of {}",
            told.kept,
            told.kept + told.making
        );
        assert!(kept <= told.kept, "k = {k}: {kept} bytes kept, of {}", told.kept);
        let bound = told.kept + told.making + codec.encoder_bytes(k);
        assert!(bytes <= bound, "k = {k}, T = {size}: {bytes} bytes, of {bound}");
    }
}

/// The longest blocks that our senders make, and any that is longer, as the kernel counts them.
#[test]
#[cfg(target_os = "linux")]
fn the_longest_blocks_have_a_bound_too() {
    let _alone = ALONE.lock().unwrap();
    for (k, size, lost) in [(20_152, 1408, 200), (20_152, 1408, 20_152), (56_403, 64, 56_403)] {
        let codec = codec(Parameters::raptorq(size)).unwrap();
        // Resident before: pages of zeros are none until they are written.
        let mut block = vec![1; k as usize * usize::from(size)];
        block.fill(0);
        let missing: Vec<u32> = (0..k).take(lost).collect();
        let esis: Vec<u32> = (k..).take(lost + 30).collect();
        let more: Vec<Vec<u8>> = vec![vec![0; size.into()]; 30];
        let more: Vec<_> =
            esis[lost..].iter().zip(&more).map(|(&esi, data)| headwater_fec::Repair { esi, data }).collect();
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
        };
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = resident();
        // A block of zeros, whose symbols are all zero.
        codec.decode_in_place(k, &mut block, &missing, &esis[..lost], &more).unwrap();
        // What is counted apart may have been made just now; what was freed before may have been enough.
        let taken = resident().saturating_sub(before);
        let bound = codec.decoding_bytes(k, lost) - block.len() as u64 + kept_bytes();
        println!("k = {k}, T = {size}, {lost} lost: {taken} bytes beside the block, of {bound}");
        assert!(taken <= bound, "k = {k}, T = {size}, {lost} lost: {taken}, {bound}");
    }
}

#[test]
fn strips_of_a_block_have_a_bound() {
    let _alone = ALONE.lock().unwrap();
    for (k, width) in [(100, 1408), (3_000, 1408), (40_000, 64), (71_644, 256)] {
        let part = strips_of_bound(k, width);
        assert!(part <= 1.0, "k = {k}, {width} bytes of each symbol: {part:.2} of the bound");
    }
}

/// What a sender counts an encoder as, and that making it takes no more beside the block, once the plan is
/// there.
#[test]
fn encoders_keep_what_they_say() {
    let _alone = ALONE.lock().unwrap();
    let ldpc = |k| Parameters::ldpc(Scheme::LdpcTriangle, 1408, k, 2 * k, LdpcParameters::new(1));
    for (parameters, lengths) in [
        (Parameters::raptorq(1408), [1, 13, 1_003, 5_008, 17_911].as_slice()),
        (Parameters::reed_solomon(1408, 127, 255), &[1, 127]),
        (ldpc(3_000), &[100, 3_000]),
    ] {
        let codec = codec(parameters).unwrap();
        for &k in lengths {
            let block = vec![0; k as usize * codec.symbol_size()];
            drop(codec.encoder(k, &block).unwrap());
            let before = NOW.get();
            let mut encoder = None;
            let most = peak(|| encoder = Some(codec.encoder(k, &block).unwrap())) as f64;
            let kept = (NOW.get() - before) as f64;
            let told = codec.encoder_bytes(k) as f64;
            println!("{:?}, k = {k}: {kept} bytes kept, {most} at most, {told} told", codec.scheme());
            assert!(kept <= told + 1_000.0 && told <= 1.05 * kept, "k = {k}: {kept}, {told} told");
            if codec.scheme() == Scheme::RaptorQ {
                let most_told = told + codec.encoding_bytes(k) as f64 + 1_000.0;
                assert!(most <= most_told, "k = {k}: {most}, {most_told} told");
            }
        }
    }
}
