//! Counts what is allocated, for tests that hold a call to a bound.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicIsize, Ordering},
    },
};

/// The system's allocator, counting by thread, so that tests which run beside each other do not
/// disturb each other, and in all.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    /// Bytes allocated less bytes freed; below zero where a thread frees what another allocated.
    static HELD: Cell<isize> = const { Cell::new(0) };
    /// The most that `HELD` has been.
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

static ALL_HELD: AtomicIsize = AtomicIsize::new(0);
static ALL_PEAK: AtomicIsize = AtomicIsize::new(0);

fn count(change: isize) {
    let held = HELD.get() + change;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
    let held = ALL_HELD.fetch_add(change, Ordering::Relaxed) + change;
    ALL_PEAK.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing, since
// the cells are initialized at compile time and have no destructors.
unsafe impl GlobalAlloc for Counting {
    /// # Safety: as [`GlobalAlloc::alloc`].
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    /// # Safety: as [`GlobalAlloc::alloc_zeroed`].
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    /// # Safety: as [`GlobalAlloc::dealloc`].
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    /// # Safety: as [`GlobalAlloc::realloc`].
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Both blocks may exist for a moment.
        count(new_size as isize);
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

/// What `call` returns, and the most bytes that its thread held meanwhile beyond what it held
/// before.
pub fn peak_during<T>(call: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = call();
    (result, (PEAK.get() - before) as usize)
}

/// What `call` returns, and the most bytes that all threads held meanwhile beyond what they held
/// before: also those that `call` has for itself, but those of other tests, too. One such call runs
/// at a time.
pub fn peak_of_all_during<T>(call: impl FnOnce() -> T) -> (T, usize) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = ALL_HELD.load(Ordering::Relaxed);
    ALL_PEAK.store(before, Ordering::Relaxed);
    let result = call();
    (result, (ALL_PEAK.load(Ordering::Relaxed) - before).max(0) as usize)
}

#[test]
fn the_peak_of_other_threads_is_seen() {
    let allocate = || drop(std::hint::black_box(vec![1_u8; 300 << 20]));
    let (_, peak) = peak_of_all_during(|| std::thread::spawn(allocate).join().unwrap());
    assert!(peak >= 200 << 20, "{peak}");
}

#[test]
fn the_peak_is_seen_although_it_was_freed() {
    let (_, peak) = peak_during(|| drop(std::hint::black_box(vec![1_u8; 100_000])));
    assert!((100_000..101_000).contains(&peak), "{peak}");
}
