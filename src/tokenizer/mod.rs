//! Encodes text into token ids, and decodes ids into text.
//!
//! The vocabulary comes from the model file's metadata. The crate reads byte-level BPE
//! (`tokenizer.ggml.model` = `gpt2`: Qwen, Llama 3, GPT-2), SentencePiece vocabularies with scores
//! (`llama`: Llama 2, Phi-3, Mistral, Gemma) or merges (`gemma4`), WordPiece (`bert`), and Hugging
//! Face's `tokenizer.json`.
//!
//! Encoding splits the text at special tokens, if [`SpecialTokens`] says that they are recognized,
//! and merges the text between them into tokens. Decoding concatenates the bytes of tokens.

mod bpe;
mod bytes;
#[cfg(feature = "tokenizers")]
mod hugging_face;
#[cfg(not(feature = "tokenizers"))]
#[path = "without_hugging_face.rs"]
mod hugging_face;
mod merge;
mod merges;
mod pre;
mod special;
mod spm;
mod stream;
mod vocabulary;

#[cfg(feature = "tokenizers")]
use std::path::Path;
use std::{fmt, ops::Range, sync::Arc};

pub use self::stream::TextStream;
use self::{
    special::{Fragment, SpecialFinder},
    vocabulary::Vocabulary,
};
use crate::{
    error::{Error, Result},
    gguf::Gguf,
};

/// The meaning of a special token's text (`<|im_end|>`, `</s>`) within a text to encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// It becomes that token. Use it for prompts that a chat template rendered.
    Parse,
    /// It stays ordinary text. Use it for untrusted text, which must not end a turn or begin
    /// another. Tokens that the vocabulary marks as user-defined (`<think>`, runs of spaces) are
    /// still recognized, because they have no such effect.
    Plain,
}

/// The part of a text in which special tokens are recognized.
#[derive(Clone, Copy)]
enum SpecialScope<'r> {
    Everywhere,
    Nowhere,
    /// Everywhere except for tokens with a byte in one of these ranges of bytes.
    Outside(&'r [Range<usize>]),
}

impl From<SpecialTokens> for SpecialScope<'_> {
    fn from(special: SpecialTokens) -> Self {
        match special {
            SpecialTokens::Parse => Self::Everywhere,
            SpecialTokens::Plain => Self::Nowhere,
        }
    }
}

/// Encodes text into token ids, and decodes ids into text. Cheap to clone; clones share the
/// vocabulary.
///
/// ```
/// use inkstone::gguf::Gguf;
/// use inkstone::tokenizer::{SpecialTokens, Tokenizer};
///
/// let tokenizer = Tokenizer::from_gguf(&Gguf::open("tests/data/tokenizer/bpe.gguf")?)?;
/// let ids = tokenizer.encode("the fox<|im_end|>", SpecialTokens::Parse)?;
/// assert_eq!(ids.last(), tokenizer.eos().as_ref());
/// assert_eq!(tokenizer.decode(&ids)?, "the fox");
/// # Ok::<(), inkstone::Error>(())
/// ```
#[derive(Clone)]
pub struct Tokenizer(Arc<Inner>);

struct Inner {
    vocabulary: Vocabulary,
    encoder: Encoder,
}

enum Encoder {
    Bpe(SpecialFinder, bpe::Bpe),
    Spm(SpecialFinder, spm::Spm),
    #[cfg(feature = "tokenizers")]
    Json(hugging_face::JsonTokenizer),
}

impl Tokenizer {
    /// Builds the tokenizer from a model's metadata: from the keys `tokenizer.ggml.*`, or else from
    /// the `tokenizer.json` in `tokenizer.huggingface.json`, which directories of safetensors have.
    ///
    /// # Errors
    /// [`Error::Metadata`] if a key is missing or malformed, or names a vocabulary type or
    /// pre-tokenizer that this crate does not support. (A similar one would give other ids than in
    /// training.)
    pub fn from_gguf(gguf: &Gguf) -> Result<Self> {
        const MODEL: &str = "tokenizer.ggml.model";
        let (vocabulary, encoder) = match gguf.str(MODEL)? {
            Some("gpt2") => bpe::from_gguf(gguf)?,
            Some("llama") => spm::from_gguf(gguf)?,
            Some("gemma4") => spm::with_merges(gguf)?,
            Some("bert") => hugging_face::wordpiece_from_gguf(gguf)?,
            None => hugging_face::from_gguf(gguf)?
                .ok_or_else(|| Error::metadata(MODEL, "is missing: this file holds no tokenizer"))?,
            Some(other) => {
                let what = format!(
                    "`{other}` is a vocabulary type that is not supported; supported: gpt2, llama, gemma4, bert"
                );
                return Err(Error::metadata(MODEL, what));
            }
        };
        Ok(Self(Arc::new(Inner { vocabulary, encoder })))
    }

