//! Schedules the threads that share an engine.
//!
//! A thread that finds the engine idle uses it directly. Threads that find it in use wait in a
//! queue, which a thread of the engine serves. It computes the steps that wait at a moment as one
//! step. This way, one step follows another without waiting for a caller to wake up, and the CPU's
//! worker threads keep their cores, because they always have the same leader. With a mutex, each
//! caller would wake up on a core where a worker runs.

mod job;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    hint, mem,
    panic::resume_unwind,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::*},
    },
    thread::{self, JoinHandle, ThreadId},
    time::{Duration, Instant},
};

use self::job::{Act, Job, JobState, Work};
use super::{
    admission::Shortage,
    call::StepCall,
    engine::Engine,
    ticket::Arrivals,
    waiting::{EndOfStep, WaitingSteps, end},
};
use crate::{Error, Result, generate::Statistics};

/// The time that the engine's thread waits for the next job before it releases the engine.
/// Meanwhile callers usually choose a token.
const IDLE_TIMEOUT: Duration = Duration::from_millis(1);
/// The time since a thread's step within which it is likely to want the next one.
const BESIDE: Duration = Duration::from_millis(250);
/// The time after which calls that wait for memory try again, at the latest: requests that have it
/// may have paused.
const RETRY: Duration = Duration::from_millis(10);
/// Number of spins before the waiting thread yields: some tens of microseconds.
const SPINS: usize = 2000;

/// An engine that several threads share. Dropping it ends the engine's thread.
pub(super) struct Turns {
    shared: Arc<SharedEngine>,
    /// The engine's thread, started when the queue is first needed; `None` inside if the system has
    /// no thread left.
    thread: OnceLock<Option<JoinHandle<()>>>,
    arrivals: Arrivals,
}

struct SharedEngine {
    engine: Mutex<Engine>,
    queue: Mutex<Queue>,
    /// Signals the engine's thread that it may use the engine, or that it has to end.
    called: Condvar,
    /// Length of the queue, readable without its lock.
    waiting: AtomicUsize,
    /// Number of calls that the engine's thread has taken from the queue for steps.
    running: AtomicUsize,
    /// The work so far, which callers read while a step runs.
    statistics: Mutex<Statistics>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    user: EngineUser,
    /// Whether the engine's thread has to end.
    ended: bool,
    /// Whether the engine's thread waits for a job or the end of a request.
    sleeps: bool,
    /// The caller of the last step that had the engine alone, and the time.
    last: Option<(ThreadId, Instant)>,
}

impl Queue {
    /// Returns whether another thread has just computed a step, and takes note of this one.
    fn is_beside_others(&mut self) -> bool {
        let (now, caller) = (Instant::now(), thread::current().id());
        let last = self.last.replace((caller, now));
        last.is_some_and(|(other, at)| other != caller && now - at < BESIDE)
    }
}

/// The current user of the engine.
#[derive(Default, PartialEq)]
enum EngineUser {
    #[default]
    Nobody,
    Caller,
    /// The engine's thread.
    Server,
}

impl Turns {
    pub fn new(engine: Engine) -> Self {
        let (engine, queue) = (Mutex::new(engine), Mutex::default());
        let shared = SharedEngine {
            engine,
            queue,
            called: Condvar::new(),
            waiting: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            statistics: Mutex::default(),
        };
        Self { shared: Arc::new(shared), thread: OnceLock::new(), arrivals: Arrivals::new() }
    }

    /// Returns the numbering of requests.
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Calls `act` with the engine, in the order of the calls from all threads, and returns its
    /// result.
    pub fn with_engine<T: Send>(&self, act: impl FnOnce(&mut Engine) -> T + Send) -> T {
        let act = |engine: &mut Engine| {
            let result = act(engine);
            self.shared.publish(engine, 0);
            result
        };
        let mut queue = lock(&self.shared.queue);
        if queue.user != EngineUser::Nobody {
            return self.wait(queue, act);
        }
        queue.user = EngineUser::Caller;
        drop(queue);
        let _end = EndOfTurn(self);
        act(&mut lock(&self.shared.engine))
    }

