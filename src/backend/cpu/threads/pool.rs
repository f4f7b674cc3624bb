//! Runs a job on a pool of persistent threads.
//!
//! One call gives every thread the same closure, in which the threads meet at barriers. Between
//! calls a worker spins for a moment, because the next token usually follows at once, and then
//! sleeps: an idle model costs no CPU time.

use std::{
    hint,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::*},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use super::{
    barrier::{Barrier, SPINS},
    throttle::ThreadThrottle,
    work_queue::{QueuedTask, ThreadNumber, WorkQueue},
};
use crate::{Error, Result};

/// Yields of a worker that waits for a job before it sleeps.
const YIELDS: usize = 50;

/// The work of each thread in a call.
type ThreadJob<'a> = dyn Fn(Worker<'_>) + Sync + 'a;

/// A thread that takes part in a call.
#[derive(Clone, Copy)]
pub(crate) struct Worker<'a> {
    /// Its number, from 0, which is the caller's thread.
    pub number: usize,
    /// Number of threads that take part.
    pub threads: usize,
    barrier: &'a Barrier,
    queue: &'a WorkQueue,
}

impl Worker<'_> {
    /// Waits for the other threads. Returns `false` if one of them panicked: this one must return
    /// then.
    pub fn wait(&self) -> bool {
        self.barrier.wait()
    }

    /// Returns this thread's share of `count` items.
    pub fn share(&self, count: usize) -> Range<usize> {
        self.thread().share(count)
    }

    /// Calls `work` with ranges of the task's pieces: see [`WorkQueue::for_each`].
    pub fn take_from(&self, task: QueuedTask, work: impl FnMut(Range<usize>)) {
        self.queue.for_each(task, self.thread(), work);
    }

    fn thread(&self) -> ThreadNumber {
        ThreadNumber { number: self.number, threads: self.threads }
    }
}

/// A pool of threads. Number 0 is the caller's.
pub(crate) struct Pool {
    state: Arc<PoolState>,
    workers: Vec<JoinHandle<()>>,
    threads: usize,
    throttle: ThreadThrottle,
    /// The throttle of small jobs, if they have fewer threads than others.
    small_throttle: Option<ThreadThrottle>,
    /// Whether several threads use the pool in turn.
    has_several_callers: bool,
}

/// The part of a pool that its workers read.
struct PoolState {
    /// Number of calls so far; a worker waits for it to change.
    calls: AtomicUsize,
    /// The job of the current call and the number of threads that run it; `None` ends the workers.
    job: Mutex<Option<(JobPointer, usize)>>,
    wake: Condvar,
    /// Number of workers that still run the job.
    busy: AtomicUsize,
    barrier: Barrier,
    queue: WorkQueue,
}

