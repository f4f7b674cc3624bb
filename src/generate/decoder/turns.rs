//! Gives the threads that share an engine their turns.
//!
//! A thread that comes alone uses the engine itself. Threads that come while it is in use queue up, and a thread that
//! the engine has for this serves the queue while they sleep. So one step follows another without a caller that has to
//! wake up in between, and the CPU's worker threads keep a core each: their leader is always the same thread, instead
//! of one caller after another, each waking up on a core where a worker runs.

use std::{
    any::Any,
    collections::VecDeque,
    hint,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::*},
    },
    thread::{self, JoinHandle, Thread},
    time::{Duration, Instant},
};

use super::engine::Engine;

/// How long the thread waits for the next job before it lets go of the engine. Callers mostly choose a token meanwhile.
const PATIENCE: Duration = Duration::from_millis(1);
/// Turns of a waiting loop before the thread lets others run: some tens of microseconds.
const SPINS: usize = 2000;

/// An engine that several threads share. Dropping it ends its thread.
pub(super) struct Turns {
    shared: Arc<Shared>,
    /// Started when threads meet for the first time; `None` where the system has no thread left.
    thread: OnceLock<Option<JoinHandle<()>>>,
}

struct Shared {
    engine: Mutex<Engine>,
    queue: Mutex<Queue>,
    /// Tells the engine's thread that the engine is its own now, or that it is to end.
    called: Condvar,
    /// Length of the queue, to be read without its lock.
    waiting: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    user: User,
    /// Whether the thread is to end: nobody is left to call.
    ended: bool,
}

/// Who uses the engine.
#[derive(Default, PartialEq)]
enum User {
    #[default]
    Nobody,
    Caller,
    /// The engine's thread.
    Server,
}

type Act<'a> = dyn FnMut(&mut Engine) + Send + 'a;

/// A waiting caller's use of the engine.
struct Job {
    act: *mut Act<'static>,
    done: *const AtomicBool,
    caller: Thread,
}

// SAFETY: the caller keeps both alive, and touches neither, until `done` is true; `Act` is `Send`.
unsafe impl Send for Job {}

impl Turns {
    pub fn new(engine: Engine) -> Self {
        let (engine, queue) = (Mutex::new(engine), Mutex::default());
        let shared = Shared { engine, queue, called: Condvar::new(), waiting: AtomicUsize::new(0) };
        Self { shared: Arc::new(shared), thread: OnceLock::new() }
    }

    /// Uses the engine when the turn comes, in the order of the calls, and returns what `act` returns.
    pub fn take<T: Send>(&self, act: impl FnOnce(&mut Engine) -> T + Send) -> T {
        let mut queue = lock(&self.shared.queue);
        if queue.user != User::Nobody {
            return self.wait(queue, act);
        }
        queue.user = User::Caller;
        drop(queue);
        let _end = EndOfTurn(self);
        act(&mut lock(&self.shared.engine))
    }

    /// Queues up, and sleeps until `act` has been called.
    fn wait<T: Send>(&self, mut queue: MutexGuard<'_, Queue>, act: impl FnOnce(&mut Engine) -> T + Send) -> T {
        // Before there is a job, so that whoever lets go of the engine knows who serves it.
        self.start();
        let mut state = State::Waiting(act);
        let mut run = |engine: &mut Engine| state.run(engine);
        let done = AtomicBool::new(false);
        let act: *mut Act<'_> = &mut run;
        // SAFETY: only the lifetime changes; this function does not return before `done` says that nobody uses it.
        let act = unsafe { std::mem::transmute::<*mut Act<'_>, *mut Act<'static>>(act) };
        queue.jobs.push_back(Job { act, done: &done, caller: thread::current() });
        self.shared.waiting.store(queue.jobs.len(), Release);
        drop(queue);
        while !done.load(Acquire) {
            thread::park();
        }
        match state {
            State::Done(result) => result,
            State::Panicked(panic) => resume_unwind(panic),
            State::Waiting(_) | State::Running => unreachable!("a job is done after it was run"),
        }
    }

    /// Starts the engine's thread, unless that was done.
    fn start(&self) {
        self.thread.get_or_init(|| {
            let shared = self.shared.clone();
            thread::Builder::new().name("inkstone-engine".into()).spawn(move || shared.serve()).ok()
        });
    }
}

/// A job on its way from its caller and back.
enum State<A, T> {
    Waiting(A),
    Running,
    Done(T),
    Panicked(Box<dyn Any + Send>),
}

impl<A: FnOnce(&mut Engine) -> T, T> State<A, T> {
    fn run(&mut self, engine: &mut Engine) {
        if let Self::Waiting(act) = std::mem::replace(self, Self::Running) {
            *self = match catch_unwind(AssertUnwindSafe(|| act(engine))) {
                Ok(result) => Self::Done(result),
                Err(panic) => Self::Panicked(panic),
            };
        }
    }
}

/// Lets the next one use the engine, also after a panic.
struct EndOfTurn<'a>(&'a Turns);

