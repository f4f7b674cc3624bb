//! Reports the progress of loading to a callback, which can cancel it.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use crate::{Error, Result};

/// A callback `(ready, total)` with the bytes of weights that are ready and the bytes of all
/// weights. It returns `false` to cancel loading.
pub type ProgressCallback = dyn Fn(u64, u64) -> bool + Send + Sync;

/// Largest number of bytes between two calls of the callback, if the weights are ready in as small
/// parts.
const INTERVAL: u64 = 4 << 20;
/// Smallest number of calls, likewise.
const CALLS: u64 = 16;

/// A count of the bytes of weights that are ready, which calls back every few megabytes, and more
/// often for small models.
pub struct LoadProgress<'a> {
    callback: Option<&'a ProgressCallback>,
    total: u64,
    done: AtomicU64,
    /// `done` at the last call.
    reported: AtomicU64,
    cancelled: AtomicBool,
    /// A panic of the callback, which resumes in the loading thread once the other threads have
    /// stopped.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl<'a> LoadProgress<'a> {
    /// Returns a count of `total` bytes that calls `callback`.
    pub fn new(total: u64, callback: Option<&'a ProgressCallback>) -> Self {
        let [done, reported] = Default::default();
        Self { callback, total, done, reported, cancelled: AtomicBool::new(false), panic: Mutex::default() }
    }

    /// Returns a count without a callback.
    pub fn unobserved() -> Self {
        Self::new(0, None)
    }

    /// Calls back with 0 bytes ready.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn start(&self) -> Result<()> {
        self.call(0);
        self.check()
    }

    /// Counts `bytes` more bytes as ready. Any thread may call this.
    pub fn add(&self, bytes: usize) {
        self.done.fetch_add(bytes as u64, Relaxed);
    }

    /// Calls back if enough bytes have been added since the last call. Only the loading thread
    /// may call this, so that the callback never runs twice at the same time.
    pub fn report(&self) {
        let done = self.done.load(Relaxed).min(self.total);
        let interval = INTERVAL.min(self.total / CALLS);
        if done >= self.reported.load(Relaxed) + interval && done < self.total {
            self.call(done);
        }
    }

    /// Counts all bytes as ready, and calls back.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn finish(&self) -> Result<()> {
        self.call(self.total);
        self.check()
    }

    /// Returns whether the callback has cancelled loading.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    /// Returns an error if the callback has cancelled loading, and resumes a panic of the callback.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub fn check(&self) -> Result<()> {
        if let Some(panic) = self.panic.lock().unwrap_or_else(PoisonError::into_inner).take() {
            resume_unwind(panic);
        }
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    fn call(&self, done: u64) {
        let Some(callback) = self.callback.filter(|_| !self.is_cancelled()) else { return };
        self.reported.store(done, Relaxed);
        match catch_unwind(AssertUnwindSafe(|| callback(done, self.total))) {
            Ok(true) => {}
            Ok(false) => self.cancelled.store(true, Relaxed),
            Err(panic) => {
                *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
                self.cancelled.store(true, Relaxed);
            }
        }
    }
}

impl fmt::Debug for LoadProgress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { total, done, cancelled, .. } = self;
        f.debug_struct("LoadProgress")
            .field("total", total)
            .field("done", done)
            .field("cancelled", cancelled)
            .finish_non_exhaustive()
    }
}
