//! Simulates an executable: its cache holds token ids, and its logits are a function of all the ids
//! that it finds there. Errors of the decode loop in pages, positions, copies or rows thus change
//! the logits.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use inkstone::{
    CacheType, DType, Decoder, Error, Result,
    internals::{
        backend::{ChosenTokens, Executable, NextToken, Pipelined, Run, Step, TokenLogit, TopLogits},
        generate::{Limits, MtpHead},
        graph::{Builder, LayerCache, Scores, Window},
        kv_cache::{CacheLayout, KvCache, PAGE_POSITIONS, PageId, PageTable, StateId},
    },
};

/// The logits after some ids.
type LogitsOf = dyn Fn(&[u32]) -> Vec<f32> + Send;

pub struct Recorder {
    /// The sliding window of each group of layers, in positions.
    windows: Vec<Option<usize>>,
    /// The pages of each group.
    pages: Vec<Vec<[u32; PAGE_POSITIONS]>>,
    /// The states of a model with recurrent layers, by id: all token ids that each has seen.
    states: Option<Vec<Vec<u32>>>,
    computed: Arc<AtomicUsize>,
    rows_read: Arc<AtomicUsize>,
    limits: Limits,
    logits_of: Box<LogitsOf>,
    /// The number of steps before one fails.
    failure: Option<usize>,
    /// The limits of the cache: full pages of all groups of layers, and states.
    cache_limits: Option<[usize; 2]>,
    /// The number of pages of each group for which the device has memory.
    device_pages: usize,
    /// Whether it returns the largest logits itself.
    sorts: bool,
    logits: Vec<f32>,
    /// The history of each token of the last step, as two numbers.
    hidden: Vec<f32>,
    best: Vec<TopLogits>,
    /// The tokens that pipelined steps have chosen and that have not been taken; `None` without
    /// pipelining.
    chosen: Option<VecDeque<ChosenTokens>>,
    /// The tokens that the last pipelined step has chosen.
    last_chosen: Vec<u32>,
    /// Whether the cache keeps earlier texts.
    keeps: bool,
}

impl Recorder {
    pub fn new(limits: Limits, logits_of: impl Fn(&[u32]) -> Vec<f32> + Send + 'static) -> Self {
        Self {
            windows: vec![None],
            pages: vec![vec![]],
            states: None,
            computed: Arc::default(),
            rows_read: Arc::default(),
            limits,
            logits_of: Box::new(logits_of),
            failure: None,
            cache_limits: None,
            device_pages: usize::MAX,
            sorts: false,
            logits: vec![],
            hidden: vec![],
            best: vec![],
            chosen: None,
            last_chosen: vec![],
            keeps: false,
        }
    }

    /// Keeps earlier texts in a cache of this number of pages of each group and of states.
    pub fn keeping(self, pages: usize, states: usize) -> Self {
        Self { keeps: true, ..self.limited(pages, states) }
    }

    /// Pipelines steps: each starts with the token that the step before has chosen, as on a GPU.
    pub fn running_pipelined(mut self) -> Self {
        self.chosen = Some(VecDeque::new());
        self
    }

    /// Fails once, after `steps` successful steps, without any effect.
    pub fn failing_after(mut self, steps: usize) -> Self {
        self.failure = Some(steps);
        self
    }

    /// Limits the cache to `pages` pages of each group of layers, and `states` states.
    pub fn limited(mut self, pages: usize, states: usize) -> Self {
        self.cache_limits = Some([pages, states]);
        self
    }

    /// Has memory for this number of pages of each group, whatever the cache allows.
    pub fn with_device_pages(mut self, pages: usize) -> Self {
        self.device_pages = pages;
        self
    }

    /// Adds recurrent layers, whose states must have seen the same ids as the pages hold.
    pub fn recurrent(mut self) -> Self {
        self.states = Some(vec![]);
        self
    }

    /// Adds layers with a sliding window, which must find the same ids within it as the other
    /// layers.
    pub fn windowed(mut self, window: usize) -> Self {
        self.windows.push(Some(window));
        self.pages.push(vec![]);
        self
    }

    /// Returns the number of tokens that have been computed.
    pub fn computed(&self) -> Arc<AtomicUsize> {
        self.computed.clone()
    }