impl Drop for EndOfTurn<'_> {
    fn drop(&mut self) {
        let Turns { shared, thread } = self.0;
        let mut queue = lock(&shared.queue);
        queue.user = if queue.jobs.is_empty() { User::Nobody } else { User::Server };
        if queue.jobs.is_empty() {
            return;
        }
        drop(queue);
        match thread.get() {
            Some(Some(_)) => shared.called.notify_one(),
            // The system had no thread left.
            Some(None) | None => shared.drain(),
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        lock(&self.shared.queue).ended = true;
        self.shared.called.notify_one();
        if let Some(Some(thread)) = self.thread.take() {
            // It catches the panics of its jobs, so it ends in order.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The life of the engine's thread.
    fn serve(&self) {
        loop {
            let mut queue = lock(&self.queue);
            while queue.user != User::Server {
                if queue.ended {
                    return;
                }
                queue = self.called.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            drop(queue);
            self.drain();
        }
    }

    /// Runs the jobs that wait and those that follow, until they stop coming or come from one thread alone.
    fn drain(&self) {
        let mut engine = lock(&self.engine);
        engine.executable.set_shared(true);
        let mut last = None;
        loop {
            let mut queue = lock(&self.queue);
            let Some(Job { act, done, caller }) = queue.jobs.pop_front() else {
                engine.executable.set_shared(false);
                queue.user = User::Nobody;
                return;
            };
            self.waiting.store(queue.jobs.len(), Release);
            drop(queue);
            // SAFETY: the caller waits for `done`, and keeps what `act` points to until then.
            unsafe { (*act)(&mut engine) };
            // SAFETY: as above; after this nothing of the caller's is used but the handle, which is our own.
            unsafe { (*done).store(true, Release) };
            caller.unpark();
            if last.replace(caller.id()) != Some(caller.id()) {
                self.await_job();
            }
        }
    }

    /// Waits a moment for a job.
    fn await_job(&self) {
        let started = Instant::now();
        while self.waiting.load(Acquire) == 0 && started.elapsed() < PATIENCE {
            for _ in 0..SPINS {
                if self.waiting.load(Acquire) > 0 {
                    return;
                }
                hint::spin_loop();
            }
            thread::yield_now();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::{Arc, Mutex, mpsc},
        thread,
        time::Duration,
    };

    use super::{super::engine::Engine, Turns};
    use crate::{
        Result,
        backend::{Executable, Step},
        graph::Builder,
        kv_cache::{CacheLayout, CacheType, KvCache},
    };

    /// Takes note of whether it is shared, each time that it is told.
    struct Noting(Arc<Mutex<Vec<bool>>>);

    impl Executable for Noting {
        fn run(&mut self, _: &Step<'_>) -> Result<&[f32]> {
            Ok(&[])
        }

        fn set_shared(&mut self, shared: bool) {
            self.0.lock().unwrap().push(shared);
        }
    }

    fn turns() -> (Turns, Arc<Mutex<Vec<bool>>>) {
        let mut builder = Builder::new();
        let tokens = builder.tokens();
        let table = builder.weight("table", crate::DType::F32, 4, 4);
        let row = builder.embed(table, tokens);
        let layout = CacheLayout::new(&builder.finish(row).unwrap(), CacheType::F32).unwrap();
        let notes = Arc::<Mutex<Vec<bool>>>::default();
        (Turns::new(Engine::new(Box::new(Noting(notes.clone())), KvCache::new(&layout, 8))), notes)
    }

    /// Keeps the engine in use until `jobs` more threads wait for it; returns the names of the threads in their order.
    fn meet(turns: &Turns, jobs: usize) -> Vec<Option<String>> {
        let names = Mutex::new(vec![]);
        thread::scope(|scope| {
            turns.take(|_| {
                for job in 0..jobs {
                    let names = &names;
                    scope.spawn(move || {
                        turns.take(|_| names.lock().unwrap().push((job, thread::current().name().map(String::from))))
                    });
                    while turns.shared.waiting.load(super::Acquire) <= job {
                        thread::yield_now();
                    }
                }
            });
        });
        let names = names.into_inner().unwrap();
        assert!(names.iter().map(|(job, _)| *job).eq(0..jobs), "in the order in which they came");
        names.into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn one_thread_alone_uses_the_engine_itself() {
        let (turns, notes) = turns();
        for _ in 0..100 {
            assert_eq!(turns.take(|_| thread::current().id()), thread::current().id());
        }
        assert!(turns.thread.get().is_none() && notes.lock().unwrap().is_empty());
    }

    #[test]
    fn threads_that_meet_are_served_in_order_by_the_engines_thread() {
        let (turns, notes) = turns();
        for round in 1..=20 {
            let names = meet(&turns, 3);
            assert!(names.iter().all(|name| name.as_deref() == Some("inkstone-engine")), "{names:?}");
            // Alone again, after a few turns in which the thread may still wait for more.
            let alone = (0..1000).any(|_| {
                thread::sleep(Duration::from_micros(100));
                turns.take(|_| thread::current().id()) == thread::current().id()
            });
            assert!(alone, "round {round}");
        }
        let notes = notes.lock().unwrap();
        assert!(notes.chunks(2).all(|notes| notes == [true, false]), "{notes:?}");
    }

    #[test]
    fn a_panic_reaches_its_own_caller_alone() {
        let (turns, _) = turns();
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            turns.take(|_| {
                scope.spawn(|| {
                    let result = catch_unwind(AssertUnwindSafe(|| turns.take(|_| panic!("as the test wants"))));
                    sender.send(result.is_err()).unwrap();
                });
                while turns.shared.waiting.load(super::Acquire) == 0 {
                    thread::yield_now();
                }
            });
            assert!(receiver.recv().unwrap());
        });
        assert!(catch_unwind(AssertUnwindSafe(|| turns.take(|_| panic!("as the test wants")))).is_err());
        assert_eq!(turns.take(|_| 7), 7);
    }

    /// Each of many calls from four threads happens once.
    #[test]
    fn no_call_is_lost() {
        let (turns, _) = turns();
        let count = Mutex::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..2000).for_each(|_| turns.take(|_| *count.lock().unwrap() += 1)));
            }
        });
        assert_eq!(count.into_inner().unwrap(), 8000);
        let shared = turns.shared.clone();
        drop(turns);
        assert_eq!(Arc::strong_count(&shared), 1, "the engine's thread has ended");
    }
}
