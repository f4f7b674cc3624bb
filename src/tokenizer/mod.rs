//! Text in, token ids out, and back.
//!
//! A tokenizer is built from a model file's own metadata, so that a GGUF file is all one needs. Three kinds of vocabulary are
//! read: byte-level BPE (`tokenizer.ggml.model` = `gpt2`: Qwen, Llama 3, GPT-2), SentencePiece's, with scores (`llama`:
//! Llama 2, Phi-3, Mistral, Gemma) or merges (`gemma4`), and WordPiece's (`bert`). Hugging Face's `tokenizer.json` can be read in
//! their place.
//!
//! Encoding has two steps: the text is cut at its special tokens ([`SpecialTokens`] says which count), and each
//! stretch between them is merged into tokens of the vocabulary. Decoding joins the tokens' bytes.

use std::fmt;
use std::ops::Range;
#[cfg(feature = "tokenizers")]
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::gguf::Gguf;

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

pub use stream::TextStream;

use special::{Fragment, SpecialFinder};
use vocabulary::Vocabulary;

/// What a text's spelling of a special token (`<|im_end|>`, `</s>` …) means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// It is that token: for prompts that a chat template rendered.
    Parse,
    /// It is ordinary text: for text from outside, which must not be able to end a turn or open another. Tokens that the
    /// vocabulary marks as user-defined (`<think>`, runs of spaces) carry no power and are recognised all the same.
    Plain,
}

/// Where special tokens count.
#[derive(Clone, Copy)]
enum Special<'r> {
    Parsed,
    Plain,
    /// Everywhere but where they have a byte within these ranges.
    PlainWithin(&'r [Range<usize>]),
}

impl From<SpecialTokens> for Special<'_> {
    fn from(special: SpecialTokens) -> Self {
        match special {
            SpecialTokens::Parse => Self::Parsed,
            SpecialTokens::Plain => Self::Plain,
        }
    }
}

/// Turns text into token ids and back. Cheap to clone; clones share the vocabulary.
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
    Json(hugging_face::Json),
}

