//! The runners, and the order in which requests get them.

use std::sync::{Arc, Mutex, PoisonError};

use inkstone::Runner;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The runners of requests.
pub struct Slots {
    model: Runner,
    /// The last one used is at the end: it has the conversation that probably goes on.
    idle: Mutex<Vec<Runner>>,
    permits: Arc<Semaphore>,
    count: usize,
}

impl Slots {
    /// Returns slots for `count` clones of a runner.
    pub fn new(model: &Runner, count: usize) -> Arc<Self> {
        Arc::new(Self { model: model.clone(), idle: Mutex::default(), permits: Arc::new(Semaphore::new(count)), count })
    }

    /// Returns the number of requests that run.
    pub fn running(&self) -> usize {
        self.count - self.permits.available_permits()
    }

    /// Waits until a request may run, in the order of the requests.
    pub async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().acquire_owned().await.ok()
    }

    /// Returns a runner. It is a new clone if there are fewer than permits, which is so at the
    /// start, and after a request that has panicked.
    pub fn take(&self) -> Runner {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_else(|| self.model.clone())
    }

    /// Takes a runner back.
    pub fn give_back(&self, runner: Runner) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(runner);
    }
}
