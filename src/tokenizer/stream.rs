//! Decodes streamed ids into whole characters.

use super::Tokenizer;
use crate::error::Result;

/// Decodes ids as they are generated.
///
/// A token may contain a part of a character, whose bytes are held back until the rest arrives. The
/// concatenated pieces equal the text of [`Tokenizer::decode`], except that a leading space is
/// kept, because a stream continues a text. Bytes that cannot become a character are replaced by
/// U+FFFD.
#[derive(Clone, Debug)]
pub struct TextStream {
    tokenizer: Tokenizer,
    /// Bytes held back; between calls, up to three bytes of one character.
    pending: Vec<u8>,
    /// Control tokens that are decoded to their names.
    shown: Vec<u32>,
}

impl TextStream {
    pub(super) fn new(tokenizer: Tokenizer) -> Self {
        Self { tokenizer, pending: Vec::new(), shown: Vec::new() }
    }

    /// Decodes these control tokens to their names. Other control tokens have no text.
    #[must_use]
    pub fn showing(mut self, ids: impl IntoIterator<Item = u32>) -> Self {
        self.shown.extend(ids);
        self
    }

    /// Adds a token, and returns the text that is complete now, if any.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if the id is not in the vocabulary.
    pub fn push(&mut self, id: u32) -> Result<Option<String>> {
        let vocabulary = &self.tokenizer.0.vocabulary;
        let bytes = if self.shown.contains(&id) { vocabulary.bytes(id)? } else { vocabulary.text_bytes(id)? };
        self.pending.extend_from_slice(bytes);
        let whole = whole_length(&self.pending);
        let text = String::from_utf8_lossy(&self.pending[..whole]).into_owned();
        self.pending.drain(..whole);
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// Returns whether bytes of an unfinished character are held back.
    pub(crate) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Ends the text, and returns U+FFFD if an unfinished character was held back. The stream can
    /// be used for another text afterwards.
    pub fn finish(&mut self) -> Option<String> {
        let pending = std::mem::take(&mut self.pending);
        (!pending.is_empty()).then(|| String::from_utf8_lossy(&pending).into_owned())
    }
}

/// Returns the number of bytes before an unfinished character at the end.
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