    /// Returns the number of rows of logits that were read after a step that returned the largest
    /// ones.
    pub fn rows_read(&self) -> Arc<AtomicUsize> {
        self.rows_read.clone()
    }

    /// Returns the largest logits itself, by sorting them all.
    pub fn sorting(mut self) -> Self {
        self.sorts = true;
        self
    }

    pub fn into_decoder(self, context_length: usize) -> Decoder {
        let limits = self.limits;
        let cache = self.cache(context_length);
        Decoder::new(Box::new(self), cache, limits)
    }

    /// Adds a head that predicts, for a token after a history, `logits_of` the history.
    pub fn with_head(self, context_length: usize, logits_of: fn(u32) -> Vec<f32>) -> Decoder {
        let limits = self.limits;
        let cache = self.cache(context_length).rewriting_last();
        let head = HeadRecorder { pages: vec![], logits_of, logits: vec![], hidden: vec![] };
        let head = MtpHead::new(Box::new(head), 2, limits.max_tokens);
        Decoder::new(Box::new(self), cache, limits).with_mtp_head(head)
    }

    fn cache(&self, context_length: usize) -> KvCache {
        let layout = self.layout();
        let cache = KvCache::new(&layout, context_length);
        let Some([pages, states]) = self.cache_limits else { return cache };
        let bytes = layout.groups.iter().map(|group| (pages * group.page_bytes) as u64).sum();
        let cache = cache.with_limits(bytes, states);
        if self.keeps { cache.keeping(bytes, states) } else { cache }
    }

    /// Returns the cache layout of a graph with these layers.
    fn layout(&self) -> CacheLayout {
        let mut b = Builder::new();
        let tokens = b.tokens();
        let table = b.weight("table", DType::F32, self.limits.vocab_size, 16);
        let mut x = b.embed(table, tokens);
        for window in &self.windows {
            let scores = Scores { window: window.map(Window::Sliding), ..1.0.into() };
            x = b.attention([x, x, x], LayerCache { kv_heads: 1, head_dim: 16, keys_only: false }, 1, scores);
        }
        if self.states.is_some() {
            let w = b.weight("conv", DType::F32, 16, 4);
            x = b.short_conv(x, w);
        }
        let logits = b.matmul(x, table);
        CacheLayout::new(&b.finish(logits).unwrap(), CacheType::F32).unwrap()
    }

    /// Updates the state of a run by its tokens, and returns all ids that it has seen then.
    fn advance(&mut self, run: &Run<'_>, tokens: &[u32]) -> Option<Vec<u32>> {
        let states = self.states.as_mut()?;
        let update = run.state.expect("runs of recurrent models have states");
        let mut seen = update.from.map_or(vec![], |id| states[id.index()].clone());
        assert_eq!(seen.len(), run.start, "the state is that of another position");
        seen.extend(tokens);
        let mut set = |id: StateId, seen: &[u32]| {
            states.resize(states.len().max(id.index() + 1), vec![]);
            states[id.index()] = seen.to_vec();
        };
        update.checkpoints.iter().for_each(|(at, id)| set(*id, &seen[..*at]));
        set(update.to, &seen);
        Some(seen)
    }

    fn page(&mut self, id: PageId) -> &mut [u32; PAGE_POSITIONS] {
        let pages = &mut self.pages[id.group()];
        if pages.len() <= id.index() {
            pages.resize(id.index() + 1, [u32::MAX; PAGE_POSITIONS]);
        }
        &mut pages[id.index()]
    }

    /// Returns the ids in the attention window of the token at `position`, in a group of layers.
    fn seen(&mut self, run: &Run<'_>, group: usize, position: usize) -> Vec<u32> {
        let first = self.windows[group].map_or(0, |window| (position + 1).saturating_sub(window));
        let at = |p: usize| run.pages[group].page(p).unwrap_or_else(|| panic!("position {p} was given back"));
        (first..=position).map(|p| self.page(at(p))[p % PAGE_POSITIONS]).collect()
    }
}

