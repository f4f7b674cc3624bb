//! Divides work on large arrays among threads.

use std::{
    num::NonZero,
    sync::{Mutex, PoisonError},
    thread,
};

/// Calls `work` with each of `shares`, on this thread and others if there are several.
pub fn for_each_share<T: Send>(shares: impl ExactSizeIterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(shares.len());
    let shares = Mutex::new(shares);
    let next = || shares.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        while let Some(share) = next() {
            work(share);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // This thread does the work of a thread that the system refuses.
            let _ = thread::Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
}
