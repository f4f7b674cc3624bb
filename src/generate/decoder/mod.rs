//! Runs tokens through an executable, step by step.

mod admission;
mod batch;
mod best;
mod call;
mod engine;
mod images;
mod mtp;
mod pace;
mod pipelined;
mod prefill;
mod sequence;
mod session;
mod shared;
mod shared_call;
mod speculation;
mod ticket;
mod turns;
mod waiting;

use std::{
    collections::{HashMap, HashSet},
    fmt, slice,
    sync::Arc,
};

pub(super) use self::best::{ChoiceAt, Choices};
pub use self::images::{EncodeImages, ImageRows, PlacedImage, PlacedPrompt, PromptImages};
pub use self::mtp::MtpHead;
use self::{
    call::{Role, StepCall, StepRowsAt},
    engine::Engine,
    sequence::{SequenceTokens, start_of_image},
    turns::Turns,
};
pub(super) use self::{sequence::shared_tokens, ticket::OpenRequest};
use super::{
    Statistics,
    speculation::{DraftModel, Speculator, StepTimes},
};
use crate::{
    Error, Result,
    backend::{Executable, OpTime, TopLogits, Usage},
    kv_cache::{KvCache, SequenceId},
    sampler::largest,
};

/// The tokens of a run whose logits are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitsFor {
    /// No token: the run only fills the cache.
    None,
    /// The last token.
    Last,
    /// Every token.
    All,
}

/// The result of [`Decoder::prefill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefill {
    /// Number of tokens at the start that were in the cache already.
    pub cached: usize,
    /// Whether all tokens are in the cache now; false if the caller stopped the prefill.
    pub complete: bool,
}

/// The result that a call needs of its steps.
#[derive(Clone, Copy)]
enum StepOutput {
    /// All logits.
    Logits,
    /// This number of largest logits of each output; all logits if the device does not select them.
    Top(usize),
    /// The most probable next token after each token with logits. Steps of one token of each
    /// sequence are pipelined if the device can.
    Greedy,
}

impl StepOutput {
    /// Returns the number of largest logits that a device may select; `None` if all are needed.
    fn selected(self) -> Option<usize> {
        match self {
            Self::Logits => None,
            Self::Top(count) => Some(count),
            Self::Greedy => Some(1),
        }
    }
}

/// The sizes that an executable was compiled for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of tokens in the vocabulary.
    pub vocab_size: usize,
    /// The largest number of tokens in one step.
    pub max_tokens: usize,
    /// The largest number of tokens with logits in one step.
    pub max_outputs: usize,
}

/// Runs the model on batches of sequences, and keeps the tokens and the cache of each sequence.
///
/// ```
/// use inkstone::{LogitsFor, Runner};
///
/// let mut runner = Runner::from_gguf("tests/data/storyteller/storyteller.gguf")?;
/// let (prompt, vocab_size) = (runner.tokenizer().encode_prompt("Once upon a time")?, runner.config().vocab_size);
/// let decoder = runner.decoder_mut();
/// let first = decoder.open();
/// decoder.prefill(first, &prompt, |_, _| true)?;
/// let second = decoder.fork(first)?;
/// // One step appends a token to each, and returns the logits after both.
/// let logits = decoder.step(&[(first, &[258], LogitsFor::Last), (second, &[300], LogitsFor::Last)])?;
/// assert_eq!(logits.len(), 2 * vocab_size);
/// # Ok::<(), inkstone::Error>(())
/// ```
///
/// A clone starts without sequences, and shares the weights and the memory of the cache. Clones can
/// be used from several threads; steps that they want at the same time are computed as one.
pub struct Decoder {
    turns: Arc<Turns>,
    /// Tells the decoder from others of the same engine.
    number: u64,
    limits: Limits,
    context_length: usize,
    /// The longest context that the model was trained for, if it is known; errors mention it.
    trained_context: Option<usize>,
    /// Whether every step computes its sequences from their first token: the reference for tests of
    /// the cache.
    recompute: bool,
    /// The tokens of each sequence. After a truncation the cache may have fewer tokens, because
    /// recurrent layers can only return to checkpoints, and sliding windows only to pages that they
    /// still have. The next step computes the missing tokens.
    tokens: HashMap<SequenceId, SequenceTokens>,
    logits: Vec<f32>,
    /// The largest logits of each output of the last step, if the device has selected them.
    top: Vec<TopLogits>,
    /// The rows of the engine's step that has selected them.
    top_rows: StepRowsAt,
    /// Whether repetitions in a text are drafted.
    drafts_ngrams: bool,
    /// A model that drafts tokens.
    draft_model: Option<Box<DraftModel>>,
    /// The drafters of each sequence that has had any.
    speculators: HashMap<SequenceId, Speculator>,
    step_times: StepTimes,
}

