//! How many threads take part in a call.
//!
//! Threads that meet at barriers are as slow as the slowest: where another process holds one of their cores, all wait
//! for the thread that cannot run. So the time spent waiting is watched, and where it is much, one thread fewer takes
//! part for a while.

use std::time::Duration;

/// The share of the time that all but one thread wait, above which one is left out.
const MUCH: f64 = 0.3;
/// Calls for which a thread that was left out stays so, the first time and at most.
const REST: u32 = 16;
const LONGEST_REST: u32 = 512;

/// The threads of a pool, and how many of them take part.
#[derive(Debug)]
pub(crate) struct Crew {
    threads: usize,
    active: usize,
    /// Calls until one more is tried.
    rest: u32,
    /// The rest after the next time that one is left out; it grows while that keeps happening.
    next_rest: u32,
    /// Whether the last call already spent much time waiting.
    strained: bool,
}

impl Crew {
    pub fn new(threads: usize) -> Self {
        Self { threads, active: threads, rest: 0, next_rest: REST, strained: false }
    }

    /// How many threads take part in the next call.
    pub fn active(&self) -> usize {
        self.active
    }

    /// Takes note of a call that lasted `wall` and in which the threads together waited for `waited`.
    pub fn note(&mut self, wall: Duration, waited: Duration) {
        let others = self.active - 1;
        let strained = waited.as_secs_f64() > MUCH * wall.as_secs_f64() * others as f64;
        if others > 0 && strained {
            // Once is an accident, but not while it is still known that cores are taken.
            if self.strained || self.next_rest > REST {
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
                self.rest = REST;
            }
        } else if self.rest > 0 {
            self.rest -= 1;
        } else {
            self.next_rest = REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Duration = Duration::from_millis(10);

    #[test]
    fn a_crew_shrinks_while_cores_are_taken_and_grows_back() {
        let mut crew = Crew::new(4);
        crew.note(CALL, CALL);
        assert_eq!(crew.active(), 4, "one slow call is an accident");
        crew.note(CALL, Duration::ZERO);
        for _ in 0..2 {
            crew.note(CALL, 2 * CALL);
        }
        assert_eq!(crew.active(), 3);
        for _ in 0..REST {
            assert_eq!(crew.active(), 3);
            crew.note(CALL, Duration::ZERO);
        }
        assert_eq!(crew.active(), 4, "one more is tried after the rest");
        crew.note(CALL, 2 * CALL);
        assert_eq!(crew.active(), 3, "a trial that fails ends at once");
        for _ in 0..2 * REST {
            crew.note(CALL, Duration::ZERO);
        }
        assert_eq!(crew.active(), 4);
    }

    #[test]
    fn a_crew_never_shrinks_below_one_thread_nor_grows_past_its_own() {
        let mut crew = Crew::new(2);
        for _ in 0..100 {
            crew.note(CALL, 5 * CALL);
            assert!((1..=2).contains(&crew.active()));
        }
        for _ in 0..10_000 {
            crew.note(CALL, Duration::ZERO);
            assert!((1..=2).contains(&crew.active()));
        }
        assert_eq!(crew.active(), 2);
    }
}