    /// Builds the tokenizer from a Hugging Face `tokenizer.json`.
    ///
    /// Such a file does not name its end-of-sequence token. Therefore [`bos`](Self::bos) and
    /// [`eos`](Self::eos) are `None`, and generation ends at special tokens with a well-known text
    /// (`<|im_end|>`, `</s>`).
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read; [`Error::Tokenizer`] if it is not a tokenizer, or
    /// if its decoder is not byte-level, SentencePiece or WordPiece.
    #[cfg(feature = "tokenizers")]
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let (vocabulary, encoder) = hugging_face::from_file(path.as_ref())?;
        Ok(Self(Arc::new(Inner { vocabulary, encoder })))
    }

    /// Returns the ids of a text, without tokens for the start or the end of a sequence.
    /// SentencePiece vocabularies that were trained with it add a space before the text and after
    /// special tokens. Some byte-level vocabularies (Falcon's) lack a few control characters, which
    /// are left out as in training.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the vocabulary has neither a token for a part of the text nor an
    /// unknown token; and if the text has more than 262,144 consecutive white space characters or
    /// capitals, and a `tokenizer.json` splits text by an expression that can backtrack.
    pub fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 2);
        self.encode_into(text, special.into(), &mut ids)?;
        Ok(ids)
    }

    /// Returns the ids of a text that is partly trusted, such as a rendered chat template. Special
    /// tokens are parsed, except for those with a byte in one of the `plain` ranges (ascending
    /// ranges of bytes), which stay text as with [`SpecialTokens::Plain`].
    ///
    /// # Errors
    /// [`Error::Argument`] if a range does not consist of whole characters of the text, or if
    /// ranges are not ascending; else as [`encode`](Self::encode).
    pub fn encode_mixed(&self, text: &str, plain: &[Range<usize>]) -> Result<Vec<u32>> {
        let whole = plain.iter().all(|range| text.get(range.clone()).is_some());
        if !whole || plain.windows(2).any(|pair| pair[1].start < pair[0].end) {
            return Err(Error::argument("plain", "must be ascending ranges of whole characters of the text"));
        }
        let mut ids = Vec::with_capacity(text.len() / 4 + 2);
        self.encode_into(text, SpecialScope::Outside(plain), &mut ids)?;
        Ok(ids)
    }

    /// Returns the ids of a text that starts a sequence. Special tokens are parsed, and begin- and
    /// end-of-sequence tokens are added if the metadata says so. For a rendered chat template,
    /// which contains them, use [`encode`](Self::encode).
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>> {
        #[cfg(feature = "tokenizers")]
        if let Encoder::Json(json) = &self.0.encoder
            && !json.metadata_sets_ends
        {
            return json.encode_prompt(text);
        }
        let vocabulary = &self.0.vocabulary;
        let mut ids = Vec::with_capacity(text.len() / 4 + 2);
        ids.extend(vocabulary.bos.filter(|_| vocabulary.add_bos));
        self.encode_into(text, SpecialScope::Everywhere, &mut ids)?;
        ids.extend(vocabulary.eos.filter(|_| vocabulary.add_eos));
        Ok(ids)
    }

    /// Returns the ids of a text that continues a sequence. Special tokens are parsed, and no token
    /// is added, not even the space that SentencePiece vocabularies add before a text.
    ///
    /// # Errors
    /// As [`encode`](Self::encode); [`Error::Tokenizer`] also for a `tokenizer.json` that adds a
    /// space before every text.
    pub fn encode_continuation(&self, text: &str) -> Result<Vec<u32>> {
        #[cfg(feature = "tokenizers")]
        if matches!(self.0.encoder, Encoder::Json(_)) && self.0.vocabulary.adds_space {
            let what = "this `tokenizer.json` adds a space before every text, so a text cannot continue token ids: pass \
                        both as text, or both as ids";
            return Err(Error::Tokenizer(what.into()));
        }
        let mut ids = Vec::with_capacity(text.len() / 4 + 2);
        self.encode_from(text, SpecialScope::Everywhere, false, &mut ids)?;
        Ok(ids)
    }

    fn encode_into(&self, text: &str, special: SpecialScope<'_>, ids: &mut Vec<u32>) -> Result<()> {
        self.encode_from(text, special, true, ids)
    }

    /// Appends the ids of a text; `at_start` if no text precedes it.
    fn encode_from(&self, text: &str, special: SpecialScope<'_>, at_start: bool, ids: &mut Vec<u32>) -> Result<()> {
        if u32::try_from(text.len()).is_err() {
            return Err(Error::Tokenizer(format!(
                "a text of {} bytes is too long: encode less than 4 GiB at a time",
                text.len()
            )));
        }
        let vocabulary = &self.0.vocabulary;
        match &self.0.encoder {
            #[cfg(feature = "tokenizers")]
            Encoder::Json(json) => ids.extend(json.encode(text, special)?),
            Encoder::Bpe(finder, bpe) => finder.split(text, special, |fragment| match fragment {
                Fragment::Token(id) => {
                    ids.push(id);
                    Ok(())
                }
                Fragment::Text(text) => {
                    bpe.encode(vocabulary, text, ids);
                    Ok(())
                }
            })?,
            Encoder::Spm(finder, spm) => {
                let mut at_start = at_start;
                finder.split(text, special, |fragment| match fragment {
                    Fragment::Token(id) => {
                        ids.push(id);
                        at_start = true;
                        Ok(())
                    }
                    Fragment::Text(text) => spm.encode(vocabulary, text, std::mem::take(&mut at_start), ids),
                })?;
            }
        }
        Ok(())
    }

    /// Returns the text of a whole sequence of ids. Control tokens have no text, a space that
    /// encoding added before the text is removed, and bytes that are not UTF-8 become U+FFFD.
    /// Spaces before punctuation stay (llama.cpp and Hugging Face's library remove them for some
    /// models).
    ///
    /// # Errors
    /// [`Error::Argument`] if an id is not in the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        let vocabulary = &self.0.vocabulary;
        let mut bytes = Vec::new();
        for &id in ids {
            bytes.extend_from_slice(vocabulary.text_bytes(id)?);
        }
        let added = vocabulary.adds_space && bytes.first() == Some(&b' ');
        Ok(String::from_utf8_lossy(&bytes[usize::from(added)..]).into_owned())
    }

    /// Returns the bytes of a token, which need not be whole characters; for a control token, its
    /// name.
    ///
    /// # Errors
    /// [`Error::Argument`] if the id is not in the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Result<&[u8]> {
        self.0.vocabulary.bytes(id)
    }

    /// Returns the control tokens and their names. They mark the structure of a prompt.
    pub fn control_tokens(&self) -> impl Iterator<Item = (u32, &str)> {
        let tokens = self.0.vocabulary.iter().filter(|(_, kind, bytes)| kind.is_special() && !bytes.is_empty());
        tokens.filter_map(|(id, _, bytes)| Some((id, std::str::from_utf8(bytes).ok()?)))
    }

    /// Returns the tokens that contain one of these texts, ascending and without control tokens.
    pub fn tokens_with(&self, texts: &[&str]) -> Vec<u32> {
        let contains =
            |bytes: &[u8], text: &str| bytes.windows(text.len().max(1)).any(|window| window == text.as_bytes());
        let plain = self.0.vocabulary.iter().filter(|(_, kind, _)| !kind.is_special());
        plain.filter(|(.., bytes)| texts.iter().any(|text| contains(bytes, text))).map(|(id, ..)| id).collect()
    }

    /// Returns the number of tokens; ids are below it.
    pub fn vocab_size(&self) -> usize {
        self.0.vocabulary.len()
    }

    /// Returns the begin-of-sequence token, if the metadata names one.
    pub fn bos(&self) -> Option<u32> {
        self.0.vocabulary.bos
    }

    /// Returns the end-of-sequence token, if the metadata names one.
    pub fn eos(&self) -> Option<u32> {
        self.0.vocabulary.eos
    }

    /// Returns whether a token ends generation: the end of a sequence, turn or message that the
    /// metadata names, and control tokens with a well-known text (`<|im_end|>`, `<|eot_id|>`).
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.end_of_generation().contains(&id)
    }

    /// Returns the tokens that end generation, ascending; see
    /// [`is_end_of_generation`](Self::is_end_of_generation).
    pub fn end_of_generation(&self) -> &[u32] {
        &self.0.vocabulary.end_of_generation
    }

    /// Returns a decoder for ids that are generated one by one.
    pub fn stream(&self) -> TextStream {
        TextStream::new(self.clone())
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}
