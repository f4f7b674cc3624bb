//! Runs independent work of loading on several threads.

use std::{
    panic::resume_unwind,
    sync::{Mutex, PoisonError},
    thread,
};

use crate::Result;

/// Calls `act` with each item in the order of the items, on this thread and up to `threads - 1`
/// others. After an error the items that have not begun are left out.
///
/// # Errors
/// The first error of `act`.
pub(super) fn for_each<T: Send>(items: Vec<T>, threads: usize, act: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
    let threads = threads.min(thread::available_parallelism().map_or(1, usize::from)).min(items.len());
    let items = Mutex::new(items.into_iter());
    let take = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some(item) = take() {
            if let Err(error) = act(item) {
                while take().is_some() {}
                return Err(error);
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        let others = others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        others.fold(own, |result, other| result.and(other))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;
    use crate::Error;

    #[test]
    fn each_item_is_taken_once() {
        for (items, threads) in [(0, 4), (1, 4), (100, 1), (100, 3), (2, 100)] {
            let sum = AtomicUsize::new(0);
            for_each((0..items).collect(), threads, |item: usize| {
                sum.fetch_add(item + 1, Relaxed);
                Ok(())
            })
            .unwrap();
            assert_eq!(sum.into_inner(), items * (items + 1) / 2);
        }
    }

    #[test]
    fn an_error_ends_the_work() {
        let calls = AtomicUsize::new(0);
        let error = for_each((0..10_000).collect(), 2, |item: usize| {
            calls.fetch_add(1, Relaxed);
            if item == 3 { Err(Error::Cancelled) } else { Ok(()) }
        });
        assert!(matches!(error, Err(Error::Cancelled)));
        assert!(calls.into_inner() < 10_000);
    }
}
