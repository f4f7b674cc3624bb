//! How probable a text is.

use super::Runner;
use crate::{Error, Result, generate::Wanted, sampler::Logprobs};

impl Runner {
    /// How probable the model finds each token of `continuation` after `prompt` and those before it, with the `top` most
    /// probable in its place. Their sum is the log-likelihood of the continuation.
    ///
    /// The two are encoded as one text, so where a token is of both, the continuation begins with it.
    ///
    /// ```no_run
    /// use inkstone::Runner;
    ///
    /// let mut runner = Runner::from_gguf("Qwen3-4B-Q4_K_M.gguf")?;
    /// let [paris, rome] = [" Paris", " Rome"].map(|city| {
    ///     let tokens = runner.score("The capital of France is", city, 0)?;
    ///     Ok::<f32, inkstone::Error>(tokens.iter().map(|token| token.token.logprob).sum())
    /// });
    /// assert!(paris? > rome?);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a continuation without a token, or with nothing before its first; else as
    /// [`generate`](Self::generate).
    pub fn score(&mut self, prompt: &str, continuation: &str, top: usize) -> Result<Vec<Logprobs>> {
        let before = self.tokenizer.encode_prompt(prompt)?;
        let ids = self.tokenizer.encode_prompt(&format!("{prompt}{continuation}"))?;
        let from = before.iter().zip(&ids).take_while(|(a, b)| a == b).count();
        if from == ids.len() {
            return Err(Error::argument("continuation", "has no token of its own"));
        }
        if from == 0 {
            return Err(Error::argument("prompt", "has no token of its own for the continuation to follow"));
        }
        self.score_ids(&ids, from, top)
    }

    /// How probable the model finds each of `ids` from the one at `from` on, given those before it, with the `top` most
    /// probable in its place. What `ids` shares with the sequence up to there is not computed again.
    ///
    /// # Errors
    /// [`Error::Argument`] where `from` is 0 or leaves none; else as [`generate_ids`](Self::generate_ids).
    pub fn score_ids(&mut self, ids: &[u32], from: usize, top: usize) -> Result<Vec<Logprobs>> {
        if from == 0 || from >= ids.len() {
            let what = format!("is {from}, but of {} ids one must come before it and one after", ids.len());
            return Err(Error::argument("from", what));
        }
        let Self { decoder, sequence, .. } = self;
        decoder.check_prompt(ids)?;
        decoder.prefill(*sequence, &ids[..from], |_, _| true)?;
        let mut scores = vec![Logprobs::new(decoder.logits(), ids[from], top)];
        let limits = decoder.limits();
        for (chunk, next) in
            ids[from..ids.len() - 1].chunks(limits.max_outputs).zip(ids[from + 1..].chunks(limits.max_outputs))
        {
            let logits = decoder.step(&[(*sequence, chunk, Wanted::All)])?;
            let rows = logits.chunks_exact(limits.vocab_size).zip(next);
            scores.extend(rows.map(|(row, &id)| Logprobs::new(row, id, top)));
        }
        Ok(scores)
    }
}
