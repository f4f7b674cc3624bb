//! Computes prompts in chunks.

use std::ops::Range;

use super::{
    Decoder, LogitsFor, PlacedImage, Prefill, PromptImages, StepOutput, call::Role, prefixes::Beginning,
    sequence::whole_images,
};
use crate::{Error, Result, kv_cache::SequenceId};

impl Decoder {
    /// Sets the tokens of a sequence to `ids`, and computes the logits after the last one, which
    /// [`logits_mut`](Self::logits_mut) returns. Tokens at the start that the sequence already has
    /// are not computed again (with recurrent layers up to a checkpoint, with sliding windows if
    /// their pages still exist); the rest is computed in chunks of at most
    /// [`prefill_chunk`](crate::RunnerBuilder::prefill_chunk) tokens.
    ///
    /// `progress` is called with the number of tokens in the cache and the number of all tokens,
    /// before each chunk and at the end. If it returns false, the prefill ends with the chunks
    /// computed so far.
    ///
    /// # Errors
    /// As [`step`](Self::step). For an unknown id or a prompt that is too long, the sequence is
    /// unchanged.
    pub fn prefill(
        &mut self,
        id: SequenceId,
        ids: &[u32],
        progress: impl FnMut(usize, usize) -> bool,
    ) -> Result<Prefill> {
        self.prefill_with_images(id, ids, &PromptImages::default(), progress)
    }

    /// Sets the tokens and images of a sequence like [`prefill`](Self::prefill). An image replaces
    /// as many of `ids` as it has rows.
    ///
    /// Images that are not in the sequence are encoded first, unless they were encoded before; then
    /// `progress` counts each of their rows twice, when it is encoded and when it is computed.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill); [`Error::Argument`] for images that are not in order or
    /// exceed the prompt.
    #[doc(hidden)]
    pub fn prefill_with_images(
        &mut self,
        id: SequenceId,
        ids: &[u32],
        images: &PromptImages,
        mut progress: impl FnMut(usize, usize) -> bool,
    ) -> Result<Prefill> {
        self.check_prompt(ids)?;
        self.remove_drafted(id)?;
        let ends = images.placed.iter().flat_map(|image| [image.start, image.range().end]);
        if !ends.chain([ids.len()]).is_sorted() {
            return Err(Error::argument("images", "must be in the order of their places, within the prompt"));
        }
        self.start_prompt(id);
        // The last token is always computed, for its logits.
        let Beginning { cached, branch } = self.begin(id, &ids[..ids.len() - 1], &images.placed)?;
        let encoding = |done, rows| progress(cached + done, ids.len() + rows);
        let encoded = images.encode(cached, encoding);
        let Ok(Some(rows)) = encoded else {
            self.shorten(id, cached)?;
            return encoded.map(|_| Prefill { cached, complete: false });
        };
        self.place_images(id, &images.placed)?;
        let result = self.compute_prompt(id, ids, branch, &mut |done, total| progress(done + rows, total + rows));
        if !matches!(result, Ok(true)) {
            // The images that the computed part of the prompt does not reach, or cuts, go.
            let len = self.tokens(id)?.len();
            self.shorten(id, len)?;
        }
        self.count_prompt(ids.len(), cached);
        Ok(Prefill { cached, complete: result? })
    }

    /// Sets the images of a sequence and of the tokens that come next. They must be encoded, and
    /// the sequence's tokens must have the rows of those that they reach.
    pub(in crate::generate) fn place_images(&mut self, id: SequenceId, images: &[PlacedImage]) -> Result<()> {
        self.held(id)?;
        self.tokens.entry(id).or_default().images = images.to_vec();
        Ok(())
    }

    /// Returns the end of a chunk of a sequence's tokens from `start` on that has at most `room`
    /// tokens: before an image that would not fit as a whole if its rows see each other. If it is
    /// `start`, the image is larger than the room.
    pub(in crate::generate) fn chunk_end(&self, id: SequenceId, tokens: Range<usize>, room: usize) -> Result<usize> {
        let end = tokens.end.min(tokens.start.saturating_add(room));
        Ok(whole_images(&self.held(id)?.images, end).max(tokens.start))
    }

    /// Computes the missing tokens of a prompt, chunk by chunk, and keeps them for other prompts.
    /// `branch`: the end of the beginning that other prompts have, too. Returns whether `progress`
    /// let it come to the end.
    fn compute_prompt(
        &mut self,
        id: SequenceId,
        ids: &[u32],
        branch: Option<usize>,
        progress: &mut impl FnMut(usize, usize) -> bool,
    ) -> Result<bool> {
        for end in branch.into_iter().chain([ids.len()]) {
            let mut done = self.tokens(id)?.len();
            while done < end {
                if !progress(done, ids.len()) {
                    return Ok(false);
                }
                done = self.compute_chunk(id, ids, done..end)?;
            }
            let held = self.held(id)?;
            self.turns.with_engine(|engine| engine.keep_prompt(id, held))?;
        }
        Ok(progress(ids.len(), ids.len()))
    }

    /// Computes the next chunk of a prompt, of which `tokens` are missing, and returns its end.
    fn compute_chunk(&mut self, id: SequenceId, ids: &[u32], tokens: Range<usize>) -> Result<usize> {
        let Range { start, end } = tokens.clone();
        let max_tokens = self.limits.max_tokens;
        let mut next = self.chunk_end(id, tokens, max_tokens)?;
        if next == start {
            // The step says that an image does not fit in it.
            next = end.min(start + max_tokens);
        }
        let logits_for = if next == ids.len() { LogitsFor::Last } else { LogitsFor::None };
        self.extend(&[(id, &ids[start..next], logits_for)], StepOutput::Logits, Role::PromptUntil(end))?;
        Ok(next)
    }
}
