//! Computes the log-probabilities of given texts.

use std::{mem, ops::Range};

use super::Runner;
use crate::{
    Error, Result,
    generate::{Decoder, LogitsFor, Prompt},
    kv_cache::SequenceId,
    sampler::Logprobs,
};

impl Runner {
    /// Returns the log-probability of each token of `continuation` after `prompt`, with the `top`
    /// most probable tokens at its position. Their sum is the log-likelihood of the continuation.
    ///
    /// If both are text, they are encoded as one text; a token that spans both belongs to the
    /// continuation. If the prompt is token ids (a rendered chat template, for example), a
    /// continuation of text is encoded by
    /// [`encode_continuation`](crate::tokenizer::Tokenizer::encode_continuation).
    ///
    /// ```no_run
    /// use inkstone::Runner;
    ///
    /// let mut runner = Runner::from_gguf("Qwen3-4B-Q4_K_M.gguf")?;
    /// let tokens = runner.score("The capital of France is", " Paris", 0)?;
    /// let log_likelihood: f32 = tokens.iter().map(|token| token.token.logprob).sum();
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a continuation without tokens, or without a token before it;
    /// otherwise as [`generate`](Self::generate).
    pub fn score<'p, 'c>(
        &mut self,
        prompt: impl Into<Prompt<'p>>,
        continuation: impl Into<Prompt<'c>>,
        top: usize,
    ) -> Result<Vec<Logprobs>> {
        let prompt = prompt.into();
        let before = self.ids_of(&prompt)?;
        let Label { ids, from, .. } = self.label(&prompt, &before, &continuation.into())?;
        self.score_ids(&ids, from, top)
    }

    /// Scores each of `labels` after `prefix`, as [`score`](Self::score) does for one, and returns
    /// the scores in the order of the labels. This can classify a text by log-likelihoods. `prefix`
    /// is computed once, and up to 16 tokens of labels in each step.
    ///
    /// ```no_run
    /// use inkstone::Runner;
    ///
    /// let mut runner = Runner::from_gguf("Qwen3-4B-Q4_K_M.gguf")?;
    /// let review = "The lamp broke after a day.\nThis review is";
    /// let labels = [" positive", " negative", " neutral"];
    /// let scores = runner.score_many(review, labels, 0)?;
    /// let likelihood = |label: usize| scores[label].iter().map(|token| token.token.logprob).sum::<f32>();
    /// let best = (0..labels.len()).max_by(|&a, &b| likelihood(a).total_cmp(&likelihood(b)));
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// Afterwards the runner's sequence has the prefix.
    ///
    /// # Errors
    /// [`Error::Request`] with the index of a label and its error, as of [`score`](Self::score),
    /// before any computation. Errors of the device.
    pub fn score_many<'p, 'l>(
        &mut self,
        prefix: impl Into<Prompt<'p>>,
        labels: impl IntoIterator<Item: Into<Prompt<'l>>>,
        top: usize,
    ) -> Result<Vec<Vec<Logprobs>>> {
        let prefix = prefix.into();
        let before = self.ids_of(&prefix)?;
        let labels = labels.into_iter().enumerate().map(|(index, label)| {
            let label = self.label(&prefix, &before, &label.into());
            label
                .and_then(|label| self.decoder.check_prompt(&label.ids).map(|()| label))
                .map_err(|error| error.in_request(index))
        });
        let labels = labels.collect::<Result<Vec<_>>>()?;
        // The tokens of the prefix that all labels share; encoding may change its last tokens.
        let Some(common) = labels.iter().map(|label| label.from).min() else { return Ok(vec![]) };
        let Self { decoder, sequence, .. } = self;
        decoder.prefill(*sequence, &before[..common], |_, _| true)?;
        let mut scoring = Scoring { decoder, prefix: *sequence, common, labels, top };
        scoring.run()?;
        let labels = mem::take(&mut scoring.labels);
        drop(scoring);
        // If memory has no room for a fork beside the prefix, the label replaces the prefix.
        let scored = labels.into_iter().map(|label| {
            if label.is_scored() { Ok(label.scores) } else { self.score_ids(&label.ids, label.from, top) }
        });
        scored.collect()
    }