impl Executable for Recorder {
    fn run(&mut self, step: &Step<'_>) -> Result<&[f32]> {
        match &mut self.failure {
            Some(0) => {
                self.failure = None;
                return Err(Error::Unsupported("this step was to fail".into()));
            }
            Some(steps) => *steps -= 1,
            None => {}
        }
        if step
            .runs
            .iter()
            .flat_map(|run| run.pages)
            .flat_map(PageTable::pages)
            .any(|page| page.index() >= self.device_pages)
        {
            return Err(Error::DeviceMemory { device: "a recorder".into(), what: "pages".into(), needed: 1 });
        }
        assert!(!step.tokens.is_empty() && step.tokens.len() <= self.limits.max_tokens);
        assert!(step.outputs.len() <= self.limits.max_outputs && step.outputs.is_sorted());
        assert_eq!(step.runs.iter().map(|run| run.len).sum::<usize>(), step.tokens.len());
        for &(from, to) in step.copies {
            let copy = *self.page(from);
            *self.page(to) = copy;
        }
        self.logits.clear();
        self.hidden.clear();
        check_states(step);
        let mut first = 0;
        self.computed.fetch_add(step.tokens.len(), Relaxed);
        for run in step.runs {
            let seen = self.advance(run, &step.tokens[first..first + run.len]);
            for (index, &token) in step.tokens[first..first + run.len].iter().enumerate() {
                let position = run.start + index;
                for table in run.pages {
                    self.page(table.page(position).unwrap())[position % PAGE_POSITIONS] = token;
                }
            }
            let seen_last = self.seen(run, 0, run.start + run.len - 1);
            for len in run.start + 1..=run.start + run.len {
                // With windows, no history is known; heads are tested without.
                let known = &seen_last[..len.min(seen_last.len())];
                self.hidden.extend(to_row(history(known)));
            }
            for &output in step.outputs.iter().filter(|&&output| (first..first + run.len).contains(&output)) {
                let len = run.start + output - first + 1;
                let ids = self.seen(run, 0, len - 1);
                for group in 1..self.windows.len() {
                    assert!(ids.ends_with(&self.seen(run, group, len - 1)), "the groups differ");
                }
                assert!(seen.as_ref().is_none_or(|seen| seen[..len] == ids), "the state and the pages differ");
                self.logits.extend((self.logits_of)(&ids));
            }
            first += run.len;
        }
        Ok(&self.logits)
    }

    fn hidden(&mut self) -> Result<&[f32]> {
        Ok(&self.hidden)
    }

    fn best(&mut self, step: &Step<'_>, count: usize) -> Result<Option<&[TopLogits]>> {
        if !self.sorts {
            return Ok(None);
        }
        let vocab_size = self.limits.vocab_size;
        let top = |row: &[f32]| TopLogits { best: best_of(row, count), log_sum: log_sum(row) };
        self.best = self.run(step)?.chunks(vocab_size).map(top).collect();
        Ok(Some(&self.best))
    }

    fn logits_of_last(&mut self, output: usize) -> Result<&[f32]> {
        self.rows_read.fetch_add(1, Relaxed);
        let vocab_size = self.limits.vocab_size;
        Ok(&self.logits[output * vocab_size..(output + 1) * vocab_size])
    }

    fn pipelined(&mut self) -> Option<&mut dyn Pipelined> {
        if self.chosen.is_some() { Some(self) } else { None }
    }
}

