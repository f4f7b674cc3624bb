//! Persistent threads that walk a plan together.
//!
//! One call hands every thread the same closure; the barrier inside it is what they meet at between steps. Between
//! calls a thread spins for a moment, because the next token is about to come, and then sleeps: a model that is not
//! running costs no CPU.

use std::{
    hint,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    throttle::Crew,
    work_stealing::{self, Shares},
};
use crate::{Error, Result};

/// Turns of a waiting loop before the thread lets others run: some tens of microseconds.
const SPINS: usize = 2000;
/// How often a thread that waits for work lets others run before it sleeps.
const YIELDS: usize = 50;

/// What each thread of a call does.
type Work<'a> = dyn Fn(Worker<'_>) + Sync + 'a;

/// One of the threads that do a call's work.
#[derive(Clone, Copy)]
pub(crate) struct Worker<'a> {
    /// Its number, from 0.
    pub number: usize,
    /// How many take part.
    pub threads: usize,
    barrier: &'a Barrier,
    shares: &'a Shares,
}

impl Worker<'_> {
    /// Waits for the other threads; `false` where one of them panicked, after which this one must return.
    pub fn wait(&self) -> bool {
        self.barrier.wait()
    }

    /// This thread's share of `count` things, as a range.
    pub fn share(&self, count: usize) -> Range<usize> {
        work_stealing::share(count, self.number, self.threads)
    }

    /// Calls `work` with parts of up to `step` of `count` things, each given out once over all threads: see
    /// [`Shares::each`].
    pub fn each_part(&self, task: usize, count: usize, step: usize, work: impl FnMut(Range<usize>)) {
        self.shares.each(task, [self.number, self.threads], [count, step], work);
    }
}

/// Threads, the caller's being number 0.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    threads: usize,
    crew: Crew,
    /// Whether several threads have it run their work.
    shared_by_callers: bool,
}

struct Shared {
    /// Counts the calls; a worker waits for it to change.
    calls: AtomicUsize,
    /// The call's work and how many threads do it, or `None` when the pool ends.
    work: Mutex<Option<(WorkPointer, usize)>>,
    wake: Condvar,
    /// Workers still busy with the call.
    busy: AtomicUsize,
    barrier: Barrier,
    shares: Shares,
}

