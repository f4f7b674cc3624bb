//! Threads: a pool that runs one job on all of them, the queue that they take work from, and a
//! throttle.

mod barrier;
pub(super) mod pool;
mod throttle;
pub(super) mod work_queue;
