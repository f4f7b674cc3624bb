//! The metadata keys `tokenizer.ggml.*` in; each token's bytes and kind, and the special ids out.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::error::{Error, Result};
use crate::gguf::{Array, Gguf, Strings};

/// `tokenizer.ggml.token_type`, which follows SentencePiece's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Kind {
    fn from_number(number: i64) -> Option<Self> {
        Some(match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }

    /// Whether the token is a mark for the model, which is no part of any text.
    pub fn is_mark(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }
}

/// Control tokens after which a model has said all, whatever the metadata names; the texts that llama.cpp knows as such.
const END_MARKERS: &[&str] = &[
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    MESSAGE_END,
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<end_of_utterance>",
    "<|EOT|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
    "<eos>",
    "</s>",
    "<｜end▁of▁sentence｜>",
];

/// Ends a turn; but beside these, which do, a message within one.
const MESSAGE_END: &str = "<|end|>";
const CALL_ENDS: &[&str] = &["<|call|>", "<|calls|>"];

/// Control or user-defined tokens that follow a file's end where models of code fill in its middle.
const FILE_MARKERS: &[&str] = &[
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<|fim_repo|>",
    "<fim-repo>",
    "<|repo_name|>",
    "<reponame>",
    "<|file_sep|>",
];

const TOKENS: &str = "tokenizer.ggml.tokens";

/// What every kind of tokenizer knows of its tokens.
#[derive(Default)]
pub(super) struct Vocabulary {
    /// The bytes of all tokens, one after the other: a hundred thousand small allocations would cost more than the text.
    bytes: Vec<u8>,
    /// Where the bytes of each token end.
    ends: Vec<usize>,
    kinds: Vec<Kind>,
    /// Finds ids by bytes, which it does not hold again.
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    pub add_bos: bool,
    pub add_eos: bool,
    /// Whether encoding puts a space before a text.
    pub adds_space: bool,
    pub end_of_generation: Vec<u32>,
}

impl Vocabulary {
    /// Reads the tokens' kinds, the special ids and the flags. `decode` gives a token's bytes, appending to its last argument.
    pub fn from_gguf(gguf: &Gguf, tokens: &Strings, decode: impl Fn(&str, Kind, &mut Vec<u8>)) -> Result<Self> {
        let mut this = Self::default();
        for (text, kind) in tokens.iter().zip(kinds(gguf, tokens.len())?) {
            this.push(kind, |bytes| decode(text, kind, bytes));
        }
        this.end_at_markers();
        this.read_ids(gguf)?;
        Ok(this)
    }

    /// Reads the special ids, once the tokens are known.
    ///
    /// # Errors
    /// [`Error::Metadata`] where one is no token's.
    pub fn read_ids(&mut self, gguf: &Gguf) -> Result<()> {
        let tokens = self.len();
        let id = |key: &str| special_id(gguf, key, tokens);
        self.bos = id("tokenizer.ggml.bos_token_id")?;
        self.eos = id("tokenizer.ggml.eos_token_id")?;
        let unknown = self.kinds.iter().position(|&kind| kind == Kind::Unknown).map(|at| at as u32);
        self.unknown = id("tokenizer.ggml.unknown_token_id")?.or(unknown);
        self.end_of_generation.extend(self.eos);
        for name in ["eot", "eom", "fim_pad", "fim_rep", "fim_sep"] {
            self.end_of_generation.extend(id(&format!("tokenizer.ggml.{name}_token_id"))?);
        }
        self.end_of_generation.extend(end_ids(gguf, tokens)?);
        self.end_of_generation.sort_unstable();
        self.end_of_generation.dedup();
        Ok(())
    }

    /// Ends generation at the tokens that usually do, once all are known.
    pub fn end_at_markers(&mut self) {
        let is = |bytes: &[u8], texts: &[&str]| texts.iter().any(|text| text.as_bytes() == bytes);
        let controls = || self.iter().filter(|(_, kind, _)| *kind == Kind::Control);
        let calls = controls().any(|(.., bytes)| is(bytes, CALL_ENDS));
        let ends = self.iter().filter(|&(_, kind, bytes)| match kind {
            Kind::Control if calls && bytes == MESSAGE_END.as_bytes() => false,
            Kind::Control => is(bytes, END_MARKERS) || is(bytes, FILE_MARKERS),
            Kind::UserDefined => is(bytes, FILE_MARKERS),
            Kind::Normal | Kind::Unknown | Kind::Unused | Kind::Byte => false,
        });
        self.end_of_generation = ends.map(|(id, ..)| id).collect();
    }

    /// Sets whether the begin and the end of a sequence are marked: as the metadata says, else by what is usual for the vocabulary.
    ///
    /// # Errors
    /// [`Error::Metadata`] where a mark is asked for and the file names no token for it.
    pub fn read_flags(&mut self, gguf: &Gguf, usually_bos: bool, usually_eos: bool) -> Result<()> {
        let flag = |key: &str, id: Option<u32>, usually: bool| match gguf.bool(key)? {
            Some(true) if id.is_none() => Err(Error::metadata(key, "is true, but the file names no such token")),
            asked => Ok(asked.unwrap_or(usually && id.is_some())),
        };
        self.add_bos = flag("tokenizer.ggml.add_bos_token", self.bos, usually_bos)?;
        self.add_eos = flag("tokenizer.ggml.add_eos_token", self.eos, usually_eos)?;
        Ok(())
    }

