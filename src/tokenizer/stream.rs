//! Ids in, one at a time; text out, in whole characters.

use super::Tokenizer;
use crate::error::Result;

/// Decodes ids as they are generated.
///
/// A token may hold a part of a character: its bytes wait here until the rest has come, so what is given out is whole
/// characters, and all of it joined is what [`Tokenizer::decode`] gives (but for a leading space, which stays: a stream continues
/// a text). Bytes that can never become a character are given out as U+FFFD.
#[derive(Clone, Debug)]
pub struct TextStream {
    tokenizer: Tokenizer,
    /// Bytes not yet given out; between calls the begin of one character, so at most three.
    pending: Vec<u8>,
    shown: Vec<u32>,
}

impl TextStream {
    pub(super) fn new(tokenizer: Tokenizer) -> Self {
        Self { tokenizer, pending: Vec::new(), shown: Vec::new() }
    }

    /// Gives the names of these control tokens too, which are otherwise no part of a text.
    #[must_use]
    pub fn showing(mut self, ids: impl IntoIterator<Item = u32>) -> Self {
        self.shown.extend(ids);
        self
    }

    /// The text that this token completes, if any.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) where the id is not in the vocabulary.
    pub fn push(&mut self, id: u32) -> Result<Option<String>> {
        let vocabulary = &self.tokenizer.0.vocabulary;
        let bytes = if self.shown.contains(&id) { vocabulary.bytes(id)? } else { vocabulary.text_bytes(id)? };
        self.pending.extend_from_slice(bytes);
        let whole = whole_length(&self.pending);
        let text = String::from_utf8_lossy(&self.pending[..whole]).into_owned();
        self.pending.drain(..whole);
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// What is left when no more tokens come: U+FFFD where a character was begun and not finished. The stream is then as new.
    pub fn finish(&mut self) -> Option<String> {
        let left = std::mem::take(&mut self.pending);
        (!left.is_empty()).then(|| String::from_utf8_lossy(&left).into_owned())
    }
}

/// How many bytes come before an unfinished character at the end.
fn whole_length(bytes: &[u8]) -> usize {
    let mut start = 0;
    while let Err(error) = std::str::from_utf8(&bytes[start..]) {
        match error.error_len() {
            Some(invalid) => start += error.valid_up_to() + invalid,
            None => return start + error.valid_up_to(),
        }
    }
    bytes.len()
}
