//! Keeps the steps for which callers wait, and computes them together.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering::Release},
    thread::Thread,
    time::{Duration, Instant},
};

use super::{call::StepCall, engine::Engine, shared::SharedCall};
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

    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns whether the executable knows that callers work while steps run.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Expects further callers to want the next step.
    pub fn expect(&mut self, callers: usize) {
        self.expected += callers;
    }

    pub fn push(&mut self, call: &'static mut StepCall<'static>, end: EndOfStep) {
        self.calls.push(SharedCall::new(call));
        self.ends.push(end);
    }

    /// Returns whether callers of the last step may soon want the next one: they choose a token
    /// now.
    pub fn awaits_others(&self) -> bool {
        self.calls.len() < self.expected && !self.patience().is_zero()
    }

    /// Returns how long to wait for the callers of the last step.
    pub fn patience(&self) -> Duration {
        self.last.map_or(Duration::ZERO, |(end, time)| (time / PATIENCE).saturating_sub(end.elapsed()))
    }

    /// Tells the executable whether most callers work while the next step runs.
    pub fn set_shared(&mut self, engine: &mut Engine) {
        let is_shared = 2 * self.calls.len() < self.expected;
        if mem::replace(&mut self.is_shared, is_shared) != is_shared {
            engine.executable.set_shared(is_shared);
        }
    }

    /// Computes a step, and lets the callers go on whose calls have ended.
    pub fn run(&mut self, engine: &mut Engine) {
        let started = Instant::now();
        let Self { calls, ends, .. } = self;
        if catch_unwind(AssertUnwindSafe(|| engine.step_together(calls))).is_err() {
            let failed = || Some(Err(Error::internal("a step panicked")));
            calls.iter_mut().for_each(|call| call.result = failed());
        }
        self.last = Some((Instant::now(), started.elapsed()));
        self.expected = calls.len();
        let mut index = 0;
        while let Some(call) = calls.get_mut(index) {
            let Some(found) = call.result.take() else {
                index += 1;
                continue;
            };
            drop(calls.remove(index));
            let EndOfStep { result, done, caller } = ends.remove(index);
            // SAFETY: the caller waits for `done`, and keeps the pointee of `result` alive until
            // then. Nothing else refers to its call any more.
            unsafe {
                *result = Some(found);
                end(done, &caller);
            }
        }
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
