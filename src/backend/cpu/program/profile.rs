//! Where the caller's thread spends its time in steps, by op.

use std::{cmp::Reverse, time::Instant};

use crate::backend::OpTime;

/// Until the threads walk: the step is checked, memory grows, and the other threads are woken.
pub(crate) const PREPARE: &str = "prepare";
/// Where threads meet, and where the caller's thread waits for the last of them.
pub(crate) const WAIT: &str = "wait";
/// From the walk's end: the logits' rows are put together.
pub(crate) const GATHER: &str = "gather";

/// Time by op. Laps follow one another without gaps, so that their sum is the time of the steps.
pub(crate) struct Profile {
    /// The end of the last lap.
    since: Instant,
    ops: Vec<OpTime>,
}

impl Profile {
    pub fn new() -> Self {
        Self { since: Instant::now(), ops: Vec::new() }
    }

    /// A step begins.
    pub fn begin(&mut self) {
        self.since = Instant::now();
    }

    /// What has passed since the last lap is one call of `op`, which read so many bytes.
    pub fn lap(&mut self, op: &'static str, bytes: usize) {
        let now = Instant::now();
        let (time, bytes) = (now - self.since, bytes as u64);
        self.since = now;
        match self.ops.iter_mut().find(|known| known.op == op) {
            Some(known) => {
                known.calls += 1;
                known.time += time;
                known.bytes += bytes;
            }
            None => self.ops.push(OpTime { op, calls: 1, time, bytes }),
        }
    }

    /// Takes everything, the longest first.
    pub fn take(&mut self) -> Vec<OpTime> {
        self.ops.sort_by_key(|op| Reverse(op.time));
        std::mem::take(&mut self.ops)
    }
}