#[derive(Clone, Copy)]
struct WorkPointer(*const Work<'static>);

// SAFETY: `Pool::run` keeps what it points to alive until every worker is done with it, and `Work` is `Sync`.
unsafe impl Send for WorkPointer {}

impl Pool {
    /// A pool of `threads` threads, of which one is the caller's.
    pub fn new(threads: usize) -> Result<Self> {
        let shared = Arc::new(Shared {
            calls: AtomicUsize::new(0),
            work: Mutex::new(None),
            wake: Condvar::new(),
            busy: AtomicUsize::new(0),
            barrier: Barrier::default(),
            shares: Shares::new(threads),
        });
        let (workers, crew) = (Vec::new(), Crew::new(threads));
        let mut pool = Self { shared, workers, threads, crew, shared_by_callers: false };
        for number in 1..threads {
            let shared = pool.shared.clone();
            let worker = thread::Builder::new()
                .name(format!("inkstone-{number}"))
                .spawn(move || shared.serve(number))
                .map_err(|e| Error::argument("threads", format!("thread {number} could not be started: {e}")))?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Says whether several threads have it run their work. Between its calls each of them takes a core from the calls
    /// of the others, which looks as if another process held it: no thread is left out for that.
    pub fn set_shared(&mut self, shared: bool) {
        self.shared_by_callers = shared;
        self.crew = Crew::new(self.threads);
    }

    /// Calls `work` on every thread that takes part, at once, and returns when all have finished.
    pub fn run(&mut self, work: &Work<'_>) -> Result<()> {
        let started = Instant::now();
        let active = self.crew.active();
        self.shared.barrier.reset(active);
        self.shared.shares.reset();
        if active > 1 {
            // SAFETY: only the lifetime changes; this function does not return while a worker may use the pointer.
            let pointer = WorkPointer(unsafe { std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work) });
            self.shared.busy.store(active - 1, Relaxed);
            self.shared.hand_out(Some((pointer, active)));
        }
        self.shared.perform(work, 0);
        self.shared.barrier.wait_until(|| self.shared.busy.load(Acquire) == 0);
        if self.shared.barrier.broken.load(Acquire) {
            return Err(Error::Unsupported("a kernel panicked; this is a bug in inkstone".into()));
        }
        if !self.shared_by_callers {
            let waited = Duration::from_nanos(self.shared.barrier.waited.load(Relaxed));
            self.crew.note(started.elapsed(), waited);
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.hand_out(None);
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its work, so it ends in order.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn hand_out(&self, work: Option<(WorkPointer, usize)>) {
        let mut slot = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = work;
        // Under the lock, so that a worker about to sleep cannot miss it.
        self.calls.fetch_add(1, Release);
        drop(slot);
        self.wake.notify_all();
    }

    /// A worker's life.
    fn serve(&self, number: usize) {
        let mut seen = 0;
        while let Some((work, active)) = self.next(&mut seen) {
            if number < active {
                // SAFETY: the pointer is good until `busy` is counted down below.
                self.perform(unsafe { &*work.0 }, number);
                self.busy.fetch_sub(1, Release);
            }
        }
    }

    fn next(&self, seen: &mut usize) -> Option<(WorkPointer, usize)> {
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
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        while self.calls.load(Acquire) == *seen {
            work = self.wake.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
        *seen = self.calls.load(Acquire);
        *work
    }

    fn perform(&self, work: &Work<'_>, number: usize) {
        let threads = self.barrier.threads.load(Relaxed);
        let worker = Worker { number, threads, barrier: &self.barrier, shares: &self.shares };
        if catch_unwind(AssertUnwindSafe(|| work(worker))).is_err() {
            self.barrier.broken.store(true, Release);
        }
    }
}

/// Where the threads of a call wait for each other.
#[derive(Default)]
struct Barrier {
    threads: AtomicUsize,
    arrived: AtomicUsize,
    round: AtomicUsize,
    /// A thread panicked and will not arrive any more.
    broken: AtomicBool,
    /// Nanoseconds of this call that threads have waited, all together, where it was more than a moment.
    waited: AtomicU64,
}

impl Barrier {
    /// Makes it ready for a call of so many threads, also after one that panicked.
    fn reset(&self, threads: usize) {
        self.threads.store(threads, Relaxed);
        self.arrived.store(0, Relaxed);
        self.broken.store(false, Relaxed);
        self.waited.store(0, Relaxed);
    }

    /// Waits for all threads; `false` where one of them panicked.
    fn wait(&self) -> bool {
        let round = self.round.load(Acquire);
        if self.arrived.fetch_add(1, AcqRel) + 1 == self.threads.load(Relaxed) {
            self.arrived.store(0, Relaxed);
            self.round.store(round.wrapping_add(1), Release);
        } else {
            self.wait_until(|| self.round.load(Acquire) != round || self.broken.load(Acquire));
        }
        !self.broken.load(Acquire)
    }

    /// Spins until `done`, letting other threads run when that takes long: one of ours may need this very core.
    fn wait_until(&self, done: impl Fn() -> bool) {
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
    fn shares_are_all_there_is() {
        for threads in [1, 2, 3, 7] {
            for count in [0, 1, 2, 6, 7, 100] {
                let seen = Mutex::new(vec![0; count]);
                let mut pool = Pool::new(threads).unwrap();
                pool.run(&|worker| worker.share(count).for_each(|i| seen.lock().unwrap()[i] += 1)).unwrap();
                assert_eq!(seen.into_inner().unwrap(), vec![1; count], "{threads} threads");
            }
        }
    }

    /// Calls that follow at once, and calls that find the workers asleep.
    #[test]
    fn no_call_is_missed() {
        let mut pool = Pool::new(3).unwrap();
        for call in 0..3000 {
            let [came, wanted] = [AtomicUsize::new(0), AtomicUsize::new(0)];
            pool.run(&|worker| {
                came.fetch_add(1, Relaxed);
                wanted.store(worker.threads, Relaxed);
            })
            .unwrap();
            assert_eq!(came.into_inner(), wanted.into_inner());
            if call % 100 == 0 {
                thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Nobody passes a barrier before all have come to it.
    #[test]
    fn the_barrier_holds() {
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

    /// Callers that hold each other's cores are no reason to leave a thread out, and none is left out afterwards.
    #[test]
    fn shared_calls_keep_every_thread() {
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
        assert_eq!(pool.crew.active(), 2);
        pool.set_shared(false);
        (0..5).for_each(|_| uneven(&mut pool));
        assert_eq!(pool.crew.active(), 1, "a caller that is alone waits for another process");
        pool.set_shared(true);
        assert_eq!(pool.crew.active(), 2);
    }

    /// Whoever panics, before a barrier or after it, the call ends with an error and the next one works.
    #[test]
    fn a_panic_ends_the_call_alone() {
        for number in [0, 1, 2] {
            for round in [0, 1] {
                let mut pool = Pool::new(3).unwrap();
                let result = pool.run(&|worker| {
                    for at in 0..3 {
                        if worker.number == number && at == round {
                            panic!("as the test wants");
                        }
                        if !worker.wait() {
                            return;
                        }
                    }
                });
                assert!(result.unwrap_err().to_string().contains("panicked"));
                pool.run(&|worker| assert!(worker.wait())).unwrap();
            }
        }
    }

    #[test]
    fn dropping_joins() {
        let mut pool = Pool::new(4).unwrap();
        pool.run(&|_| ()).unwrap();
        let shared = pool.shared.clone();
        drop(pool);
        assert_eq!(std::sync::Arc::strong_count(&shared), 1, "each worker holds one while it lives");
    }

    /// The time that the scheduler gave each worker while nothing ran.
    #[test]
    fn an_idle_pool_costs_nothing() {
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
            eprintln!("skipped: this system does not say how much time a thread has used");
            return;
        }
        thread::sleep(Duration::from_millis(200));
        let before: u64 = workers.iter().filter_map(nanoseconds).sum();
        thread::sleep(Duration::from_millis(400));
        let used = workers.iter().filter_map(nanoseconds).sum::<u64>() - before;
        assert!(used < 5_000_000, "two idle workers used {used} ns of 400 ms");
    }
}
