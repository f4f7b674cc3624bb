//! Decides which sequences have memory of the cache when there is too little for all.
//!
//! Requests have ranks. A request that the cache has no room for waits, and requests are admitted
//! in the order of their ranks. If admitted ones outgrow the cache, one takes the memory of later
//! ones, whose tokens are computed again when it is their turn. The first request of all may take
//! the memory of every other one, so that one request always goes on.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    LogitsFor,
    call::Role,
    engine::Engine,
    sequence::SequenceTokens,
    ticket::{Rank, Ticket, due},
};
use crate::{
    Error, Result,
    kv_cache::{CacheRoom, KvCache, SequenceExtent, SequenceId},
};

/// The time after a sequence's last step within which its request probably wants the next one.
const PAUSE: Duration = Duration::from_millis(250);

/// The default of [`RunnerBuilder::max_waiting`](crate::RunnerBuilder::max_waiting).
const MAX_WAITING: usize = 1024;

/// The reason why a call lacks memory.
#[derive(Debug)]
pub(super) enum Shortage {
    /// Requests that come first have the memory.
    Waits(Error),
    /// The call fails: it does not fit alone, or the error is another one.
    Fails(Error),
}

impl From<Error> for Shortage {
    fn from(error: Error) -> Self {
        Self::Fails(error)
    }
}

impl Shortage {
    pub fn into_error(self) -> Error {
        match self {
            Self::Waits(error) | Self::Fails(error) => error,
        }
    }
}

/// The sequences that a call wants to extend.
pub(super) struct Claim<'a> {
    pub runs: &'a [(SequenceId, &'a [u32], LogitsFor)],
    pub held: &'a HashMap<SequenceId, SequenceTokens>,
    pub role: Role,
    /// Sequences of other calls in the same step.
    pub beside: Vec<SequenceId>,
}

impl<'a> Claim<'a> {
    fn tickets(&self) -> impl Iterator<Item = &'a Arc<Ticket>> {
        let Self { runs, held, .. } = *self;
        runs.iter().filter_map(|(id, ..)| held.get(id)?.ticket.as_ref())
    }

    /// Returns the rank of the first request of the call, or of its decoder.
    pub fn rank_in(&self, ranks: &DecoderRanks) -> Rank {
        let own = self.tickets().map(|ticket| ticket.rank);
        let of_decoder = self.decoder().and_then(|decoder| ranks.get(&decoder).copied());
        own.chain(of_decoder).min().unwrap_or(Rank::LAST)
    }

    /// Returns the highest priority of the call's requests.
    pub fn priority(&self) -> i8 {
        self.tickets().map(|ticket| ticket.priority).max().unwrap_or_default()
    }

    /// Returns whether the call belongs to a request that has had memory.
    pub fn is_admitted(&self) -> bool {
        self.tickets().any(|ticket| ticket.is_admitted())
    }

    /// Returns the number of the decoder, if it has asked for a step before.
    fn decoder(&self) -> Option<u64> {
        self.tickets().map(|ticket| ticket.decoder).next()
    }

    /// Returns whether the sequence is needed for the step.
    fn needs(&self, id: SequenceId) -> bool {
        self.runs.iter().any(|(own, ..)| *own == id) || self.beside.contains(&id)
    }

    /// Returns the memory that the sequences lack for their tokens, or for the whole prompt.
    pub fn lacking(&self, cache: &KvCache) -> Result<CacheRoom> {
        self.runs.iter().try_fold(CacheRoom::default(), |sum, (id, new, _)| {
            let len = match self.role {
                Role::PromptUntil(end) => end,
                Role::Given | Role::Drafted => self.held.get(id).map_or(0, |held| held.ids.len()) + new.len(),
            };
            Ok(sum.plus(cache.lacking(*id, len)?))
        })
    }

    /// Returns whether the cache has a part of the sequences.
    pub fn has_started(&self, cache: &KvCache) -> bool {
        self.runs.iter().any(|(id, ..)| cache.len(*id).is_ok_and(|len| len > 0))
    }
}

/// The place of a sequence among all that have memory.
struct Standing {
    ticket: Arc<Ticket>,
    /// The end of the last step.
    used: Instant,
    /// Whether a call waits for the sequence, or a session reads it.
    in_use: bool,
}

impl Standing {
    /// Returns whether the sequence's request is likely to go on soon.
    fn is_active(&self, now: Instant) -> bool {
        self.in_use || !self.ticket.has_ended() && now.saturating_duration_since(self.used) < PAUSE
    }
}

