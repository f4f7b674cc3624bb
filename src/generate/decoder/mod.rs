//! Feeds tokens to an executable, step by step.

mod ahead;
mod batch;
mod engine;
mod turns;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use self::{
    batch::Part,
    engine::{Engine, Results},
    turns::Turns,
};
use crate::{
    Error, Result,
    backend::{Executable, OpTime, TokenLogit, Usage},
    kv_cache::{KvCache, SequenceId},
};

/// Which of a run's tokens the logits are wanted of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// None: the tokens are only to be in the cache.
    None,
    /// The last one.
    Last,
    /// Every one.
    All,
}

/// What a call of [`Decoder::prefill`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefill {
    /// Tokens at the start that the sequence held already.
    pub cached: usize,
    /// Whether all tokens are in the cache now: false where the caller stopped it.
    pub complete: bool,
}

/// The results that a call needs of the tokens whose logits are wanted.
#[derive(Clone, Copy)]
enum Find {
    /// All logits.
    Logits,
    /// As many of the largest logits; all where the device does not find them.
    Largest(usize),
    /// The most probable token to follow a single one; all logits where the device does not choose it.
    Next,
}

/// The sizes that an executable was compiled for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Tokens of the vocabulary.
    pub vocab_size: usize,
    /// The most tokens of one step.
    pub max_tokens: usize,
    /// The most tokens of one step whose logits are wanted.
    pub max_outputs: usize,
}

/// A way to an executable and its cache, and the tokens of some of the sequences in it.
///
/// A clone is another such way, for another thread perhaps: it begins with no sequence, and shares the weights and the
/// cache's memory. The steps of all take turns.
pub struct Decoder {
    turns: Arc<Turns>,
    limits: Limits,
    context_length: usize,
    /// The longest context that the model was trained for, where it is known: errors suggest it.
    trained_context: Option<usize>,
    /// Whether every step starts its sequences over: the reference that the cached path is held against.
    recompute: bool,
    /// Those that a sequence holds. After it was cut off its cache may hold fewer, as recurrent layers go back to
    /// checkpoints alone and windows no further than they have pages: the next step then computes what lies between.
    tokens: HashMap<SequenceId, Vec<u32>>,
    logits: Vec<f32>,
    /// The largest logits, where a step was asked for no others.
    best: Vec<TokenLogit>,
}

impl Decoder {
    /// A decoder with no sequence. `executable` must have been compiled for `limits`, and for the cache's layout.
    pub fn new(executable: Box<dyn Executable>, cache: KvCache, limits: Limits) -> Self {
        let context_length = cache.context_length();
        let turns = Arc::new(Turns::new(Engine::new(executable, cache)));
        let (tokens, logits, best) = (HashMap::new(), vec![], vec![]);
        Self { turns, limits, context_length, trained_context: None, recompute: false, tokens, logits, best }
    }

    /// Sets the longest context that the model was trained for, for errors to suggest.
    pub(crate) fn with_trained_context(mut self, tokens: usize) -> Self {
        self.trained_context = Some(tokens);
        self
    }

    /// Makes every step compute its sequences anew from their first token, instead of from what the cache holds of
    /// them. The results are the same but for rounding; it is slow, and there to test the cache.
    pub fn with_recompute(mut self, recompute: bool) -> Self {
        self.recompute = recompute;
        self
    }

    /// The sizes that the executable was compiled for.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The most tokens that a sequence can hold.
    pub fn context_length(&self) -> usize {
        self.context_length
    }

    /// A new, empty sequence.
    pub fn open(&mut self) -> SequenceId {
        let id = self.turns.take(|engine| engine.cache.open());
        self.tokens.insert(id, vec![]);
        id
    }