#[derive(Clone, Copy)]
struct JobPointer(*const ThreadJob<'static>);

// SAFETY: `Pool::run` keeps the job alive until every worker has finished it, and `Job` is `Sync`.
unsafe impl Send for JobPointer {}

impl Pool {
    /// Starts a pool of `threads` threads, including the caller's.
    ///
    /// # Errors
    /// [`Error::Argument`] if the system refuses to start a thread.
    pub fn new(threads: usize) -> Result<Self> {
        let state = Arc::new(PoolState {
            calls: AtomicUsize::new(0),
            job: Mutex::new(None),
            wake: Condvar::new(),
            busy: AtomicUsize::new(0),
            barrier: Barrier::default(),
            queue: WorkQueue::new(threads),
        });
        let (workers, throttle) = (Vec::new(), ThreadThrottle::new(threads));
        let mut pool = Self { state, workers, threads, throttle, small_throttle: None, has_several_callers: false };
        for number in 1..threads {
            let state = pool.state.clone();
            let worker = thread::Builder::new()
                .name(format!("inkstone-{number}"))
                .spawn(move || state.serve(number))
                .map_err(|e| {
                let reason = format!("thread {number} could not be started, ask for fewer threads: {e}");
                Error::argument("threads", reason)
            })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Returns the pool with at most `threads` threads for small jobs.
    pub fn with_small_threads(mut self, threads: usize) -> Self {
        self.small_throttle = (threads < self.threads).then(|| ThreadThrottle::new(threads));
        self
    }

    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Sets whether several threads use the pool in turn. Their work between the calls occupies
    /// cores, which the throttle would mistake for the load of another process; so the throttle is
    /// then off.
    pub fn set_shared(&mut self, shared: bool) {
        self.has_several_callers = shared;
        self.throttle.reset();
        self.small_throttle.iter_mut().for_each(ThreadThrottle::reset);
    }

    /// Runs `job` on every active thread at once, and returns when all have finished.
    ///
    /// # Errors
    /// If the job panicked on a thread.
    pub fn run(&mut self, job: &ThreadJob<'_>) -> Result<()> {
        self.run_job(false, job)
    }

    /// Runs a job like [`run`](Self::run), on the threads for small jobs.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_small(&mut self, job: &ThreadJob<'_>) -> Result<()> {
        self.run_job(true, job)
    }

    fn run_job(&mut self, small: bool, job: &ThreadJob<'_>) -> Result<()> {
        let started = Instant::now();
        let throttle = self.small_throttle.as_mut().filter(|_| small).unwrap_or(&mut self.throttle);
        let active = throttle.active();
        self.state.barrier.reset(active);
        self.state.queue.reset();
        if active > 1 {
            // SAFETY: only the lifetime changes; this function does not return while a worker may
            // use the pointer.
            let pointer =
                JobPointer(unsafe { std::mem::transmute::<*const ThreadJob<'_>, *const ThreadJob<'static>>(job) });
            self.state.busy.store(active - 1, Relaxed);
            self.state.publish(Some((pointer, active)));
        }
        self.state.run_job(job, 0);
        self.state.barrier.wait_until(|| self.state.busy.load(Acquire) == 0);
        if self.state.barrier.is_broken() {
            return Err(Error::internal("a kernel panicked"));
        }
        if !self.has_several_callers {
            throttle.record(started.elapsed(), self.state.barrier.waited());
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.state.publish(None);
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its jobs, so it always ends in order.
            let _ = worker.join();
        }
    }
}

impl PoolState {
    /// Gives the workers a job, or the order to end.
    fn publish(&self, job: Option<(JobPointer, usize)>) {
        let mut slot = self.job.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = job;
        // Under the lock, so that a worker about to sleep cannot miss it.
        self.calls.fetch_add(1, Release);
        drop(slot);
        self.wake.notify_all();
    }

    /// Runs jobs on a worker until the pool ends.
    fn serve(&self, number: usize) {
        let mut seen = 0;
        while let Some((job, active)) = self.next_job(&mut seen) {
            if number < active {
                // SAFETY: `Pool::run` keeps the job alive until `busy` is decremented below.
                self.run_job(unsafe { &*job.0 }, number);
                self.busy.fetch_sub(1, Release);
            }
        }
    }

    /// Waits for a call after number `seen`, and returns its job and the number of its threads.
    fn next_job(&self, seen: &mut usize) -> Option<(JobPointer, usize)> {
        for _ in 0..YIELDS {
            for _ in 0..SPINS {
                if self.calls.load(Acquire) != *seen {
                    break;
                }
                hint::spin_loop();
            }
            if self.calls.load(Acquire) != *seen {
                break;
            }
            thread::yield_now();
        }
        let mut job = self.job.lock().unwrap_or_else(PoisonError::into_inner);
        while self.calls.load(Acquire) == *seen {
            job = self.wake.wait(job).unwrap_or_else(PoisonError::into_inner);
        }
        *seen = self.calls.load(Acquire);
        *job
    }

    fn run_job(&self, job: &ThreadJob<'_>, number: usize) {
        let threads = self.barrier.threads();
        let worker = Worker { number, threads, barrier: &self.barrier, queue: &self.queue };
        if catch_unwind(AssertUnwindSafe(|| job(worker))).is_err() {
            self.barrier.break_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        sync::{
            Mutex,
            atomic::{AtomicUsize, Ordering::*},
        },
        thread,
        time::Duration,
    };

    use super::Pool;

    #[test]
    fn shares_cover_all_items_once() {
        for threads in [1, 2, 3, 7] {
            for count in [0, 1, 2, 6, 7, 100] {
                let seen = Mutex::new(vec![0; count]);
                let mut pool = Pool::new(threads).unwrap();
                pool.run(&|worker| worker.share(count).for_each(|i| seen.lock().unwrap()[i] += 1)).unwrap();
                assert_eq!(seen.into_inner().unwrap(), vec![1; count], "{threads} threads");
            }
        }
    }

    /// Covers calls that follow at once, and calls for which the workers must wake up.
    #[test]
    fn every_thread_runs_every_job() {
        let mut pool = Pool::new(3).unwrap();
        for call in 0..3000 {
            let [ran, expected] = [AtomicUsize::new(0), AtomicUsize::new(0)];
            pool.run(&|worker| {
                ran.fetch_add(1, Relaxed);
                expected.store(worker.threads, Relaxed);
            })
            .unwrap();
            assert_eq!(ran.into_inner(), expected.into_inner());
            if call % 100 == 0 {
                thread::sleep(Duration::from_millis(2));
            }
        }
    }

    #[test]
    fn barrier_holds_every_thread_until_all_arrive() {
        let mut pool = Pool::new(3).unwrap();
        let count = AtomicUsize::new(0);
        pool.run(&|worker| {
            for round in 1..=500 {
                count.fetch_add(1, Relaxed);
                assert!(worker.wait());
                assert_eq!(count.load(Relaxed), 3 * round);
                assert!(worker.wait());
            }
        })
        .unwrap();
    }

    /// Callers in turn occupy each other's cores, for which no thread may be left out.
    #[test]
    fn throttle_is_off_while_the_pool_is_shared() {
        let mut pool = Pool::new(2).unwrap();
        let uneven = |pool: &mut Pool| {
            pool.run(&|worker| {
                if worker.number > 0 {
                    thread::sleep(Duration::from_millis(3));
                }
            })
            .unwrap();
        };
        pool.set_shared(true);
        (0..5).for_each(|_| uneven(&mut pool));
        assert_eq!(pool.throttle.active(), 2);
        pool.set_shared(false);
        (0..5).for_each(|_| uneven(&mut pool));
        assert_eq!(pool.throttle.active(), 1, "a lone caller waits for another process");
        pool.set_shared(true);
        assert_eq!(pool.throttle.active(), 2);
    }

    #[test]
    fn small_jobs_have_fewer_threads() {
        let mut pool = Pool::new(3).unwrap().with_small_threads(2);
        let threads = |pool: &mut Pool, small| {
            let seen = AtomicUsize::new(0);
            pool.run_job(small, &|worker| {
                seen.fetch_add(1, Relaxed);
                assert!(worker.wait());
                assert_eq!(seen.load(Relaxed), worker.threads);
            })
            .unwrap();
            seen.into_inner()
        };
        // All threads but those that the throttle leaves out on a busy machine.
        assert!(threads(&mut pool, false) <= 3 && threads(&mut pool, true) <= 2);
        pool.set_shared(true);
        assert_eq!([threads(&mut pool, false), threads(&mut pool, true), threads(&mut pool, false)], [3, 2, 3]);
        let mut pool = Pool::new(2).unwrap().with_small_threads(5);
        pool.set_shared(true);
        assert_eq!(threads(&mut pool, true), 2);
    }

    /// Covers each thread, before a barrier and after it.
    #[test]
    fn panic_fails_its_call_and_not_the_next() {
        for number in [0, 1, 2] {
            for round in [0, 1] {
                let mut pool = Pool::new(3).unwrap();
                let result = pool.run(&|worker| {
                    for current in 0..3 {
                        if worker.number == number && current == round {
                            panic!("the test panics on purpose");
                        }
                        if !worker.wait() {
                            return;
                        }
                    }
                });
                assert!(matches!(result, Err(crate::Error::Internal(_))), "{result:?}");
                pool.run(&|worker| assert!(worker.wait())).unwrap();
            }
        }
    }

    #[test]
    fn drop_joins_the_workers() {
        let mut pool = Pool::new(4).unwrap();
        pool.run(&|_| ()).unwrap();
        let state = pool.state.clone();
        drop(pool);
        assert_eq!(std::sync::Arc::strong_count(&state), 1, "each worker holds a reference while it lives");
    }

    /// Compares the CPU time of each worker before and after a pause.
    #[test]
    fn idle_pool_uses_no_cpu_time() {
        let nanoseconds = |thread: &String| -> Option<u64> {
            fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?.split(' ').next()?.parse().ok()
        };
        let mut pool = Pool::new(3).unwrap();
        let workers = Mutex::new(Vec::new());
        pool.run(&|worker| {
            if let Ok(path) = fs::read_link("/proc/thread-self")
                && worker.number > 0
            {
                workers.lock().unwrap().push(path.display().to_string());
            }
        })
        .unwrap();
        let workers = workers.into_inner().unwrap();
        if workers.iter().filter_map(nanoseconds).count() != 2 {
            eprintln!("skipped: this system does not report the CPU time of a thread");
            return;
        }
        thread::sleep(Duration::from_millis(200));
        let before: u64 = workers.iter().filter_map(nanoseconds).sum();
        thread::sleep(Duration::from_millis(400));
        let used = workers.iter().filter_map(nanoseconds).sum::<u64>() - before;
        assert!(used < 5_000_000, "two idle workers used {used} ns of 400 ms");
    }
}
