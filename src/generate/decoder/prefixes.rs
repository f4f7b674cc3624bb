//! Keeps the computed beginnings of texts for later texts of all decoders.
//!
//! A sequence that is closed, or whose tokens are replaced, stays in the cache while no open
//! sequence needs its memory. So does the prompt of an open sequence, up to its last full page or
//! checkpoint. A prompt takes the kept pages and states if they have more of its tokens than its
//! own sequence. Bits do not depend on it, because a token's keys, values and states are those
//! that the prompt would compute.

use std::sync::{Arc, Weak};

use super::{
    Decoder,
    engine::Engine,
    images::{ImageRows, PlacedImage},
    sequence::{SequenceTokens, shared_tokens, start_of_image},
};
use crate::{
    Result,
    kv_cache::{PAGE_POSITIONS, SequenceId},
    profile::FEW_ROWS,
};

/// Largest number of kept sequences, each of which is compared with every prompt.
const MAX_KEPT: usize = 64;

/// The tokens of the kept sequences.
#[derive(Default)]
pub(super) struct KeptPrefixes {
    kept: Vec<KeptPrefix>,
}

/// The tokens of a kept sequence.
struct KeptPrefix {
    sequence: SequenceId,
    ids: Vec<u32>,
    /// The images, by place. Their rows are only held for open sequences.
    images: Vec<(usize, Weak<ImageRows>)>,
    salt: Option<Arc<str>>,
}

/// The beginning of a prompt in the cache.
#[derive(Clone, Copy)]
pub(in crate::generate) struct Beginning {
    /// Number of tokens at the start that its sequence has.
    pub cached: usize,
    /// Number of tokens at the start that another text has, too, if they are many more: the cache
    /// lacks the states, or the pages of windows, at their end.
    pub branch: Option<usize>,
}

impl KeptPrefix {
    fn new(sequence: SequenceId, tokens: &SequenceTokens) -> Self {
        let images = tokens.images.iter().map(|image| (image.start, Arc::downgrade(&image.rows)));
        Self { sequence, ids: tokens.ids.clone(), images: images.collect(), salt: tokens.salt.clone() }
    }

    /// Returns the number of tokens at the start that `ids` and `images` share.
    fn shared(&self, ids: &[u32], images: &[PlacedImage]) -> usize {
        let known = self.images.iter().map_while(|(start, rows)| {
            let rows = rows.upgrade()?;
            Some(PlacedImage { start: *start, rows })
        });
        let known: Vec<_> = known.collect();
        let end = self.images.get(known.len()).map_or(self.ids.len(), |(start, _)| *start);
        shared_tokens((&self.ids[..end], &known), (ids, images))
    }
}

impl Engine {
    /// Closes a sequence that has these tokens, and keeps it for later ones, unless it was
    /// restored: others may not trust it.
    pub fn retire(&mut self, id: SequenceId, tokens: &SequenceTokens) -> Result<()> {
        if !self.cache.keeps() || tokens.is_restored {
            return self.close(id);
        }
        self.discard_pipelined(id)?;
        let text = tokens.text_and_drafted().0.len();
        self.truncate(id, text, text)?;
        let mut tokens = tokens.clone();
        tokens.truncate(self.cache.len(id)?);
        self.close_evicted()?;
        if tokens.ids.len() < FEW_ROWS || self.has_kept(&tokens)? {
            return self.close(id);
        }
        for covered in self.covered_by(id, &tokens)? {
            self.close_kept(covered)?;
        }
        if let [.., least] = self.cache.kept()[..self.cache.kept().len().saturating_sub(MAX_KEPT - 1)] {
            self.close_kept(least)?;
        }
        self.head.iter_mut().for_each(|head| head.drop_images(id));
        self.admission.close(id);
        self.cache.keep(id)?;
        self.prefixes.kept.push(KeptPrefix::new(id, &tokens));
        Ok(())
    }

    /// Keeps a copy of an open sequence with these tokens.
    pub fn keep(&mut self, id: SequenceId, tokens: &SequenceTokens) -> Result<()> {
        if !self.cache.keeps() || tokens.ids.len() < FEW_ROWS {
            return Ok(());
        }
        let fork = self.fork(id)?;
        self.retire(fork, tokens)
    }

    /// Keeps the prompt that an open sequence has just computed, up to its last full page: the
    /// sequence would have to copy a further page to write to it. If this would cut an image, or
    /// with recurrent layers, keeps all but the last token.
    pub fn keep_prompt(&mut self, id: SequenceId, tokens: &SequenceTokens) -> Result<()> {
        let before_last = tokens.ids.len().saturating_sub(1);
        let full_pages = before_last / PAGE_POSITIONS * PAGE_POSITIONS;
        let is_whole = start_of_image(&tokens.images, full_pages) == full_pages;
        let end = if is_whole && !self.cache.is_recurrent() { full_pages } else { before_last };
        if !self.cache.keeps() || end < FEW_ROWS {
            return Ok(());
        }
        let mut tokens = tokens.clone();
        tokens.truncate(end);
        let fork = self.fork(id)?;
        self.truncate(fork, tokens.ids.len(), tokens.ids.len())?;
        self.retire(fork, &tokens)
    }

