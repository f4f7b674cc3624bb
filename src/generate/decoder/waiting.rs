//! Keeps the steps for which callers wait, and computes them together.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering::Release},
    thread::Thread,
    time::{Duration, Instant},
};

use super::{call::StepCall, engine::Engine, shared_call::SharedCall};
use crate::{Error, Result};

/// The part of the last step's time, as a divisor, that a step waits for the callers of the last
/// one. Meanwhile they choose a token.
const PATIENCE: u32 = 8;

/// The steps for which callers wait.
#[derive(Default)]
pub(super) struct WaitingSteps {
    calls: Vec<SharedCall<'static, 'static>>,
    /// The callers of `calls`.
    ends: Vec<EndOfStep>,
    /// Number of callers that are expected to want the next step.
    expected: usize,
    /// Whether the executable knows that callers work while steps run.
    is_shared: bool,
    /// The end of the last step, and its time.
    last: Option<(Instant, Duration)>,
}

/// The caller of a step, and the place for the result.
pub(super) struct EndOfStep {
    pub result: *mut Option<Result<()>>,
    pub done: *const AtomicBool,
    pub caller: Thread,
}

impl WaitingSteps {
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns the number of calls that take part in steps now.
    pub fn running(&self) -> usize {
        self.calls.len() - self.short_of_memory()
    }

    /// Returns the number of calls that wait for memory.
    pub fn short_of_memory(&self) -> usize {
        self.calls.iter().filter(|call| call.waits).count()
    }

    /// Returns whether the executable knows that callers work while steps run.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Expects further callers to want the next step.
    pub fn expect(&mut self, callers: usize) {
        self.expected += callers;
    }

    /// Adds a call at its place.
    pub fn push(&mut self, engine: &mut Engine, call: &'static mut StepCall<'static>, end: EndOfStep) {
        let call = SharedCall::new(call, engine);
        let place = self.calls.partition_point(|other| other.due <= call.due);
        self.calls.insert(place, call);
        self.ends.insert(place, end);
    }

    /// Returns whether callers of the last step may soon want the next one: they choose a token
    /// now.
    pub fn awaits_others(&self) -> bool {
        self.running() < self.expected && !self.patience().is_zero()
    }

    /// Returns how long to wait for the callers of the last step.
    pub fn patience(&self) -> Duration {
        self.last.map_or(Duration::ZERO, |(end, time)| (time / PATIENCE).saturating_sub(end.elapsed()))
    }

    /// Tells the executable whether most callers work while the next step runs.
    pub fn set_shared(&mut self, engine: &mut Engine) {
        let is_shared = 2 * self.running() < self.expected;
        if mem::replace(&mut self.is_shared, is_shared) != is_shared {
            engine.executable.set_shared(is_shared);
        }
    }

    /// Computes a step, and lets the callers go on whose calls have ended, after `publish`. Returns
    /// false if all calls wait for memory.
    pub fn run(&mut self, engine: &mut Engine, publish: impl FnOnce(&Engine, &Self)) -> bool {
        let started = Instant::now();
        let calls = &mut self.calls;
        let goes_on = catch_unwind(AssertUnwindSafe(|| engine.step_together(calls))).unwrap_or_else(|_| {
            let failed = || Some(Err(Error::internal("a step panicked")));
            calls.iter_mut().for_each(|call| call.result = failed());
            true
        });
        if goes_on {
            self.last = Some((Instant::now(), started.elapsed()));
            self.expected = self.running();
        }
        publish(engine, self);
        let Self { calls, ends, .. } = self;
        let mut index = 0;
        while let Some(call) = calls.get_mut(index) {
            let Some(found) = call.result.take() else {
                index += 1;
                continue;
            };
            calls.remove(index).end(engine);
            let EndOfStep { result, done, caller } = ends.remove(index);
            // SAFETY: the caller waits for `done`, and keeps the pointee of `result` alive until
            // then. Nothing else refers to its call any more.
            unsafe {
                *result = Some(found);
                end(done, &caller);
            }
        }
        goes_on
    }
}

/// Lets a caller go on.
///
/// # Safety
/// The caller waits for `done`, which it keeps alive until it is true.
pub(super) unsafe fn end(done: *const AtomicBool, caller: &Thread) {
    // SAFETY: by the caller of this function.
    unsafe { (*done).store(true, Release) };
    caller.unpark();
}