impl Tokenizer {
    /// The tokenizer that a model's metadata describes (the keys `tokenizer.ggml.*`), or else holds as a whole
    /// (`tokenizer.huggingface.json`), as that of a directory of safetensors does.
    ///
    /// # Errors
    /// [`Error::Metadata`] where a key is missing, malformed, or names a kind of vocabulary or a pre-tokenizer that this crate
    /// does not know (one that is merely similar would give other ids than the model was trained with).
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
                    "`{other}` is a kind of vocabulary that is not supported; supported: gpt2, llama, gemma4, bert"
                );
                return Err(Error::metadata(MODEL, what));
            }
        };
        Ok(Self(Arc::new(Inner { vocabulary, encoder })))
    }

    /// The tokenizer of a Hugging Face `tokenizer.json`.
    ///
    /// Such a file does not name its end-of-sequence token, so [`bos`](Self::bos) and [`eos`](Self::eos) are `None`, and
    /// generation ends at those of its special tokens that are end markers by their usual text (`<|im_end|>`, `</s>` …).
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be read, [`Error::Tokenizer`] where it is not a tokenizer or one whose
    /// decoder is neither byte-level nor SentencePiece's nor WordPiece's.
    #[cfg(feature = "tokenizers")]
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let (vocabulary, encoder) = hugging_face::from_file(path.as_ref())?;
        Ok(Self(Arc::new(Inner { vocabulary, encoder })))
    }

    /// The ids of a text, with nothing added at its begin or end. SentencePiece vocabularies that were trained so put
    /// a space before the text and before what follows a special token. Of the byte-level vocabularies, some (Falcon's) lack a few
    /// control characters, which are then left out as they were in training.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] where the vocabulary has no token for a part of the text and none for what it does not know; and where the text
    /// has more than 262,144 white space characters or capitals in a row and a `tokenizer.json` cuts it by an unusual expression.
    pub fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 2);
        self.encode_into(text, special.into(), &mut ids)?;
        Ok(ids)
    }

    /// The ids of a text by two hands, such as a rendered chat template: special tokens count, but for those with a byte in
    /// one of the `plain` ranges (of bytes, ascending), which are ordinary text as by [`SpecialTokens::Plain`].
    ///
    /// # Errors
    /// [`Error::Argument`] where a range is not one of whole characters of the text or they do not ascend; else as
    /// [`encode`](Self::encode).
    pub fn encode_mixed(&self, text: &str, plain: &[Range<usize>]) -> Result<Vec<u32>> {
        let whole = plain.iter().all(|range| text.get(range.clone()).is_some());
        if !whole || plain.windows(2).any(|pair| pair[1].start < pair[0].end) {
            return Err(Error::argument("plain", "must be ascending ranges of whole characters of the text"));
        }
        let mut ids = Vec::with_capacity(text.len() / 4 + 2);
        self.encode_into(text, Special::PlainWithin(plain), &mut ids)?;
        Ok(ids)
    }

    /// The ids of a text that begins a sequence: special tokens are parsed, and the begin- and end-of-sequence tokens
    /// are added where the metadata asks for them. (A rendered chat template spells its own, so it goes through
    /// [`encode`](Self::encode).)
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>> {
        #[cfg(feature = "tokenizers")]
        if let Encoder::Json(json) = &self.0.encoder
            && !json.marks_are_flagged
        {
            return json.encode_prompt(text);
        }
        let vocabulary = &self.0.vocabulary;
        let mut ids = Vec::with_capacity(text.len() / 4 + 2);
        ids.extend(vocabulary.bos.filter(|_| vocabulary.add_bos));
        self.encode_into(text, Special::Parsed, &mut ids)?;
        ids.extend(vocabulary.eos.filter(|_| vocabulary.add_eos));
        Ok(ids)
    }

    /// The ids of a text that goes on from other tokens: special tokens are parsed, and nothing is
    /// added, not even the space that SentencePiece vocabularies put before a text.
    ///
    /// # Errors
    /// As [`encode`](Self::encode); [`Error::Tokenizer`] also for a `tokenizer.json` that puts a
    /// space before every text.
    pub fn encode_continuation(&self, text: &str) -> Result<Vec<u32>> {
        #[cfg(feature = "tokenizers")]
        if matches!(self.0.encoder, Encoder::Json(_)) && self.0.vocabulary.adds_space {
            let what = "this `tokenizer.json` puts a space before every text, so that a text cannot go on from token ids: \
                        give both as text, or both as ids";
            return Err(Error::Tokenizer(what.into()));
        }
        let mut ids = Vec::with_capacity(text.len() / 4 + 2);
        self.encode_from(text, Special::Parsed, false, &mut ids)?;
        Ok(ids)
    }

    fn encode_into(&self, text: &str, special: Special<'_>, ids: &mut Vec<u32>) -> Result<()> {
        self.encode_from(text, special, true, ids)
    }

    /// `at_start` says that no text comes before.
    fn encode_from(&self, text: &str, special: Special<'_>, at_start: bool, ids: &mut Vec<u32>) -> Result<()> {
        if u32::try_from(text.len()).is_err() {
            return Err(Error::Tokenizer(format!("a text of {} bytes is too long", text.len())));
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

    /// The text of a whole sequence of ids: control tokens give nothing, a space that encoding put before the text
    /// is taken away again, and bytes that are not UTF-8 become U+FFFD. All else is as it was: spaces before punctuation
    /// stay (llama.cpp and Hugging Face's library take them away for some models).
    ///
    /// # Errors
    /// [`Error::Argument`] where an id is not in the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        let vocabulary = &self.0.vocabulary;
        let mut bytes = Vec::new();
        for &id in ids {
            bytes.extend_from_slice(vocabulary.text_bytes(id)?);
        }
        let added = vocabulary.adds_space && bytes.first() == Some(&b' ');
        Ok(String::from_utf8_lossy(&bytes[usize::from(added)..]).into_owned())
    }

    /// The bytes that a token stands for, which need not be whole characters; a control token shows its name.
    ///
    /// # Errors
    /// [`Error::Argument`] where the id is not in the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Result<&[u8]> {
        self.0.vocabulary.bytes(id)
    }

    /// The control tokens and their texts, by which a prompt's structure is told from what it says.
    pub fn control_tokens(&self) -> impl Iterator<Item = (u32, &str)> {
        let tokens = self.0.vocabulary.iter().filter(|(_, kind, bytes)| kind.is_mark() && !bytes.is_empty());
        tokens.filter_map(|(id, _, bytes)| Some((id, std::str::from_utf8(bytes).ok()?)))
    }

    /// The tokens that have one of these texts in theirs, ascending; control tokens are not among them.
    pub fn tokens_with(&self, texts: &[&str]) -> Vec<u32> {
        let within =
            |bytes: &[u8], text: &str| bytes.windows(text.len().max(1)).any(|window| window == text.as_bytes());
        let plain = self.0.vocabulary.iter().filter(|(_, kind, _)| !kind.is_mark());
        plain.filter(|(.., bytes)| texts.iter().any(|text| within(bytes, text))).map(|(id, ..)| id).collect()
    }

    /// How many tokens there are: ids run from 0 to this, exclusive.
    pub fn vocab_size(&self) -> usize {
        self.0.vocabulary.len()
    }

    /// The begin-of-sequence token, where the metadata names one.
    pub fn bos(&self) -> Option<u32> {
        self.0.vocabulary.bos
    }

    /// The end-of-sequence token, where the metadata names one.
    pub fn eos(&self) -> Option<u32> {
        self.0.vocabulary.eos
    }

    /// Whether a model that gives this token has said all: the end of the sequence, the turn or the message, as the
    /// metadata names them, and control tokens that are such by their usual text (`<|im_end|>`, `<|eot_id|>` …).
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.end_of_generation().contains(&id)
    }

    /// The tokens for which [`is_end_of_generation`](Self::is_end_of_generation) holds, ascending.
    pub fn end_of_generation(&self) -> &[u32] {
        &self.0.vocabulary.end_of_generation
    }

    /// Decodes ids one by one as they are generated.
    pub fn stream(&self) -> TextStream {
        TextStream::new(self.clone())
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}