/// The rank of the first active request of each decoder, which is that of all its sequences: else
/// two decoders with several sequences could take memory from each other forever.
pub(super) type DecoderRanks = HashMap<u64, Rank>;

/// The decoders that have active requests.
struct ActiveDecoders {
    ranks: DecoderRanks,
    /// The decoders that wait for a call. They extend no other sequence meanwhile.
    calling: HashSet<u64>,
    /// The rank of the decoder that asks.
    own: Rank,
    now: Instant,
}

impl ActiveDecoders {
    fn new(admission: &Admission, claim: &Claim<'_>) -> Self {
        let (now, mut ranks) = (Instant::now(), admission.ranks());
        let own = claim.rank_in(&ranks);
        ranks.extend(claim.decoder().map(|decoder| (decoder, own)));
        let in_use = admission.standings.values().filter(|standing| standing.in_use);
        let calling = in_use.map(|standing| standing.ticket.decoder).chain(claim.decoder()).collect();
        Self { ranks, calling, own, now }
    }

    /// Returns whether no decoder comes before the one that asks.
    fn is_own_first(&self) -> bool {
        self.ranks.values().all(|rank| *rank >= self.own)
    }

    /// Returns whether a step of the sequence is likely soon.
    fn needs(&self, standing: &Standing) -> bool {
        standing.in_use || standing.is_active(self.now) && !self.calling.contains(&standing.ticket.decoder)
    }

    fn is_before_own(&self, standing: &Standing) -> bool {
        self.ranks.get(&standing.ticket.decoder).is_some_and(|rank| *rank <= self.own)
    }
}

/// The standings of all sequences.
pub(super) struct Admission {
    standings: HashMap<SequenceId, Standing>,
    start: Instant,
    /// The largest number of requests that wait for their first memory.
    pub max_waiting: usize,
}

impl Default for Admission {
    fn default() -> Self {
        Self { standings: HashMap::new(), start: Instant::now(), max_waiting: MAX_WAITING }
    }
}

/// The other sequences that have memory, in the order in which they lose it.
struct Others {
    /// Sequences of which no step is likely soon.
    idle: Vec<SequenceId>,
    /// Sequences of later requests.
    later: Vec<SequenceId>,
    /// Sequences of earlier requests, which keep their memory.
    earlier: Vec<SequenceId>,
    /// Whether no active request comes before the call.
    is_first: bool,
}

impl Admission {
    /// Returns the place of a call that arrives now among the calls of a step.
    pub fn due(&self, claim: &Claim<'_>) -> i64 {
        due(self.start, claim.priority())
    }

    /// Takes note that a call wants to extend its sequences, or does not any more.
    pub fn set_in_use(&mut self, claim: &Claim<'_>, in_use: bool) {
        for (id, ..) in claim.runs {
            if let Some(ticket) = claim.held.get(id).and_then(|held| held.ticket.as_ref()) {
                self.set(*id, ticket.clone(), in_use);
            }
        }
    }

    /// Sets the standing of a sequence that is used now.
    pub fn set(&mut self, id: SequenceId, ticket: Arc<Ticket>, in_use: bool) {
        self.standings.insert(id, Standing { ticket, used: Instant::now(), in_use });
    }

    pub fn fork(&mut self, id: SequenceId, fork: SequenceId) {
        if let Some(Standing { ticket, used, .. }) = self.standings.get(&id) {
            let standing = Standing { ticket: ticket.clone(), used: *used, in_use: false };
            self.standings.insert(fork, standing);
        }
    }

    pub fn close(&mut self, id: SequenceId) {
        self.standings.remove(&id);
    }

    /// Returns the ranks of all decoders that have active requests.
    pub fn ranks(&self) -> DecoderRanks {
        let (now, mut ranks) = (Instant::now(), HashMap::new());
        for Standing { ticket, .. } in self.standings.values().filter(|standing| standing.is_active(now)) {
            let rank = ranks.entry(ticket.decoder).or_insert(ticket.rank);
            *rank = ticket.rank.min(*rank);
        }
        ranks
    }