    /// A new sequence with the tokens of `id`, which costs no computation and, until one of the two grows, no memory.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn fork(&mut self, id: SequenceId) -> Result<SequenceId> {
        let tokens = self.tokens(id)?.to_vec();
        let twin = self.with_cache_of(id, |cache| cache.fork(id))?;
        self.tokens.insert(twin, tokens);
        Ok(twin)
    }

    /// Forgets a sequence.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn close(&mut self, id: SequenceId) -> Result<()> {
        self.tokens(id)?;
        self.with_cache_of(id, |cache| cache.close(id))?;
        self.tokens.remove(&id);
        Ok(())
    }

    /// Forgets every token of a sequence from `len` on; a `len` past its end changes nothing.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn truncate(&mut self, id: SequenceId, len: usize) -> Result<()> {
        self.tokens(id)?;
        self.with_cache_of(id, |cache| cache.truncate(id, len))?;
        if let Some(tokens) = self.tokens.get_mut(&id) {
            tokens.truncate(len);
        }
        Ok(())
    }

    /// The tokens that a sequence holds.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open.
    pub fn tokens(&self, id: SequenceId) -> Result<&[u32]> {
        self.tokens
            .get(&id)
            .map(Vec::as_slice)
            .ok_or_else(|| Error::argument("sequence", "is not open in this decoder"))
    }

    /// Appends tokens to sequences, all in one ragged batch where they fit a step and in several otherwise, and returns
    /// the wanted logits row by row, `[wanted, vocabulary]`, in the order of `runs`. The caller may change them.
    ///
    /// On an error every sequence is as it was before.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open or is there twice, a run without tokens, or an id past the
    /// vocabulary; [`Error::ContextFull`] and those of the cache's limit where a sequence cannot grow as far; whatever
    /// the device reports.
    pub fn step(&mut self, runs: &[(SequenceId, &[u32], Wanted)]) -> Result<&mut [f32]> {
        self.extend(runs, Find::Logits, None)?;
        Ok(&mut self.logits)
    }

    /// Appends one token to a sequence and returns the `count` largest logits of those that follow, best first and of
    /// equal ones the lower id, where the device finds so many itself: it then sends no others. `None` where it does not:
    /// all are in [`logits`](Self::logits) then.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn best(&mut self, id: SequenceId, token: u32, count: usize) -> Result<Option<&[TokenLogit]>> {
        let find = if count == 0 { Find::Logits } else { Find::Largest(count) };
        self.extend(&[(id, &[token], Wanted::Last)], find, None)?;
        Ok(if self.best.is_empty() { None } else { Some(&self.best) })
    }

    /// Appends tokens to sequences in one turn, and returns the most probable token to follow where that was asked for and
    /// the device has chosen it. `prompt_end` is the position where the prompt ends of which the tokens are a part, where
    /// they do not end it.
    fn extend(
        &mut self,
        runs: &[(SequenceId, &[u32], Wanted)],
        find: Find,
        prompt_end: Option<usize>,
    ) -> Result<Option<u32>> {
        let mut seen = HashSet::new();
        for (id, new, _) in runs {
            self.check_room(self.tokens(*id)?.len(), new.len())?;
            self.check_ids(new)?;
            if !seen.insert(*id) {
                return Err(Error::argument("sequence", "is in the same batch twice"));
            }
        }
        let Self { turns, limits, recompute, tokens, logits, best, .. } = self;
        let next = turns.take(|engine| {
            if let (Find::Next, [(id, [token], _)], false) = (find, runs, *recompute)
                && let Some(next) = engine.greedy(*id, *token, tokens[id].len())?
            {
                logits.clear();
                return Ok(Some(next));
            }
            let part = |run: &(SequenceId, _, _)| {
                engine.forget_ahead(run.0)?;
                let start = if *recompute { 0 } else { engine.cache.len(run.0)? };
                Ok(Part::new(*run, &tokens[&run.0], start, prompt_end))
            };
            let parts = runs.iter().map(part).collect::<Result<Vec<_>>>()?;
            let largest = if let Find::Largest(count) = find { Some(count) } else { None };
            engine.compute(&parts, *limits, Results { logits, best, largest }).map(|()| None)
        })?;
        for (id, new, _) in runs {
            tokens.entry(*id).or_default().extend_from_slice(new);
        }
        Ok(next)
    }

    /// What the executable has done and what it holds.
    pub fn usage(&self) -> Usage {
        self.turns.take(|engine| engine.executable.usage())
    }

    /// Makes a sequence hold `ids` and nothing else, and leaves the last one's logits in [`logits`](Self::logits). What the
    /// sequence begins with already is kept, with recurrent layers up to a checkpoint and with windows where they still have
    /// what they see; the rest is computed in chunks of at most `max_tokens`.
    ///
    /// `progress` is told how many of the tokens are in the cache, and how many there are, before each chunk and at the
    /// end; where it returns false the sequence keeps what it has by then.
    ///
    /// # Errors
    /// As [`step`](Self::step). Bad ids and a prompt that is too long are found before anything is changed.
    pub fn prefill(
        &mut self,
        id: SequenceId,
        ids: &[u32],
        mut progress: impl FnMut(usize, usize) -> bool,
    ) -> Result<Prefill> {
        self.check_prompt(ids)?;
        let held = self.tokens(id)?;
        // The last one is computed in any case, for its logits.
        let shared = held.iter().zip(&ids[..ids.len() - 1]).take_while(|(old, new)| old == new).count();
        self.truncate(id, shared)?;
        let cached = self.turns.take(|engine| engine.cache.len(id))?;
        self.truncate(id, cached)?;
        let mut done = cached;
        while done < ids.len() {
            if !progress(done, ids.len()) {
                return Ok(Prefill { cached, complete: false });
            }
            let end = ids.len().min(done + self.limits.max_tokens);
            let wanted = if end == ids.len() { Wanted::Last } else { Wanted::None };
            self.extend(&[(id, &ids[done..end], wanted)], Find::Logits, Some(ids.len()))?;
            done = end;
        }
        Ok(Prefill { cached, complete: progress(done, ids.len()) })
    }

    /// The logits of the last step, which the caller may change.
    pub fn logits(&mut self) -> &mut [f32] {
        &mut self.logits
    }

    /// Whether steps take note of where their time goes, op by op; they do not at first.
    ///
    /// ```no_run
    /// use inkstone::Runner;
    ///
    /// let mut runner = Runner::from_gguf("Qwen3-4B-Q4_K_M.gguf")?;
    /// runner.decoder().set_profiling(true)?;
    /// runner.prefill(&[9707, 11])?;
    /// for op in runner.decoder().take_profile() {
    ///     println!("{:16} {:4} calls  {:?}", op.op, op.calls, op.time);
    /// }
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the device cannot time its ops.
    pub fn set_profiling(&mut self, on: bool) -> Result<()> {
        self.turns.take(|engine| {
            engine.settle()?;
            engine.executable.set_profiling(on)
        })
    }

    /// Takes what the steps since the last call have noted, the longest first; nothing where profiling is off.
    pub fn take_profile(&mut self) -> Vec<OpTime> {
        self.turns.take(|engine| engine.executable.take_profile())
    }

    /// Checks that a sequence could hold `ids` and nothing else.
    pub(crate) fn check_prompt(&self, ids: &[u32]) -> Result<()> {
        self.check_ids(ids)?;
        self.check_room(0, ids.len())
    }

    fn check_room(&self, held: usize, new: usize) -> Result<()> {
        let context = self.context_length();
        let free = context.saturating_sub(held);
        if new > free {
            return Err(Error::ContextFull { tokens: new, free, context, trained: self.trained_context });
        }
        Ok(())
    }

    fn check_ids(&self, ids: &[u32]) -> Result<()> {
        if ids.is_empty() {
            return Err(Error::argument("ids", "are none, but there must be at least one"));
        }
        let vocab_size = self.limits.vocab_size;
        match ids.iter().find(|&&id| id as usize >= vocab_size) {
            Some(id) => {
                Err(Error::argument("ids", format!("has {id}, which is not in the vocabulary of {vocab_size}")))
            }
            None => Ok(()),
        }
    }

    /// Does something with the cache, which then holds of this sequence what its tokens are and nothing ahead of them.
    fn with_cache_of<T: Send>(&self, id: SequenceId, act: impl FnOnce(&mut KvCache) -> Result<T> + Send) -> Result<T> {
        self.turns.take(|engine| {
            engine.forget_ahead(id)?;
            act(&mut engine.cache)
        })
    }
}

/// Another decoder for the same model and cache, with no sequence. Each has its own sequences and logits; their steps take
/// turns.
impl Clone for Decoder {
    fn clone(&self) -> Self {
        let Self { limits, context_length, trained_context, recompute, .. } = *self;
        let (turns, tokens, logits, best) = (self.turns.clone(), HashMap::new(), vec![], vec![]);
        Self { turns, limits, context_length, trained_context, recompute, tokens, logits, best }
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        let Self { turns, tokens, .. } = self;
        turns.take(|engine| {
            for id in tokens.keys() {
                // Both fail for sequences alone that are not open.
                _ = engine.forget_ahead(*id);
                _ = engine.cache.close(*id);
            }
        });
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limits, context_length, recompute, tokens, .. } = self;
        f.debug_struct("Decoder")
            .field("limits", limits)
            .field("context_length", context_length)
            .field("recompute", recompute)
            .field("sequences", &tokens.len())
            .finish_non_exhaustive()
    }
}
