//! Gives requests their places, by arrival and priority.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use super::{Decoder, turns::Turns};
use crate::{Result, kv_cache::SequenceId};

/// The time that a request waits longer for each level of priority that another one is above it.
/// So every request comes first some time, whatever the priorities of later ones.
pub(super) const LEVEL: Duration = Duration::from_secs(10);

/// The place of a request among all; the least one comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// The time of the arrival in nanoseconds, earlier by [`LEVEL`] for each level of priority.
    due: i64,
    /// The number of the request.
    number: u64,
}

impl Rank {
    /// The place after all others.
    pub const LAST: Self = Self { due: i64::MAX, number: u64::MAX };
}

/// The place of a request, and its state.
#[derive(Debug)]
pub(super) struct Ticket {
    pub rank: Rank,
    pub priority: i8,
    /// The number of the decoder, which computes one call at a time.
    pub decoder: u64,
    /// Whether its owner tells when the request ends; else a pause ends it.
    tells_end: bool,
    ended: AtomicBool,
    /// Whether the request has had memory of the cache.
    admitted: AtomicBool,
}

impl Ticket {
    pub fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    pub fn is_admitted(&self) -> bool {
        self.admitted.load(Relaxed)
    }

    pub fn admit(&self) {
        self.admitted.store(true, Relaxed);
    }

    /// Returns whether a new prompt belongs to the same request.
    fn goes_on(&self) -> bool {
        self.tells_end && !self.has_ended()
    }
}

/// Numbers requests in the order of their arrival, and decoders.
#[derive(Debug)]
pub(super) struct Arrivals {
    start: Instant,
    next: AtomicU64,
}

impl Arrivals {
    pub fn new() -> Self {
        Self { start: Instant::now(), next: AtomicU64::new(0) }
    }

    /// Returns a number that no request and no decoder has.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    fn ticket(&self, decoder: u64, priority: i8, tells_end: bool) -> Arc<Ticket> {
        let rank = Rank { due: due(self.start, priority), number: self.number() };
        let (ended, admitted) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Ticket { rank, priority, decoder, tells_end, ended, admitted })
    }
}

/// Returns the time since `start` in nanoseconds, less [`LEVEL`] for each level of priority.
pub(super) fn due(start: Instant, priority: i8) -> i64 {
    start.elapsed().as_nanos() as i64 - i64::from(priority) * LEVEL.as_nanos() as i64
}

/// A request that runs until this is dropped.
pub(in crate::generate) struct OpenRequest {
    ticket: Arc<Ticket>,
    turns: Arc<Turns>,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.ticket.ended.store(true, Relaxed);
        self.turns.wake();
    }
}

impl Decoder {
    /// Starts a request in a sequence, and in the forks that are made of it meanwhile.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if the sequence is not open.
    pub(in crate::generate) fn open_request(&mut self, id: SequenceId, priority: i8) -> Result<OpenRequest> {
        self.held(id)?;
        let ticket = self.turns.arrivals().ticket(self.number, priority, true);
        self.tokens.entry(id).or_default().ticket = Some(ticket.clone());
        Ok(OpenRequest { ticket, turns: self.turns.clone() })
    }

    /// Makes the steps of another sequence part of a request.
    pub(in crate::generate) fn join_request(&mut self, id: SequenceId, request: &OpenRequest) {
        self.tokens.entry(id).and_modify(|held| held.ticket = Some(request.ticket.clone()));
    }

    /// Starts a request for a prompt, unless it belongs to one.
    pub(super) fn start_prompt(&mut self, id: SequenceId) {
        let Self { turns, tokens, number, .. } = self;
        let goes_on = |ticket: &Arc<Ticket>| ticket.goes_on();
        tokens.entry(id).and_modify(|held| {
            if !held.ticket.as_ref().is_some_and(goes_on) {
                held.ticket = Some(turns.arrivals().ticket(*number, 0, false));
            }
        });
    }

    /// Returns the ticket for work on a sequence, which starts a request unless there is one.
    pub(super) fn ticket(&mut self, id: SequenceId) -> Result<Arc<Ticket>> {
        self.held(id)?;
        let ticket = &mut self.tokens.entry(id).or_default().ticket;
        match ticket.take_if(|ticket| !ticket.has_ended()) {
            Some(current) => Ok(ticket.insert(current).clone()),
            None => Ok(ticket.insert(self.turns.arrivals().ticket(self.number, 0, false)).clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_by_priority_until_others_have_waited() {
        let long_ago = Instant::now().checked_sub(3 * LEVEL / 2).unwrap();
        let arrivals = Arrivals { start: long_ago, next: AtomicU64::new(0) };
        let ranks = [0, 1, 1, -3].map(|priority| arrivals.ticket(0, priority, true).rank);
        assert!(ranks[1] < ranks[2] && ranks[2] < ranks[0] && ranks[0] < ranks[3]);
        // One of the start, which has waited for a level and a half.
        let first = Rank { due: 0, number: 9 };
        assert!(first < ranks[0] && first < ranks[1]);
        assert!(first > arrivals.ticket(0, 2, true).rank && ranks[3] < Rank::LAST);
    }
}