    fn others(&self, cache: &KvCache, claim: &Claim<'_>) -> Others {
        let decoders = ActiveDecoders::new(self, claim);
        let len = |id: SequenceId| cache.len(id).unwrap_or(0);
        let others = self.standings.iter().filter(|(id, _)| !claim.needs(**id) && len(**id) > 0);
        let (active, idle): (Vec<_>, Vec<_>) = others.partition(|(_, other)| decoders.needs(other));
        let (earlier, later): (Vec<_>, Vec<_>) =
            active.into_iter().partition(|(_, other)| decoders.is_before_own(other));
        let sorted = |mut all: Vec<(&SequenceId, &Standing)>, key: &dyn Fn(SequenceId, &Standing) -> _| {
            all.sort_by_key(|(id, other)| key(**id, other));
            all.into_iter().map(|(id, _)| *id).collect()
        };
        Others {
            idle: sorted(idle, &|_, other| (0, 0, other.used)),
            later: sorted(later, &|id, other| (other.ticket.priority, len(id), other.used)),
            earlier: earlier.into_iter().map(|(id, _)| *id).collect(),
            is_first: decoders.is_own_first(),
        }
    }
}

impl Engine {
    /// Lets a call have memory if the cache has room for it beside `promised`: a call that has
    /// started, or one that comes first, is let in anyway.
    pub fn admit(&mut self, claim: &Claim<'_>, promised: CacheRoom) -> Result<(), Shortage> {
        if !claim.has_started(&self.cache) {
            self.admit_new(claim, promised)?;
        }
        claim.tickets().for_each(|ticket| ticket.admit());
        Ok(())
    }

    /// Lets a call have its first memory, as [`admit`](Self::admit).
    fn admit_new(&self, claim: &Claim<'_>, promised: CacheRoom) -> Result<(), Shortage> {
        let lacking = claim.lacking(&self.cache)?;
        let free = self.cache.free();
        if free.minus(promised).covers(lacking) {
            return Ok(());
        }
        let Others { idle, is_first, .. } = self.admission.others(&self.cache, claim);
        let room = free.plus(self.cache.taken_by(&idle)).minus(promised);
        if room.covers(lacking) || is_first {
            return Ok(());
        }
        let limit = self.cache.limit_bytes().unwrap_or(u64::MAX);
        let needed = self.cache.bytes().saturating_add(lacking.page_bytes);
        Err(Shortage::Waits(Error::Memory { what: "the KV cache", needed, limit }))
    }

    /// Opens a sequence with memory for `extent`. It keeps the memory until its standing changes.
    pub fn open_with(
        &mut self,
        extent: &SequenceExtent,
        ticket: &Arc<Ticket>,
        held: &HashMap<SequenceId, SequenceTokens>,
    ) -> Result<SequenceId> {
        let claim = Claim { runs: &[], held, role: Role::Given, beside: vec![] };
        loop {
            match self.cache.open_with(extent) {
                Err(error) if error.is_out_of_memory() => {
                    let some = CacheRoom { page_bytes: 1, states: 0 };
                    self.make_room(some, error, &claim).map_err(Shortage::into_error)?;
                }
                opened => {
                    let id = opened?;
                    self.admission.set(id, ticket.clone(), true);
                    return Ok(id);
                }
            }
        }
    }

    /// Makes room in the cache after a call has failed with `error`, for want of `needed`: takes
    /// the memory of idle sequences, the least recently used first, and then of later requests, the
    /// one with the lowest priority and the least progress first. Nothing is taken if that is not
    /// enough.
    pub fn make_room(&mut self, needed: CacheRoom, error: Error, claim: &Claim<'_>) -> Result<(), Shortage> {
        let Others { idle, later, earlier, is_first } = self.admission.others(&self.cache, claim);
        let preempts = is_first || claim.has_started(&self.cache);
        let all = [&idle[..], &later, &earlier].concat();
        let taken = &all[..idle.len() + if preempts { later.len() } else { 0 }];
        if !self.cache.taken_by(taken).covers(needed) {
            let waits = !claim.beside.is_empty() || self.cache.taken_by(&all).covers(needed);
            return Err(if waits { Shortage::Waits(error) } else { Shortage::Fails(error) });
        }
        let before = self.cache.free();
        for (index, id) in taken.iter().enumerate() {
            self.discard_pipelined(*id)?;
            self.truncate(*id, 0, 0)?;
            *if index < idle.len() { &mut self.work.evictions } else { &mut self.work.preemptions } += 1;
            if self.cache.free().minus(before).covers(needed) {
                break;
            }
        }
        Ok(())
    }
}
