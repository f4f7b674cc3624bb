//! Divides a task among the threads of a call, in pieces that any thread can do in any order.
//!
//! Each thread takes the pieces of its own share from front to back, which keeps its reads
//! sequential, and then steals from the shares of slower threads: a core that another process
//! occupies, or that runs slower, costs the work that it leaves undone and no more.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Bits of the position in a [`Share`]; the number of the task is above them.
const POSITION_BITS: u32 = 40;

/// The progress of all threads in the current task.
#[derive(Debug)]
pub(crate) struct WorkQueue(Box<[Share]>);

/// The number of the last task that had a piece taken from this share, and the first piece that
/// was not taken.
///
/// It has a cache line to itself, as its thread reads it all the time.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Share(AtomicU64);

/// A task that threads take from a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedTask {
    /// Its number. Every thread comes to the tasks of a call in the order of their numbers.
    pub number: usize,
    /// Number of pieces.
    pub pieces: usize,
    /// Largest number of pieces that a thread takes at a time.
    pub at_once: usize,
}

/// A thread of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadNumber {
    /// Its number, from 0.
    pub number: usize,
    /// Number of threads in the call.
    pub threads: usize,
}

impl WorkQueue {
    /// Returns a queue for up to `threads` threads.
    pub fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Share::default()).collect())
    }

    /// Resets the queue for tasks that are numbered from 0 again, while no thread takes from it.
    pub fn reset(&self) {
        self.0.iter().for_each(|share| share.0.store(0, Relaxed));
    }

    /// Calls `work` with ranges of the task's pieces until all are taken, the thread's own share
    /// first. Over all threads of the call, each piece is taken once.
    pub fn for_each(&self, task: QueuedTask, thread: ThreadNumber, mut work: impl FnMut(Range<usize>)) {
        for turn in 0..thread.threads {
            let owner = ThreadNumber { number: (thread.number + turn) % thread.threads, ..thread };
            let pieces = owner.share(task.pieces);
            while let Some(taken) = self.0[owner.number].take(task, &pieces) {
                work(taken);
            }
        }
    }
}

impl Share {
    /// Takes the next of `pieces`, which are this share's; `None` when all are taken.
    fn take(&self, task: QueuedTask, pieces: &Range<usize>) -> Option<Range<usize>> {
        // The first task is 1 here, as 0 says that no piece was taken yet.
        let first_state = (task.number as u64 + 1) << POSITION_BITS;
        let mut state = self.0.load(Relaxed);
        loop {
            let taken = if state < first_state { 0 } else { (state - first_state) as usize };
            // The share's thread may be at a later task: then no piece of this one is left.
            if state >> POSITION_BITS > first_state >> POSITION_BITS || taken >= pieces.len() {
                return None;
            }
            let start = pieces.start + taken;
            let range = start..pieces.end.min(start + task.at_once);
            match self.0.compare_exchange_weak(state, first_state + (taken + range.len()) as u64, Relaxed, Relaxed) {
                Ok(_) => return Some(range),
                Err(changed) => state = changed,
            }
        }
    }
}

impl ThreadNumber {
    /// Returns the thread's share of `count` pieces.
    pub fn share(self, count: usize) -> Range<usize> {
        count * self.number / self.threads..count * (self.number + 1) / self.threads
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, Mutex};

    use super::*;

    /// Tasks of many sizes one after the other, with threads that are late or absent.
    #[test]
    fn every_piece_is_taken_once() {
        const PIECES: [usize; 7] = [0, 1, 5, 64, 1000, 3, 257];
        for threads in [1, 2, 3, 7] {
            let queue = WorkQueue::new(threads);
            let done: Vec<_> = PIECES.map(|pieces| Mutex::new(vec![0; pieces])).into();
            let barrier = Barrier::new(threads.div_ceil(2));
            std::thread::scope(|scope| {
                for number in (0..threads).step_by(2) {
                    let (queue, done, barrier) = (&queue, &done, &barrier);
                    let thread = ThreadNumber { number, threads };
                    scope.spawn(move || {
                        for (number, pieces) in PIECES.into_iter().enumerate() {
                            queue.for_each(QueuedTask { number, pieces, at_once: 4 }, thread, |taken| {
                                taken.for_each(|piece| done[number].lock().unwrap()[piece] += 1);
                            });
                            // Every other task follows without a barrier, as some tasks of a step
                            // do.
                            if number % 2 == 0 {
                                barrier.wait();
                            }
                        }
                    });
                }
            });
            for (number, done) in done.into_iter().enumerate() {
                assert_eq!(done.into_inner().unwrap(), vec![1; PIECES[number]], "task {number}, {threads} threads");
            }
        }
    }

    #[test]
    fn thread_takes_its_own_share_first() {
        let queue = WorkQueue::new(3);
        let thread = |number| ThreadNumber { number, threads: 3 };
        let task = QueuedTask { number: 0, pieces: 9, at_once: 2 };
        let mut ranges = Vec::new();
        queue.for_each(task, thread(1), |range| ranges.push(range));
        assert_eq!(ranges, [3..5, 5..6, 6..8, 8..9, 0..2, 2..3]);
        queue.for_each(task, thread(0), |_| unreachable!("all pieces are taken"));
        queue.reset();
        queue.for_each(QueuedTask { pieces: 2, ..task }, thread(2), |range| ranges.push(range));
        assert_eq!(ranges[6..], [1..2, 0..1]);
    }
}
