//! What a thread allocates, by an allocator that counts; each test has its own thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        uncount(layout.size());
        // SAFETY: the pointer came from `alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    /// A large vector grows in place, by new pages: it is not there twice.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        uncount(layout.size());
        count(size);
        // SAFETY: the pointer came from `alloc` with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// A thread that is ending has no counters any more.
fn count(bytes: usize) {
    let _ending = NOW.try_with(|now| {
        let _ending = CALLS.try_with(|calls| calls.set(calls.get() + 1));
        now.set(now.get() + bytes);
        let _ending = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

/// What another thread allocated may be freed here.
fn uncount(bytes: usize) {
    let _ending = NOW.try_with(|now| now.set(now.get().saturating_sub(bytes)));
}

/// The peak of `work` above what this thread had allocated before, in bytes.
pub fn peak(work: impl FnOnce()) -> usize {
    let before = NOW.get();
    PEAK.set(before);
    work();
    PEAK.get() - before
}

/// What `free` gives back, in bytes.
pub fn kept(free: impl FnOnce()) -> usize {
    let before = NOW.get();
    free();
    before.saturating_sub(NOW.get())
}

/// Calls to the allocator that this thread has made so far.
pub fn calls() -> u64 {
    CALLS.get()
}
