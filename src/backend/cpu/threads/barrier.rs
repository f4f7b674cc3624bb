//! Implements a barrier that spins, and that a panic of a thread breaks up.

use std::{
    hint,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*},
    thread,
    time::{Duration, Instant},
};

/// Iterations of a waiting loop before the thread yields: some tens of microseconds.
pub(super) const SPINS: usize = 2000;

/// The barrier at which the threads of a call meet.
#[derive(Default)]
pub(super) struct Barrier {
    threads: AtomicUsize,
    arrived: AtomicUsize,
    round: AtomicUsize,
    /// Set when a thread panicked and will not arrive any more.
    broken: AtomicBool,
    /// Nanoseconds that the threads of this call spent in long waits, in total.
    waited: AtomicU64,
}

impl Barrier {
    /// Resets the barrier for a call of `threads` threads, also after a call that panicked.
    pub fn reset(&self, threads: usize) {
        self.threads.store(threads, Relaxed);
        self.arrived.store(0, Relaxed);
        self.broken.store(false, Relaxed);
        self.waited.store(0, Relaxed);
    }

    /// Returns the number of threads of the call.
    pub fn threads(&self) -> usize {
        self.threads.load(Relaxed)
    }

    /// Returns the time that the threads of the call spent in long waits, in total.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Relaxed))
    }

    /// Releases all threads of the call, as one of them panicked.
    pub fn break_up(&self) {
        self.broken.store(true, Release);
    }

    /// Returns whether a thread of the call panicked.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Acquire)
    }

    /// Waits for all threads. Returns `false` if one of them panicked.
    pub fn wait(&self) -> bool {
        let round = self.round.load(Acquire);
        if self.arrived.fetch_add(1, AcqRel) + 1 == self.threads.load(Relaxed) {
            self.arrived.store(0, Relaxed);
            self.round.store(round.wrapping_add(1), Release);
        } else {
            self.wait_until(|| self.round.load(Acquire) != round || self.broken.load(Acquire));
        }
        !self.broken.load(Acquire)
    }

    /// Spins until `done`, and yields in between: another thread of the pool may need this very
    /// core.
    pub fn wait_until(&self, done: impl Fn() -> bool) {
        let mut yielding = None;
        loop {
            for _ in 0..SPINS {
                if done() {
                    if let Some(since) = yielding.map(|since: Instant| since.elapsed()) {
                        self.waited.fetch_add(since.as_nanos() as u64, Relaxed);
                    }
                    return;
                }
                hint::spin_loop();
            }
            yielding.get_or_insert_with(Instant::now);
            thread::yield_now();
        }
    }
}