    /// Adds the next token.
    pub fn push(&mut self, kind: Kind, decode: impl FnOnce(&mut Vec<u8>)) {
        decode(&mut self.bytes);
        self.ends.push(self.bytes.len());
        self.kinds.push(kind);
    }

    /// Makes the tokens of these kinds known to [`find`](Self::find). Of equal bytes, the last made known is found.
    pub fn index(&mut self, wanted: impl Fn(Kind) -> bool) {
        let mut index = std::mem::take(&mut self.index);
        index.reserve(self.len(), |&id| self.hash(self.slice(id)));
        for (id, kind, bytes) in self.iter() {
            if wanted(kind) {
                let hash = |&id: &u32| self.hash(self.slice(id));
                let entry = index.entry(self.hash(bytes), |&other| self.slice(other) == bytes, hash);
                entry.and_modify(|other| *other = id).or_insert(id);
            }
        }
        self.index = index;
    }

    /// The token of these bytes.
    pub fn find(&self, bytes: &[u8]) -> Option<u32> {
        self.index.find(self.hash(bytes), |&id| self.slice(id) == bytes).copied()
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        self.hasher.hash_one(bytes)
    }

    /// Every token, with its kind and bytes.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Kind, &[u8])> {
        (0..).zip(&self.kinds).map(|(id, &kind)| (id, kind, self.slice(id)))
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The bytes of a token.
    pub fn bytes(&self, id: u32) -> Result<&[u8]> {
        let at = id as usize;
        if at >= self.len() {
            let what = format!("token {id} is not in the vocabulary of {}", self.len());
            return Err(Error::argument("id", what));
        }
        Ok(self.slice(id))
    }

    /// The bytes of a token that is known to be one.
    fn slice(&self, id: u32) -> &[u8] {
        let at = id as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start..self.ends[at]]
    }

    /// The bytes that a token adds to a text: none for a mark.
    pub fn text_bytes(&self, id: u32) -> Result<&[u8]> {
        let bytes = self.bytes(id)?;
        Ok(if self.kinds[id as usize].is_mark() { &[] } else { bytes })
    }
}

/// The tokens' texts.
pub(super) fn tokens(gguf: &Gguf) -> Result<&Strings> {
    let tokens = gguf.strings(TOKENS)?.ok_or_else(|| Error::metadata(TOKENS, "is missing"))?;
    if tokens.is_empty() || u32::try_from(tokens.len()).is_err() {
        return Err(Error::metadata(TOKENS, format!("holds {} tokens", tokens.len())));
    }
    Ok(tokens)
}

fn kinds(gguf: &Gguf, count: usize) -> Result<Vec<Kind>> {
    const KEY: &str = "tokenizer.ggml.token_type";
    let numbers: Vec<i64> = match gguf.array(KEY)? {
        None => return Ok(vec![Kind::Normal; count]),
        Some(Array::I32(numbers)) => numbers.iter().map(|&n| n.into()).collect(),
        Some(Array::U32(numbers)) => numbers.iter().map(|&n| n.into()).collect(),
        Some(_) => return Err(Error::metadata(KEY, "must be an array of 32-bit integers")),
    };
    same_length(KEY, numbers.len(), count)?;
    let kind = |number| {
        Kind::from_number(number).ok_or_else(|| Error::metadata(KEY, format!("holds an unknown type {number}")))
    };
    numbers.into_iter().map(kind).collect()
}

/// Every array about the tokens has one element for each.
pub(super) fn same_length(key: &str, length: usize, tokens: usize) -> Result<()> {
    if length == tokens {
        return Ok(());
    }
    Err(Error::metadata(key, format!("has {length} elements for {tokens} tokens")))
}

/// The ids that a checkpoint ends at, of which there may be any number.
fn end_ids(gguf: &Gguf, tokens: usize) -> Result<&[u32]> {
    const KEY: &str = "tokenizer.ggml.eos_token_ids";
    match gguf.array(KEY)? {
        None => Ok(&[]),
        Some(Array::U32(ids)) => match ids.iter().find(|&&id| id as usize >= tokens) {
            Some(id) => Err(Error::metadata(KEY, format!("has {id}, but there are only {tokens} tokens"))),
            None => Ok(ids),
        },
        Some(_) => Err(Error::metadata(KEY, "must be an array of 32-bit integers without signs")),
    }
}

/// The token that a key names.
pub(super) fn special_id(gguf: &Gguf, key: &str, tokens: usize) -> Result<Option<u32>> {
    match gguf.u32(key)? {
        Some(id) if id as usize >= tokens => {
            Err(Error::metadata(key, format!("is {id}, but there are only {tokens} tokens")))
        }
        id => Ok(id),
    }
}
