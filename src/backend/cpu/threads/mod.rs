//! The threads: a pool that runs one job on all of them, work that they take from each other, and the throttle.

pub(super) mod pool;
mod throttle;
pub(super) mod work_stealing;