impl Decoder {
    /// Returns a decoder without sequences. `executable` must have been compiled for `limits` and
    /// for the cache's layout.
    #[doc(hidden)]
    pub fn new(executable: Box<dyn Executable>, cache: KvCache, limits: Limits) -> Self {
        let context_length = cache.context_length();
        let turns = Arc::new(Turns::new(Engine::new(executable, cache)));
        Self {
            number: turns.arrivals().number(),
            turns,
            limits,
            context_length,
            trained_context: None,
            recompute: false,
            tokens: HashMap::new(),
            logits: vec![],
            top: vec![],
            top_rows: StepRowsAt::default(),
            drafts_ngrams: true,
            draft_model: None,
            speculators: HashMap::new(),
            step_times: StepTimes::default(),
        }
    }

    /// Sets the head that drafts tokens. The cache must rewrite last positions.
    #[doc(hidden)]
    pub fn with_mtp_head(self, head: MtpHead) -> Self {
        self.turns.with_engine(|engine| engine.head = Some(head));
        self
    }

    /// Sets the longest context that the model was trained for, which errors mention.
    pub(crate) fn with_trained_context(mut self, tokens: usize) -> Self {
        self.trained_context = Some(tokens);
        self
    }

    /// Sets the largest number of requests that wait for memory.
    pub(crate) fn with_max_waiting(self, requests: usize) -> Self {
        self.turns.with_engine(|engine| engine.admission.max_waiting = requests);
        self
    }

    /// Sets whether every step computes its sequences from their first token, without the cache.
    /// The results are the same except for rounding. It is slow, and meant for tests of the cache.
    #[doc(hidden)]
    pub fn with_recompute(mut self, recompute: bool) -> Self {
        self.recompute = recompute;
        self
    }

    /// Returns the sizes that the executable was compiled for.
    #[doc(hidden)]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the largest number of tokens in a sequence.
    pub fn context_length(&self) -> usize {
        self.context_length
    }

    /// Opens an empty sequence.
    pub fn open(&mut self) -> SequenceId {
        let id = self.turns.with_engine(|engine| engine.cache.open());
        self.tokens.insert(id, SequenceTokens::default());
        id
    }

    /// Opens a sequence with the tokens of `id`. This takes no computation, and no memory until one
    /// of the two grows.
    ///
    /// # Errors
    /// [`Error::Argument`] if the sequence is not open.
    pub fn fork(&mut self, id: SequenceId) -> Result<SequenceId> {
        self.remove_drafted(id)?;
        let tokens = self.held(id)?.clone();
        let fork = self.turns.with_engine(|engine| engine.fork(id))?;
        self.tokens.insert(fork, tokens);
        Ok(fork)
    }

    /// Closes a sequence, and frees its memory.
    ///
    /// # Errors
    /// [`Error::Argument`] if the sequence is not open.
    pub fn close(&mut self, id: SequenceId) -> Result<()> {
        self.tokens(id)?;
        self.turns.with_engine(|engine| engine.close(id))?;
        self.tokens.remove(&id);
        self.speculators.remove(&id);
        Ok(())
    }

    /// Removes the tokens of a sequence from position `len` on, and an image that `len` cuts as a
    /// whole; has no effect if the sequence is shorter.
    ///
    /// # Errors
    /// [`Error::Argument`] if the sequence is not open.
    pub fn truncate(&mut self, id: SequenceId, len: usize) -> Result<()> {
        let len = start_of_image(&self.held(id)?.images, len);
        self.turns.with_engine(|engine| {
            engine.discard_pipelined(id)?;
            engine.truncate(id, len, len)
        })?;
        if let Some(tokens) = self.tokens.get_mut(&id) {
            tokens.truncate(len);
        }
        Ok(())
    }

    /// Returns the tokens of a sequence. The ids of tokens in the place of an image's rows are 0.
    ///
    /// # Errors
    /// [`Error::Argument`] if the sequence is not open.
    pub fn tokens(&self, id: SequenceId) -> Result<&[u32]> {
        self.held(id).map(|held| held.text_and_drafted().0)
    }

    fn held(&self, id: SequenceId) -> Result<&SequenceTokens> {
        self.tokens.get(&id).ok_or_else(|| Error::argument("sequence", "is not open in this decoder"))
    }

    /// Appends tokens to sequences, in one ragged batch if they fit in a step, and returns the
    /// requested logits, `[tokens with logits, vocabulary]`, in the order of `runs`. The caller may
    /// change them.
    ///
    /// A token's logits are the same bits whichever tokens are computed beside it: on the CPU in
    /// any step, on a GPU in steps of up to 16 tokens.
    ///
    /// After an error, every sequence is unchanged.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that is not open or occurs twice, a run without tokens,
    /// or an id that is not in the vocabulary; [`Error::ContextFull`] if the context has no room
    /// for the tokens; errors of the cache's memory limit and of the device.
    pub fn step(&mut self, runs: &[(SequenceId, &[u32], LogitsFor)]) -> Result<&mut [f32]> {
        self.extend(runs, StepOutput::Logits, Role::Given)?;
        Ok(&mut self.logits)
    }

