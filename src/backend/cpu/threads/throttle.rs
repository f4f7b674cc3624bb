//! Limits the number of threads that work on a step.
//!
//! Threads that meet at barriers are as slow as the slowest of them: where another process occupies
//! a core, all threads wait for the one that cannot run. The throttle measures the time spent
//! waiting, and leaves out one thread for a while when that time is long.

use std::time::Duration;

/// The waiting time above which a thread is left out, as a fraction of the time of all other
/// threads.
const WAIT_LIMIT: f64 = 0.3;
/// Calls for which a thread is left out the first time.
const FIRST_REST: u32 = 16;
/// Calls for which a thread is left out at most.
const LONGEST_REST: u32 = 512;

/// The number of threads of a pool that take part in the next call.
#[derive(Debug)]
pub(crate) struct ThreadThrottle {
    threads: usize,
    active: usize,
    /// Calls until one more thread is tried.
    rest: u32,
    /// The value of `rest` the next time that a thread is left out; it doubles while that recurs.
    next_rest: u32,
    /// Whether the last call spent much time waiting.
    strained: bool,
}

impl ThreadThrottle {
    /// Returns a throttle under which all `threads` threads take part at first.
    pub fn new(threads: usize) -> Self {
        Self { threads, active: threads, rest: 0, next_rest: FIRST_REST, strained: false }
    }

    /// Lets all threads take part again.
    pub fn reset(&mut self) {
        *self = Self::new(self.threads);
    }

    /// Returns the number of threads that take part in the next call.
    pub fn active(&self) -> usize {
        self.active
    }

    /// Records a call that took `wall`, in which the threads waited for `waited` in total.
    pub fn record(&mut self, wall: Duration, waited: Duration) {
        let waiting_threads = self.active - 1;
        let strained = waited.as_secs_f64() > WAIT_LIMIT * wall.as_secs_f64() * waiting_threads as f64;
        if waiting_threads > 0 && strained {
            // One slow call may be an accident, unless cores were occupied a short time ago.
            if self.strained || self.next_rest > FIRST_REST {
                self.active -= 1;
                self.rest = self.next_rest;
                self.next_rest = (self.next_rest * 2).min(LONGEST_REST);
            }
            self.strained = !self.strained;
            return;
        }
        self.strained = false;
        if self.active < self.threads {
            self.rest = self.rest.saturating_sub(1);
            if self.rest == 0 {
                self.active += 1;
                self.rest = FIRST_REST;
            }
        } else if self.rest > 0 {
            self.rest -= 1;
        } else {
            self.next_rest = FIRST_REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Duration = Duration::from_millis(10);

    #[test]
    fn throttle_leaves_out_a_thread_while_cores_are_occupied() {
        let mut throttle = ThreadThrottle::new(4);
        throttle.record(CALL, CALL);
        assert_eq!(throttle.active(), 4, "one slow call is an accident");
        throttle.record(CALL, Duration::ZERO);
        for _ in 0..2 {
            throttle.record(CALL, 2 * CALL);
        }
        assert_eq!(throttle.active(), 3);
        for _ in 0..FIRST_REST {
            assert_eq!(throttle.active(), 3);
            throttle.record(CALL, Duration::ZERO);
        }
        assert_eq!(throttle.active(), 4, "one more thread is tried after the rest");
        throttle.record(CALL, 2 * CALL);
        assert_eq!(throttle.active(), 3, "a trial that fails ends at once");
        for _ in 0..2 * FIRST_REST {
            throttle.record(CALL, Duration::ZERO);
        }
        assert_eq!(throttle.active(), 4);
    }

    #[test]
    fn throttle_stays_between_one_thread_and_all() {
        let mut throttle = ThreadThrottle::new(2);
        for _ in 0..100 {
            throttle.record(CALL, 5 * CALL);
            assert!((1..=2).contains(&throttle.active()));
        }
        for _ in 0..10_000 {
            throttle.record(CALL, Duration::ZERO);
            assert!((1..=2).contains(&throttle.active()));
        }
        assert_eq!(throttle.active(), 2);
    }
}
