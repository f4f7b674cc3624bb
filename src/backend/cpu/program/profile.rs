//! Measures the time of steps by op, on the caller's thread.

use std::{cmp::Reverse, time::Instant};

use crate::backend::OpTime;

/// The time before the first task: the step is checked, memory grows, and the other threads wake
/// up.
pub(crate) const PREPARE: &str = "prepare";
/// The time at barriers, and until the last thread has finished.
pub(crate) const WAIT: &str = "wait";
/// The time after the last task, in which the rows of the logits are moved together.
pub(crate) const GATHER: &str = "gather";

/// The time of each op. Measurements follow one another without gaps, so their sum is the time of
/// the steps.
pub(crate) struct Profile {
    /// The end of the last measurement.
    since: Instant,
    ops: Vec<OpTime>,
}

impl Profile {
    pub fn new() -> Self {
        Self { since: Instant::now(), ops: Vec::new() }
    }

    /// Starts to measure a step.
    pub fn start_step(&mut self) {
        self.since = Instant::now();
    }

    /// Records the time since the last measurement as a call of `op` that read `bytes` bytes.
    pub fn record(&mut self, op: &'static str, bytes: usize) {
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

    /// Takes all measurements, the longest first.
    pub fn take(&mut self) -> Vec<OpTime> {
        self.ops.sort_by_key(|op| Reverse(op.time));
        std::mem::take(&mut self.ops)
    }
}
