//! What the decoding of a block allocates, by an allocator that counts.

#![expect(unsafe_code, reason = "an allocator that counts calls that of the system")]
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use common::{Random, repairs, source, symbols, with_losses};
use headwater_fec::{Parameters, codec};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

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
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the pointer came from `alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    /// A large vector grows in place, by new pages: it is not there twice.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        NOW.fetch_sub(layout.size(), Relaxed);
        count(size);
        // SAFETY: the pointer came from `alloc` with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Counts bytes in; those that go out are taken from [`NOW`] alone.
fn count(bytes: usize) {
    let now = NOW.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(now, Relaxed);
}

/// The peak of `work` above what is allocated before, in bytes.
fn peak(work: impl FnOnce()) -> usize {
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    work();
    PEAK.load(Relaxed) - before
}

/// The block, its repair symbols, and what decoding takes beside them, in blocks. The plan is there before, as
/// all threads share it.
fn pipeline_blocks(k: u32, lost: usize, extra: usize) -> f64 {
    let codec = codec(Parameters::raptorq(1408)).unwrap();
    let mut random = Random(u64::from(k) + lost as u64);
    let source = source(&*codec, k, 1);
    let missing = random.sample(0, k, lost);
    let esis: Vec<u32> = (k..).take(lost + extra).collect();
    let sent = symbols(&*codec, k, &source, &esis);
    let bytes = peak(|| {
        let received = sent.clone();
        let mut block = with_losses(&source, 1408, &missing);
        codec.decode(k, &mut block, &missing, &repairs(&received)).unwrap();
        assert!(block == source);
    });
    bytes as f64 / source.len() as f64
}

/// One test, as tests run side by side and the counter counts them all.
///
/// 5.5 blocks hold for a thread up to a loss of a quarter. The crate's decoder takes 4.3 beside the block and its repair
/// symbols, so a block of repair symbols alone takes 6.3; blocks shorter than these take up to 2 more, of less.
#[test]
fn the_pipeline_of_a_block_has_a_bound() {
    for k in [1002, 5008] {
        let all = k as usize;
        for (lost, extra, most) in [
            (0, 0, 1.1),
            (all / 100, 1, 3.2),
            (all / 50, 1, 3.2),
            (all / 10, 1, 5.5),
            (all / 4, 1, 5.5),
            (all, 1, 6.4),
            (all, 20, 6.4),
        ] {
            let blocks = pipeline_blocks(k, lost, extra);
            assert!(blocks <= most, "k = {k}, {lost} lost, {extra} extra: {blocks:.2} blocks");
        }
    }
}