    /// Replaces the tokens of a sequence by those of the kept one that has most of a prompt's, if
    /// it has more than the sequence itself, whose tokens are then kept. Returns the number of the
    /// prompt's tokens that it has taken, and the number that any text has that is kept.
    fn take_prefix(
        &mut self,
        id: SequenceId,
        held: &SequenceTokens,
        ids: &[u32],
        images: &[PlacedImage],
    ) -> Result<(Option<usize>, usize)> {
        if !self.cache.keeps() {
            return Ok((None, 0));
        }
        let own = held.shared(ids, images);
        let (mut taken, mut known) = (None, own);
        self.discard_pipelined(id)?;
        self.close_evicted()?;
        let (mut source, mut most) = (None, self.reach(id, own)?);
        for prefix in self.prefixes.kept.iter().filter(|prefix| prefix.salt == held.salt) {
            let shared = prefix.shared(ids, images);
            known = known.max(shared);
            if shared > most {
                let reach = self.reach(prefix.sequence, shared)?;
                if reach > most {
                    (source, most) = (Some((prefix.sequence, shared)), reach);
                }
            }
        }
        if let Some((source, shared)) = source {
            // It is now the most recently used one, so that it stays.
            self.cache.keep(source)?;
            let own = self.fork(id)?;
            self.cache.replace(id, source)?;
            self.head.iter_mut().for_each(|head| head.replace(id, source));
            self.truncate(id, shared, shared)?;
            self.retire(own, held)?;
            taken = Some(shared);
        }
        Ok((taken, known))
    }

    /// Returns the number of tokens that the cache would have of a sequence after it was shortened
    /// to `len` tokens.
    fn reach(&self, id: SequenceId, len: usize) -> Result<usize> {
        let mut reach = self.cache.reach(id, len)?;
        while let Some(head) = &self.head {
            let known = head.reach(id, len, reach);
            if known == reach {
                break;
            }
            reach = self.cache.reach(id, known)?;
        }
        Ok(reach)
    }

    /// Closes a kept sequence.
    fn close_kept(&mut self, id: SequenceId) -> Result<()> {
        self.prefixes.kept.retain(|prefix| prefix.sequence != id);
        self.close(id)
    }

    /// Closes the kept sequences whose memory the cache has freed.
    fn close_evicted(&mut self) -> Result<()> {
        let evicted = self.cache.evicted().to_vec();
        evicted.into_iter().try_for_each(|id| self.close_kept(id))
    }

    /// Returns whether a kept sequence has these tokens and can be shortened to them, and makes it
    /// the most recently used one.
    fn has_kept(&mut self, tokens: &SequenceTokens) -> Result<bool> {
        let len = tokens.ids.len();
        let mut same = None;
        for prefix in self.prefixes.kept.iter().filter(|prefix| prefix.salt == tokens.salt) {
            if prefix.shared(&tokens.ids, &tokens.images) == len && self.reach(prefix.sequence, len)? == len {
                same = Some(prefix.sequence);
            }
        }
        same.map_or(Ok(false), |id| self.cache.keep(id).map(|()| true))
    }

    /// Returns the kept sequences whose tokens a sequence has, and to which it can be shortened.
    fn covered_by(&self, id: SequenceId, tokens: &SequenceTokens) -> Result<Vec<SequenceId>> {
        let mut covered = vec![];
        for prefix in self.prefixes.kept.iter().filter(|prefix| prefix.salt == tokens.salt) {
            let len = prefix.ids.len();
            if prefix.shared(&tokens.ids, &tokens.images) == len && self.reach(id, len)? == len {
                covered.push(prefix.sequence);
            }
        }
        Ok(covered)
    }
}

impl Decoder {
    /// Lets a sequence begin with as many of the tokens `ids` and images of a prompt as the cache
    /// has, and with no others. The next tokens must be those of the prompt, or the sequence must
    /// be shortened.
    pub(in crate::generate) fn begin(
        &mut self,
        id: SequenceId,
        ids: &[u32],
        images: &[PlacedImage],
    ) -> Result<Beginning> {
        let held = self.held(id)?;
        let (taken, known) = self.turns.with_engine(|engine| engine.take_prefix(id, held, ids, images))?;
        match taken {
            Some(taken) => {
                let images = images.iter().filter(|image| image.start < taken).cloned().collect();
                let (ids, salt, ticket) = (ids[..taken].to_vec(), held.salt.clone(), held.ticket.clone());
                self.tokens.insert(id, SequenceTokens { ids, images, salt, ticket, ..SequenceTokens::default() });
            }
            None => self.truncate(id, held.shared(ids, images))?,
        }
        // The head's rows of the cached tokens may have the prompt's next token already.
        let cached = self.turns.with_engine(|engine| engine.cache.len(id))?;
        self.tokens.entry(id).and_modify(|held| held.truncate(cached));
        let len = self.tokens(id)?.len();
        if len < cached {
            self.shorten(id, len)?;
        }
        Ok(Beginning { cached: len, branch: Some(known).filter(|known| *known >= len + PAGE_POSITIONS) })
    }

    /// Separates the tokens of a sequence from those of other salts. Tokens that the sequence has
    /// with another salt are removed.
    pub(in crate::generate) fn set_salt(&mut self, id: SequenceId, salt: Option<&str>) -> Result<()> {
        if self.held(id)?.salt.as_deref() != salt {
            self.truncate(id, 0)?;
            self.tokens.entry(id).and_modify(|held| held.salt = salt.map(Arc::from));
        }
        Ok(())
    }

    /// Closes all kept sequences.
    pub(crate) fn close_kept(&mut self) {
        self.turns.with_engine(|engine| {
            for KeptPrefix { sequence, .. } in std::mem::take(&mut engine.prefixes.kept) {
                // Only fails for sequences that are not open.
                _ = engine.close(sequence);
            }
        });
    }

    /// Counts a prompt of which the cache had `cached` tokens.
    pub(in crate::generate) fn count_prompt(&self, tokens: usize, cached: usize) {
        self.turns.with_engine(|engine| {
            engine.work.prompt_tokens += tokens as u64;
            engine.work.cached_tokens += cached as u64;
        });
    }
}
