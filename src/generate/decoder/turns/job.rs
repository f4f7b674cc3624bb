//! Holds the work of the callers that wait for the engine.

use std::{
    any::Any,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::AtomicBool,
    thread::Thread,
};

use super::super::{call::StepCall, engine::Engine};
use crate::Result;

pub(super) type Act<'a> = dyn FnMut(&mut Engine) + Send + 'a;

/// The work of a waiting caller.
pub(super) struct Job {
    pub work: Work,
    pub done: *const AtomicBool,
    pub caller: Thread,
}

/// The function that a caller wants to run, or its step with the place of the result.
pub(super) enum Work {
    Act(*mut Act<'static>),
    Step(*mut StepCall<'static>, *mut Option<Result<()>>),
}

// SAFETY: the caller keeps all pointees alive, and does not access them, until `done` is true;
// `Act` and `StepCall` are `Send`.
unsafe impl Send for Job {}

/// The state of a job and its result.
pub(super) enum JobState<A, T> {
    Waiting(A),
    Running,
    Done(T),
    Panicked(Box<dyn Any + Send>),
}

impl<A: FnOnce(&mut Engine) -> T, T> JobState<A, T> {
    pub fn run(&mut self, engine: &mut Engine) {
        if let Self::Waiting(act) = mem::replace(self, Self::Running) {
            *self = match catch_unwind(AssertUnwindSafe(|| act(engine))) {
                Ok(result) => Self::Done(result),
                Err(panic) => Self::Panicked(panic),
            };
        }
    }
}