    /// Adds `act` to the queue, and sleeps until it has run.
    fn wait<T: Send>(&self, queue: MutexGuard<'_, Queue>, act: impl FnOnce(&mut Engine) -> T + Send) -> T {
        // Started before the job is queued, so that the thread which releases the engine finds it.
        self.start();
        let mut state = JobState::Waiting(act);
        let mut run = |engine: &mut Engine| state.run(engine);
        let done = AtomicBool::new(false);
        let act: *mut Act<'_> = &mut run;
        // SAFETY: only the lifetime changes. This function returns after `done` is true, and then
        // `act` is not used any more.
        let act = unsafe { mem::transmute::<*mut Act<'_>, *mut Act<'static>>(act) };
        self.wait_in(queue, Work::Act(act), &done);
        match state {
            JobState::Done(result) => result,
            JobState::Panicked(panic) => resume_unwind(panic),
            JobState::Waiting(_) | JobState::Running => unreachable!("a job is done after it has run"),
        }
    }

    /// Computes a call, in the order of the calls from all threads, or in common steps with the
    /// calls of other threads.
    pub fn step(&self, call: &mut StepCall<'_>) -> Result<()> {
        let mut queue = lock(&self.shared.queue);
        if queue.user == EngineUser::Nobody {
            let is_beside = queue.is_beside_others() && call.is_prompt() && self.start();
            queue.user = if is_beside { EngineUser::Server } else { EngineUser::Caller };
            if !is_beside {
                drop(queue);
                match self.step_alone(call) {
                    Err(Shortage::Waits(_)) if self.start() => {}
                    done => return done.map_err(Shortage::into_error),
                }
                queue = lock(&self.shared.queue);
                if queue.user == EngineUser::Nobody {
                    queue.user = EngineUser::Server;
                }
            }
            // The engine's thread computes it in pieces, between the steps of the others, or when
            // there is memory.
            self.shared.called.notify_one();
        } else {
            self.start();
        }
        let (mut result, done) = (None, AtomicBool::new(false));
        let call: *mut StepCall<'_> = call;
        // SAFETY: only the lifetime changes. This function returns after `done` is true, and then
        // `call` is not used any more.
        let call = unsafe { mem::transmute::<*mut StepCall<'_>, *mut StepCall<'static>>(call) };
        self.wait_in(queue, Work::Step(call, &mut result), &done);
        result.unwrap_or_else(|| Err(Error::internal("a step has ended without a result")))
    }

    /// Computes a call on the caller's thread.
    fn step_alone(&self, call: &mut StepCall<'_>) -> Result<(), Shortage> {
        let _end = EndOfTurn(self);
        let mut engine = lock(&self.shared.engine);
        let done = call.run_alone(&mut engine);
        engine.admission.set_in_use(&call.claim(), false);
        self.shared.publish(&engine, 0);
        done
    }

    /// Returns a snapshot of the work, without waiting for the current step.
    pub fn statistics(&self) -> Statistics {
        let queue = lock(&self.shared.queue);
        let running = match queue.user {
            EngineUser::Nobody => 0,
            EngineUser::Caller => 1,
            EngineUser::Server => self.shared.running.load(Acquire),
        };
        Statistics { running, waiting: queue.jobs.len(), ..*lock(&self.shared.statistics) }
    }

    /// Tells the engine's thread that a request has ended.
    pub fn wake(&self) {
        if lock(&self.shared.queue).sleeps {
            self.shared.called.notify_one();
        }
    }

    /// Adds a job to the queue, and sleeps until it has ended.
    fn wait_in(&self, mut queue: MutexGuard<'_, Queue>, work: Work, done: &AtomicBool) {
        queue.jobs.push_back(Job { work, done, caller: thread::current() });
        self.shared.waiting.store(queue.jobs.len(), Release);
        if queue.sleeps {
            self.shared.called.notify_one();
        }
        drop(queue);
        while !done.load(Acquire) {
            thread::park();
        }
    }

    /// Starts the engine's thread if it is not running, and returns whether it runs.
    fn start(&self) -> bool {
        let thread = self.thread.get_or_init(|| {
            let shared = self.shared.clone();
            thread::Builder::new().name("inkstone-engine".into()).spawn(move || shared.serve()).ok()
        });
        thread.is_some()
    }
}

/// Passes the engine to the next user when it is dropped, even by a panic.
struct EndOfTurn<'a>(&'a Turns);