impl Pipelined for Recorder {
    fn start(&mut self, tokens: &[NextToken], runs: &[Run<'_>], copies: &[(PageId, PageId)]) -> Result<()> {
        let id = |token: &NextToken| match *token {
            NextToken::Given(id) => id,
            NextToken::Chosen(row) => self.last_chosen[row],
        };
        let tokens: Vec<_> = tokens.iter().map(id).collect();
        let outputs: Vec<_> = (0..tokens.len()).collect();
        let vocab_size = self.limits.vocab_size;
        let logits = self.run(&Step { tokens: &tokens, runs, outputs: &outputs, copies, ..Default::default() })?;
        self.last_chosen = logits.chunks(vocab_size).map(|row| best_of(row, 1)[0].id).collect();
        let ids = self.last_chosen.iter().copied().map(Some).collect();
        let step = ChosenTokens { ids, hidden: self.hidden.clone() };
        self.chosen.as_mut().expect("steps are pipelined").push_back(step);
        Ok(())
    }

    fn take(&mut self) -> Result<ChosenTokens> {
        Ok(self.chosen.as_mut().and_then(VecDeque::pop_front).expect("a step was started"))
    }
}

/// Returns a number for a history of tokens.
pub fn history(ids: &[u32]) -> u32 {
    ids.iter().fold(17, |history, id| follow(history, *id))
}

/// Returns the history of which a token is the last one.
fn follow(history: u32, id: u32) -> u32 {
    history.wrapping_mul(31).wrapping_add(id + 1)
}

/// Returns a history as two numbers that f32 has exactly.
fn to_row(history: u32) -> [f32; 2] {
    [(history >> 16) as f32, (history & 0xffff) as f32]
}

/// Simulates a head for multi-token prediction: a hidden row is the history of a token, and the
/// cache holds the history and the token of each row. The head checks that every row follows the
/// rows before it, so that errors in pages, positions, copies and pending rows are found.
struct HeadRecorder {
    pages: Vec<[Option<(u32, u32)>; PAGE_POSITIONS]>,
    logits_of: fn(u32) -> Vec<f32>,
    logits: Vec<f32>,
    hidden: Vec<f32>,
}

impl HeadRecorder {
    fn page(&mut self, id: PageId) -> &mut [Option<(u32, u32)>; PAGE_POSITIONS] {
        if self.pages.len() <= id.index() {
            self.pages.resize(id.index() + 1, [None; PAGE_POSITIONS]);
        }
        &mut self.pages[id.index()]
    }
}

impl Executable for HeadRecorder {
    fn run(&mut self, step: &Step<'_>) -> Result<&[f32]> {
        for &(from, to) in step.copies {
            *self.page(to) = *self.page(from);
        }
        let [run] = step.runs else { panic!("a head computes one sequence") };
        assert_eq!((run.len, step.rows.tokens.len()), (step.tokens.len(), step.tokens.len()));
        let page = |position: usize| run.pages[0].page(position).expect("the position has a page");
        for (index, (id, row)) in step.tokens.iter().zip(step.rows.elements.chunks(2)).enumerate() {
            let before = (row[0] as u32) << 16 | row[1] as u32;
            let position = run.start + index;
            self.page(page(position))[position % PAGE_POSITIONS] = Some((before, *id));
        }
        let last = run.start + run.len - 1;
        let rows: Vec<_> =
            (0..=last).map(|row| self.page(page(row))[row % PAGE_POSITIONS].expect("the row was computed")).collect();
        for pair in rows.windows(2) {
            assert_eq!(follow(pair[0].0, pair[0].1), pair[1].0, "a row does not follow the row before it");
        }
        assert!(step.outputs.is_empty() || step.outputs == [run.len - 1]);
        let now = follow(rows[last].0, rows[last].1);
        self.logits = (self.logits_of)(now);
        self.hidden = to_row(now).to_vec();
        Ok(&self.logits)
    }

    fn hidden(&mut self) -> Result<&[f32]> {
        Ok(&self.hidden)
    }
}

/// Checks that no run reads or writes a state that another run writes.
fn check_states(step: &Step<'_>) {
    let states = || step.runs.iter().filter_map(|run| run.state).enumerate();
    for (writer, state) in states() {
        let written = || state.checkpoints.iter().map(|(_, id)| id).chain([&state.to]);
        for (_, other) in states().filter(|(other, _)| *other != writer) {
            assert!(written().all(|id| other.ids().all(|used| used != *id)), "two runs share a state that one writes");
        }
    }
}

/// Returns the logarithm of the sum of exponentials, in f64.
pub fn log_sum(logits: &[f32]) -> f32 {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - highest).exp()).sum();
    (f64::from(highest) + sum.ln()) as f32
}

/// Returns the `count` largest logits, largest first; NaN precedes numbers, and equal logits are in
/// the order of their ids.
pub fn best_of(logits: &[f32], count: usize) -> Vec<TokenLogit> {
    let mut all: Vec<_> = (0u32..).zip(logits).map(|(id, &logit)| TokenLogit { id, logit }).collect();
    let order = |token: &TokenLogit| if token.logit.is_nan() { f32::NAN.abs() } else { token.logit };
    all.sort_by(|a, b| order(b).total_cmp(&order(a)).then(a.id.cmp(&b.id)));
    all.truncate(count);
    all
}