    /// Appends tokens to sequences, and returns the most probable next tokens if `output` asks for
    /// them.
    fn extend(
        &mut self,
        runs: &[(SequenceId, &[u32], LogitsFor)],
        output: StepOutput,
        role: Role,
    ) -> Result<Option<Vec<u32>>> {
        let mut seen = HashSet::new();
        for (id, new, _) in runs {
            self.remove_drafted(*id)?;
            self.check_room(self.tokens(*id)?.len(), new.len())?;
            self.check_ids(new)?;
            self.ticket(*id)?;
            if !seen.insert(*id) {
                return Err(Error::argument("sequence", "occurs twice in one batch: append its tokens in one run"));
            }
        }
        let Self { turns, limits, recompute, tokens, logits, top, top_rows, .. } = self;
        let (limits, recompute) = (*limits, *recompute);
        let mut call = StepCall {
            runs,
            held: tokens,
            limits,
            recompute,
            output,
            role,
            logits,
            top,
            most_probable: None,
            rows: StepRowsAt::default(),
        };
        turns.step(&mut call)?;
        let StepCall { most_probable, rows, .. } = call;
        *top_rows = rows;
        let next = match (output, most_probable) {
            (StepOutput::Greedy, None) => Some(chosen_from(logits, limits.vocab_size)?),
            (StepOutput::Logits | StepOutput::Top(_) | StepOutput::Greedy, chosen) => chosen,
        };
        for (id, new, _) in runs {
            let held = tokens.entry(*id).or_default();
            held.ids.extend_from_slice(new);
            held.ends_pipeline = false;
        }
        Ok(next)
    }

    /// Returns the executable's counts of work and memory.
    #[doc(hidden)]
    pub fn usage(&self) -> Usage {
        self.turns.with_engine(|engine| {
            let usage = engine.executable.usage();
            let head = engine.head.as_ref().map_or(0, MtpHead::device_bytes);
            Usage { device_bytes: usage.device_bytes + head, ..usage }
        })
    }

    /// Returns a snapshot of the engine's work, up to the last step that has ended.
    pub fn statistics(&self) -> Statistics {
        self.turns.statistics()
    }

    /// Returns the logits of the last step, which the caller may change.
    pub fn logits_mut(&mut self) -> &mut [f32] {
        &mut self.logits
    }

    /// Sets whether steps measure the time of each op. Off by default.
    ///
    /// ```no_run
    /// use inkstone::Runner;
    ///
    /// let mut runner = Runner::from_gguf("Qwen3-4B-Q4_K_M.gguf")?;
    /// runner.decoder_mut().set_profiling(true)?;
    /// runner.prefill(&[9707, 11])?;
    /// for op in runner.decoder_mut().take_profile() {
    ///     println!("{:16} {:4} calls  {:?}", op.op, op.calls, op.time);
    /// }
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device cannot measure the time of ops.
    pub fn set_profiling(&mut self, on: bool) -> Result<()> {
        self.turns.with_engine(|engine| {
            engine.settle()?;
            engine.executable.set_profiling(on)
        })
    }

    /// Returns the times of the steps since the last call, the longest first; empty if profiling is
    /// off.
    pub fn take_profile(&mut self) -> Vec<OpTime> {
        self.turns.with_engine(|engine| engine.executable.take_profile())
    }

    /// Checks that `ids` are a valid prompt that fits in the context.
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
            return Err(Error::argument("ids", "must not be empty: pass at least one id"));
        }
        let vocab_size = self.limits.vocab_size;
        match ids.iter().find(|&&id| id as usize >= vocab_size) {
            Some(id) => {
                Err(Error::argument("ids", format!("has the id {id}, but the vocabulary has {vocab_size} tokens")))
            }
            None => Ok(()),
        }
    }
}

/// Returns a run for each token, with logits.
fn single_runs(tokens: &[(SequenceId, u32)]) -> Vec<(SequenceId, &[u32], LogitsFor)> {
    tokens.iter().map(|(id, token)| (*id, slice::from_ref(token), LogitsFor::Last)).collect()
}

/// Returns the most probable token of each row of logits, which are then removed.
fn chosen_from(logits: &mut Vec<f32>, vocab_size: usize) -> Result<Vec<u32>> {
    let chosen = logits.chunks(vocab_size).map(|row| Ok(largest(row)?.id)).collect();
    logits.clear();
    chosen
}

/// Returns a decoder without sequences for the same model and cache. Each decoder has its own
/// sequences and logits; the steps of all run one at a time.
impl Clone for Decoder {
    fn clone(&self) -> Self {
        let Self { limits, context_length, trained_context, recompute, drafts_ngrams, .. } = *self;
        Self {
            turns: self.turns.clone(),
            number: self.turns.arrivals().number(),
            limits,
            context_length,
            trained_context,
            recompute,
            tokens: HashMap::new(),
            logits: vec![],
            top: vec![],
            top_rows: StepRowsAt::default(),
            drafts_ngrams,
            draft_model: self.draft_model.clone(),
            speculators: HashMap::new(),
            step_times: self.step_times.clone(),
        }
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        let Self { turns, tokens, .. } = self;
        turns.with_engine(|engine| {
            for id in tokens.keys() {
                // Only fails for sequences that are not open.
                _ = engine.close(*id);
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