impl Drop for EndOfTurn<'_> {
    fn drop(&mut self) {
        let Turns { shared, thread, .. } = self.0;
        let mut queue = lock(&shared.queue);
        queue.user = if queue.jobs.is_empty() { EngineUser::Nobody } else { EngineUser::Server };
        if queue.jobs.is_empty() {
            return;
        }
        drop(queue);
        match thread.get() {
            Some(Some(_)) => shared.called.notify_one(),
            // Without a thread of the engine, the caller serves the queue.
            Some(None) | None => shared.drain(),
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        lock(&self.shared.queue).ended = true;
        self.shared.called.notify_one();
        if let Some(Some(thread)) = self.thread.take() {
            // The thread catches the panics of its jobs, so it does not panic.
            let _ = thread.join();
        }
    }
}

impl SharedEngine {
    /// Runs the engine's thread.
    fn serve(&self) {
        loop {
            let mut queue = lock(&self.queue);
            while queue.user != EngineUser::Server {
                if queue.ended {
                    return;
                }
                queue = self.called.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            drop(queue);
            self.drain();
        }
    }

    /// Runs the queued jobs and the jobs that follow, until none arrives or all come from one
    /// thread.
    fn drain(&self) {
        let mut engine = lock(&self.engine);
        let (mut steps, mut last, mut is_alone) = (WaitingSteps::default(), None, false);
        loop {
            for Job { work, done, caller } in self.take_jobs() {
                is_alone = last.replace(caller.id()) == Some(caller.id());
                match work {
                    Work::Act(act) => {
                        // SAFETY: the caller waits for `done`, and keeps the pointee of `act` alive
                        // until then.
                        unsafe { (*act)(&mut engine) };
                        // SAFETY: as above.
                        unsafe { end(done, &caller) };
                    }
                    Work::Step(call, result) => {
                        // SAFETY: as above, for the pointee of `call`.
                        let call = unsafe { &mut *call };
                        steps.push(&mut engine, call, EndOfStep { result, done, caller });
                    }
                }
            }
            if steps.is_empty() {
                if (is_alone || !self.await_job(IDLE_TIMEOUT)) && self.release(&mut engine, &steps) {
                    return;
                }
            } else if !steps.awaits_others() || !self.await_job(steps.patience()) {
                self.running.store(steps.running(), Release);
                steps.set_shared(&mut engine);
                let goes_on = steps.run(&mut engine, |engine, steps| self.publish(engine, steps.short_of_memory()));
                self.running.store(steps.running(), Release);
                if goes_on {
                    steps.expect(self.waiting.load(Acquire));
                } else {
                    self.sleep();
                }
            }
        }
    }

    /// Waits for a job, or for the end of a request.
    fn sleep(&self) {
        let mut queue = lock(&self.queue);
        if queue.jobs.is_empty() {
            queue.sleeps = true;
            queue = self.called.wait_timeout(queue, RETRY).unwrap_or_else(PoisonError::into_inner).0;
            queue.sleeps = false;
        }
    }

    /// Lets callers read the statistics of the engine. `short_of_memory` calls wait for memory.
    fn publish(&self, engine: &Engine, short_of_memory: usize) {
        *lock(&self.statistics) = Statistics { short_of_memory, ..engine.statistics() };
    }

    fn take_jobs(&self) -> VecDeque<Job> {
        let mut queue = lock(&self.queue);
        self.waiting.store(0, Release);
        mem::take(&mut queue.jobs)
    }

    /// Releases the engine if no job waits, and returns whether it did.
    fn release(&self, engine: &mut Engine, steps: &WaitingSteps) -> bool {
        let mut queue = lock(&self.queue);
        if !queue.jobs.is_empty() {
            return false;
        }
        if steps.is_shared() {
            engine.executable.set_shared(false);
        }
        queue.user = EngineUser::Nobody;
        true
    }

    /// Waits for a job, at most for `limit`, and returns whether there is one.
    fn await_job(&self, limit: Duration) -> bool {
        let started = Instant::now();
        while self.waiting.load(Acquire) == 0 && started.elapsed() < limit {
            for _ in 0..SPINS {
                if self.waiting.load(Acquire) > 0 {
                    return true;
                }
                hint::spin_loop();
            }
            thread::yield_now();
        }
        self.waiting.load(Acquire) > 0
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