    /// Returns the log-probability of each id from index `from` on, given the ids before it, with
    /// the `top` most probable tokens at its position. Ids before `from` that the sequence already
    /// has are not computed again.
    ///
    /// # Errors
    /// [`Error::Argument`] if `from` is 0 or not below the number of ids; otherwise as
    /// [`generate_ids`](Self::generate_ids).
    pub fn score_ids(&mut self, ids: &[u32], from: usize, top: usize) -> Result<Vec<Logprobs>> {
        if from == 0 || from >= ids.len() {
            let what = format!("is {from}, but must be at least 1 and less than the number of ids, {}", ids.len());
            return Err(Error::argument("from", what));
        }
        let Self { decoder, sequence, .. } = self;
        decoder.check_prompt(ids)?;
        decoder.prefill(*sequence, &ids[..from], |_, _| true)?;
        let mut scores = vec![Logprobs::new(decoder.logits_mut(), ids[from], top)];
        let limits = decoder.limits();
        for (chunk, next) in
            ids[from..ids.len() - 1].chunks(limits.max_outputs).zip(ids[from + 1..].chunks(limits.max_outputs))
        {
            let logits = decoder.step(&[(*sequence, chunk, LogitsFor::All)])?;
            let rows = logits.chunks_exact(limits.vocab_size).zip(next);
            scores.extend(rows.map(|(row, &id)| Logprobs::new(row, id, top)));
        }
        Ok(scores)
    }

    fn ids_of(&self, prompt: &Prompt<'_>) -> Result<Vec<u32>> {
        match prompt {
            Prompt::Text(text) => self.tokenizer.encode_prompt(text),
            Prompt::Ids(_) | Prompt::Parts(_) => prompt.clone().into_ids(&self.tokenizer),
        }
    }

    /// Returns the label of a continuation; `before` are the ids of the prompt.
    fn label(&self, prompt: &Prompt<'_>, before: &[u32], continuation: &Prompt<'_>) -> Result<Label> {
        let ids = match (prompt, continuation) {
            (Prompt::Text(prompt), Prompt::Text(text)) => self.tokenizer.encode_prompt(&format!("{prompt}{text}"))?,
            (_, Prompt::Text(text)) => [before, &self.tokenizer.encode_continuation(text)?].concat(),
            (_, Prompt::Ids(ids)) => [before, ids].concat(),
            (_, Prompt::Parts(_)) => return Err(Error::argument("continuation", "must be one text, or ids")),
        };
        let from = before.iter().zip(&ids).take_while(|(left, right)| left == right).count();
        if from == ids.len() {
            return Err(Error::argument("continuation", "adds no token to the prompt: it must not be empty"));
        }
        if from == 0 {
            return Err(Error::argument("prompt", "has no token before the continuation: it must not be empty"));
        }
        Ok(Label { ids, from, computed: 0, sequence: None, scores: vec![] })
    }
}

/// A continuation of a prefix, and its scores so far.
struct Label {
    /// The ids of prefix and continuation.
    ids: Vec<u32>,
    /// Index of the continuation's first id.
    from: usize,
    /// Number of computed ids.
    computed: usize,
    /// The fork of the prefix, while the label is computed.
    sequence: Option<SequenceId>,
    scores: Vec<Logprobs>,
}

/// Scores labels in forks of their prefix, and closes the forks when it is dropped.
struct Scoring<'a> {
    decoder: &'a mut Decoder,
    prefix: SequenceId,
    /// Number of ids in `prefix`.
    common: usize,
    labels: Vec<Label>,
    top: usize,
}

