//! Runs independent work of loading on several threads.

use std::{
    panic::resume_unwind,
    sync::{
        Mutex, PoisonError,
        mpsc::{self, Sender},
    },
    thread,
};

use crate::Result;

/// Calls `act` with each item on up to `threads` threads, in the order of the items, and `done`
/// with each result on this thread. After an error the items that have not begun are left out.
///
/// # Errors
/// The first error of `act`.
pub(super) fn for_each<T: Send, R: Send>(
    items: Vec<T>,
    threads: usize,
    act: impl Fn(T) -> Result<R> + Sync,
    mut done: impl FnMut(R),
) -> Result<()> {
    let threads = threads.min(thread::available_parallelism().map_or(1, usize::from)).min(items.len());
    if threads <= 1 {
        return items.into_iter().try_for_each(|item| act(item).map(&mut done));
    }
    let items = Mutex::new(items.into_iter());
    let take = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = &|results: Sender<R>| {
        while let Some(item) = take() {
            match act(item) {
                // The receiver outlives this thread.
                Ok(result) => drop(results.send(result)),
                Err(error) => {
                    while take().is_some() {}
                    return Err(error);
                }
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        let senders = std::iter::repeat_n(sender, threads);
        let workers: Vec<_> = senders.map(|sender| scope.spawn(move || work(sender))).collect();
        results.into_iter().for_each(done);
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
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
            let (sum, mut done) = (AtomicUsize::new(0), 0);
            let act = |item: usize| {
                sum.fetch_add(item + 1, Relaxed);
                Ok(item + 1)
            };
            for_each((0..items).collect(), threads, act, |result| done += result).unwrap();
            assert_eq!([sum.into_inner(), done], [items * (items + 1) / 2; 2]);
        }
    }

    #[test]
    fn an_error_ends_the_work() {
        let calls = AtomicUsize::new(0);
        let act = |item: usize| {
            calls.fetch_add(1, Relaxed);
            if item == 3 { Err(Error::Cancelled) } else { Ok(()) }
        };
        let error = for_each((0..10_000).collect(), 2, act, |()| ());
        assert!(matches!(error, Err(Error::Cancelled)));
        assert!(calls.into_inner() < 10_000);
    }
}
