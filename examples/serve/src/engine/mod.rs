//! Runs requests: every request waits for a runner, which then generates its answers on a thread.
//!
//! Runners are clones of one. The library computes the steps that they want at the same time as one
//! step, so that threads need no knowledge of each other.

mod admission;
mod counters;
mod job;
mod reply;
mod run;
mod slots;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use inkstone::Runner;
use tokio::sync::{mpsc, watch};

pub use self::{
    admission::{Admission, Admissions},
    counters::Counters,
    job::{Answer, Ended, Event, Finish, Form, Input, Job, Piece, TokenLogprob},
    reply::Reply,
};
use self::{run::run, slots::Slots};
use crate::error::ApiError;

/// The model, and the requests that it works for.
pub struct Engine {
    model: Runner,
    slots: Arc<Slots>,
    admissions: Admissions,
    counters: Arc<Counters>,
    draining: AtomicBool,
    /// Whether requests that are not finished have to end.
    ended: watch::Sender<bool>,
}

impl Engine {
    /// Returns an engine that generates up to `parallel` answers at a time, while up to `queue`
    /// requests wait.
    pub fn new(model: Runner, parallel: usize, queue: usize) -> Self {
        Self {
            slots: Slots::new(&model, parallel),
            model,
            admissions: Admissions::new(parallel + queue),
            counters: Arc::default(),
            draining: AtomicBool::new(false),
            ended: watch::Sender::new(false),
        }
    }

    /// Returns a runner for its tokenizer, chat template and statistics.
    pub fn model(&self) -> &Runner {
        &self.model
    }

    /// Returns the counters of requests and tokens.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the number of requests that are read, wait or run.
    pub fn admitted(&self) -> usize {
        self.admissions.count()
    }

    /// Returns the number of answers that are generated now.
    pub fn running(&self) -> usize {
        self.slots.running()
    }

    /// Returns whether the server only finishes what it has begun.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Refuses requests from now on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Ends the requests that run or wait.
    pub fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Counts a request among those that the server works for.
    ///
    /// # Errors
    /// [`ApiError::busy`] if there are too many, [`ApiError::draining`] if the server ends.
    pub fn admit(&self) -> Result<Admission, ApiError> {
        if self.is_draining() {
            return Err(ApiError::draining());
        }
        self.admissions.admit().ok_or_else(ApiError::busy)
    }

    /// Starts a job, and returns its events.
    pub fn start(&self, job: Job, admission: Admission) -> Reply {
        let (sender, events) = mpsc::unbounded_channel();
        let reply = Reply::new(events, job.choices, self.ended.subscribe());
        let (job, admission) = (Arc::new(job), Arc::new(admission));
        for choice in 0..job.choices {
            let (job, admission, sender) = (job.clone(), admission.clone(), sender.clone());
            let (slots, stop, counters) = (self.slots.clone(), reply.stop_handle(), self.counters.clone());
            tokio::spawn(async move {
                let permit = tokio::select! {
                    permit = slots.permit() => permit,
                    // The client has gone.
                    () = sender.closed() => return,
                };
                let thread = tokio::task::spawn_blocking(move || {
                    let mut runner = slots.take();
                    // Events wait for the client in memory: the context bounds their number.
                    run(&mut runner, &job, choice, stop, &counters, |event| _ = sender.send((choice, event)));
                    slots.give_back(runner);
                    drop((permit, admission));
                });
                // A panic closes the channel, which the reply reports.
                _ = thread.await;
            });
        }
        reply
    }
}