/// The tokens of one label in a step.
struct LabelRun {
    /// Index of the label.
    label: usize,
    /// Range of the label's ids.
    tokens: Range<usize>,
}

impl Scoring<'_> {
    /// Scores the labels for which there is memory. The decoder has the logits after the prefix.
    fn run(&mut self) -> Result<()> {
        let Self { decoder, common, labels, top, .. } = self;
        let logits = &*decoder.logits_mut();
        for label in labels {
            label.add_scores(*common, [logits].into_iter(), *top);
        }
        let mut at_once = self.decoder.limits().max_outputs;
        loop {
            let runs = self.next_runs(at_once)?;
            if runs.is_empty() {
                return Ok(());
            }
            match self.step(&runs) {
                Err(error) if error.is_out_of_memory() => {
                    at_once = runs.len() - 1;
                    self.start_over(runs[at_once].label)?;
                }
                stepped => stepped?,
            }
        }
    }

    /// Returns the tokens of the next step: tokens of up to `at_once` labels, as many as one step
    /// computes logits for.
    fn next_runs(&mut self, at_once: usize) -> Result<Vec<LabelRun>> {
        let mut room = self.decoder.limits().max_outputs;
        let mut runs = vec![];
        for (index, label) in self.labels.iter_mut().enumerate() {
            if label.is_scored() {
                continue;
            }
            let end = (label.ids.len() - 1).min(label.computed + room);
            if room == 0 || runs.len() == at_once {
                break;
            }
            if label.sequence.is_none() {
                label.sequence = Some(self.decoder.fork(self.prefix)?);
            }
            runs.push(LabelRun { label: index, tokens: label.computed..end });
            room -= end - label.computed;
        }
        Ok(runs)
    }

    fn step(&mut self, runs: &[LabelRun]) -> Result<()> {
        let Self { decoder, labels, top, .. } = self;
        let vocab_size = decoder.limits().vocab_size;
        let batch = runs.iter().filter_map(|run| {
            let label = &labels[run.label];
            Some((label.sequence?, &label.ids[run.tokens.clone()], LogitsFor::All))
        });
        let mut rows = decoder.step(&batch.collect::<Vec<_>>())?.chunks_exact(vocab_size);
        for LabelRun { label, tokens } in runs {
            labels[*label].add_scores(tokens.end, rows.by_ref().take(tokens.len()), *top);
        }
        for run in runs {
            let label = &mut labels[run.label];
            if label.is_scored()
                && let Some(sequence) = label.sequence.take()
            {
                decoder.discard(sequence)?;
            }
        }
        Ok(())
    }

    /// Closes the fork of a label to free its memory. The label is computed again later.
    fn start_over(&mut self, index: usize) -> Result<()> {
        let Self { decoder, common, labels, .. } = self;
        let label = &mut labels[index];
        label.scores.truncate(usize::from(label.from == *common));
        label.computed = *common;
        label.sequence.take().map_or(Ok(()), |sequence| decoder.discard(sequence))
    }
}

impl Drop for Scoring<'_> {
    fn drop(&mut self) {
        for sequence in self.labels.iter().filter_map(|label| label.sequence) {
            // It can only fail after an error of the device, which the caller has received.
            _ = self.decoder.discard(sequence);
        }
    }
}

impl Label {
    /// Returns whether all scores are known; the last id needs only the logits of the id before it.
    fn is_scored(&self) -> bool {
        self.computed == self.ids.len() - 1
    }

    /// Scores the ids that follow the last rows: `rows` has a row of logits for each of the last
    /// computed ids, of which there are now `computed`.
    fn add_scores<'l>(&mut self, computed: usize, rows: impl ExactSizeIterator<Item = &'l [f32]>, top: usize) {
        let first = computed - rows.len() + 1;
        self.computed = computed;
        for (index, row) in (first..).zip(rows).skip(self.from.saturating_sub(first)) {
            self.scores.push(Logprobs::new(row, self.ids[index], top));
        }
    }
}
