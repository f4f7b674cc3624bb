//! How the threads of a call divide a task whose pieces may be done in any order, by anyone.
//!
//! Each thread works through a share of its own from front to back, which memory likes best, and then takes over what
//! slower threads have left of theirs: a core that another process holds, or that runs slower, costs what it does not
//! do and no more.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Bits of the place in a share; the number of the task is above them.
const PLACE_BITS: u32 = 40;

/// Where each thread's share of the task in hand stands.
#[derive(Debug)]
pub(crate) struct Shares(Box<[Share]>);

/// The number of the last task that somebody has taken a part of this share of, and the first piece not yet taken.
///
/// It has a cache line to itself, as its thread asks it all the time.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Share(AtomicU64);

impl Shares {
    /// The shares of so many threads.
    pub fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Share::default()).collect())
    }

    /// Makes them ready for tasks that are numbered from 0 again. Nobody takes anything meanwhile.
    pub fn reset(&self) {
        self.0.iter().for_each(|share| share.0.store(0, Relaxed));
    }

    /// Calls `work` with parts of up to `step` of the pieces `0..count`, until all are taken: those of the share of
    /// thread `number` first. Each piece is given out once over the `threads` threads that call this for the same
    /// task. Tasks are numbered in the order in which every thread comes to them.
    pub fn each(
        &self,
        task: usize,
        [number, threads]: [usize; 2],
        [count, step]: [usize; 2],
        mut work: impl FnMut(Range<usize>),
    ) {
        for turn in 0..threads {
            let owner = (number + turn) % threads;
            let all = share(count, owner, threads);
            while let Some(part) = self.0[owner].take(task, &all, step) {
                work(part);
            }
        }
    }
}

impl Share {
    fn take(&self, task: usize, all: &Range<usize>, step: usize) -> Option<Range<usize>> {
        // The first task is 1, as 0 says that nothing was taken yet.
        let task = (task as u64 + 1) << PLACE_BITS;
        let mut known = self.0.load(Relaxed);
        loop {
            let taken = if known < task { 0 } else { (known - task) as usize };
            // A thread that is at a later task already has left nothing of this one.
            if known >> PLACE_BITS > task >> PLACE_BITS || taken >= all.len() {
                return None;
            }
            let part = all.start + taken..all.end.min(all.start + taken + step);
            match self.0.compare_exchange_weak(known, task + (taken + part.len()) as u64, Relaxed, Relaxed) {
                Ok(_) => return Some(part),
                Err(changed) => known = changed,
            }
        }
    }
}

/// The share that thread `number` of `threads` has of `count` things.
pub(crate) fn share(count: usize, number: usize, threads: usize) -> Range<usize> {
    count * number / threads..count * (number + 1) / threads
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, Mutex};

    use super::*;

    /// Tasks of many sizes one after the other, by threads of which some are late or never come.
    #[test]
    fn every_piece_is_given_out_once() {
        const COUNTS: [usize; 7] = [0, 1, 5, 64, 1000, 3, 257];
        for threads in [1, 2, 3, 7] {
            let shares = Shares::new(threads);
            let done: Vec<_> = COUNTS.map(|count| Mutex::new(vec![0; count])).into();
            let barrier = Barrier::new(threads.div_ceil(2));
            std::thread::scope(|scope| {
                for number in (0..threads).step_by(2) {
                    let (shares, done, barrier) = (&shares, &done, &barrier);
                    scope.spawn(move || {
                        for (task, count) in COUNTS.into_iter().enumerate() {
                            shares.each(task, [number, threads], [count, 4], |part| {
                                part.for_each(|piece| done[task].lock().unwrap()[piece] += 1);
                            });
                            // Without it in front of every other task, as some tasks need none between them.
                            if task % 2 == 0 {
                                barrier.wait();
                            }
                        }
                    });
                }
            });
            for (task, done) in done.into_iter().enumerate() {
                assert_eq!(done.into_inner().unwrap(), vec![1; COUNTS[task]], "task {task}, {threads} threads");
            }
        }
    }

    #[test]
    fn a_thread_begins_with_its_own_share() {
        let shares = Shares::new(3);
        let mut parts = Vec::new();
        shares.each(0, [1, 3], [9, 2], |part| parts.push(part));
        assert_eq!(parts, [3..5, 5..6, 6..8, 8..9, 0..2, 2..3]);
        shares.each(0, [0, 3], [9, 2], |_| unreachable!("all is taken"));
        shares.reset();
        shares.each(0, [2, 3], [2, 2], |part| parts.push(part));
        assert_eq!(parts[6..], [1..2, 0..1]);
    }
}
