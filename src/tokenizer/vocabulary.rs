//! Reads the tokens of a vocabulary and its special ids from the metadata keys `tokenizer.ggml.*`.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::{
    error::{Error, Result},
    gguf::{Array, Gguf, Strings},
};

/// A value of `tokenizer.ggml.token_type`, with SentencePiece's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenType {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl TokenType {
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

    /// Returns whether the token is a signal to the model and not a part of text.
    pub fn is_special(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }
}

/// Texts of control tokens that end generation even if the metadata does not name them: the list of
/// llama.cpp.
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

/// Ends a turn, unless the vocabulary has one of [`CALL_ENDS`]: then it ends a message within a
/// turn.
const MESSAGE_END: &str = "<|end|>";
const CALL_ENDS: &[&str] = &["<|call|>", "<|calls|>"];

/// Texts of control or user-defined tokens that follow the end of a file when a code model fills in
/// its middle.
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

/// The tokens of a vocabulary and its special ids, common to all kinds of tokenizers.
#[derive(Default)]
pub(super) struct Vocabulary {
    /// The concatenated bytes of all tokens; one allocation for each token would take more memory.
    bytes: Vec<u8>,
    /// End offset of each token in `bytes`.
    ends: Vec<usize>,
    types: Vec<TokenType>,
    /// Ids by the hash of their bytes.
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    pub add_bos: bool,
    pub add_eos: bool,
    /// Whether encoding adds a space before a text.
    pub adds_space: bool,
    pub end_of_generation: Vec<u32>,
}

impl Vocabulary {
    /// Reads the tokens' types and the special ids. `decode` appends the bytes of a token to its
    /// last argument.
    pub fn from_gguf(gguf: &Gguf, tokens: &Strings, decode: impl Fn(&str, TokenType, &mut Vec<u8>)) -> Result<Self> {
        let mut this = Self::default();
        for (text, kind) in tokens.iter().zip(token_types(gguf, tokens.len())?) {
            this.push(kind, |bytes| decode(text, kind, bytes));
        }
        this.end_at_markers();
        this.read_ids(gguf)?;
        Ok(this)
    }

    /// Reads the special ids, after all tokens were added.
    ///
    /// # Errors
    /// [`Error::Metadata`] if an id is not in the vocabulary.
    pub fn read_ids(&mut self, gguf: &Gguf) -> Result<()> {
        let tokens = self.len();
        let id = |key: &str| special_id(gguf, key, tokens);
        self.bos = id("tokenizer.ggml.bos_token_id")?;
        self.eos = id("tokenizer.ggml.eos_token_id")?;
        let unknown = self.types.iter().position(|&kind| kind == TokenType::Unknown).map(|at| at as u32);
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

    /// Ends generation at tokens with a well-known text, after all tokens were added.
    pub fn end_at_markers(&mut self) {
        let is = |bytes: &[u8], texts: &[&str]| texts.iter().any(|text| text.as_bytes() == bytes);
        let controls = || self.iter().filter(|(_, kind, _)| *kind == TokenType::Control);
        let calls = controls().any(|(.., bytes)| is(bytes, CALL_ENDS));
        let ends = self.iter().filter(|&(_, kind, bytes)| match kind {
            TokenType::Control if calls && bytes == MESSAGE_END.as_bytes() => false,
            TokenType::Control => is(bytes, END_MARKERS) || is(bytes, FILE_MARKERS),
            TokenType::UserDefined => is(bytes, FILE_MARKERS),
            TokenType::Normal | TokenType::Unknown | TokenType::Unused | TokenType::Byte => false,
        });
        self.end_of_generation = ends.map(|(id, ..)| id).collect();
    }

    /// Reads whether begin- and end-of-sequence tokens are added. The defaults depend on the
    /// vocabulary type.
    ///
    /// # Errors
    /// [`Error::Metadata`] if such a token is to be added and the file does not name it.
    pub fn read_flags(&mut self, gguf: &Gguf, default_bos: bool, default_eos: bool) -> Result<()> {
        let flag = |key: &str, id: Option<u32>, default: bool| match gguf.bool(key)? {
            Some(true) if id.is_none() => Err(Error::metadata(key, "is true, but the file does not name the token")),
            flag => Ok(flag.unwrap_or(default && id.is_some())),
        };
        self.add_bos = flag("tokenizer.ggml.add_bos_token", self.bos, default_bos)?;
        self.add_eos = flag("tokenizer.ggml.add_eos_token", self.eos, default_eos)?;
        Ok(())
    }

    /// Adds the next token.
    pub fn push(&mut self, kind: TokenType, decode: impl FnOnce(&mut Vec<u8>)) {
        decode(&mut self.bytes);
        self.ends.push(self.bytes.len());
        self.types.push(kind);
    }

    /// Adds the tokens of some types to the index of [`find`](Self::find). A later token replaces
    /// an earlier one with equal bytes.
    pub fn index(&mut self, includes: impl Fn(TokenType) -> bool) {
        let mut index = std::mem::take(&mut self.index);
        index.reserve(self.len(), |&id| self.hash(self.slice(id)));
        for (id, kind, bytes) in self.iter() {
            if includes(kind) {
                let hash = |&id: &u32| self.hash(self.slice(id));
                let entry = index.entry(self.hash(bytes), |&indexed| self.slice(indexed) == bytes, hash);
                entry.and_modify(|indexed| *indexed = id).or_insert(id);
            }
        }
        self.index = index;
    }

    /// Returns the indexed token with these bytes.
    pub fn find(&self, bytes: &[u8]) -> Option<u32> {
        self.index.find(self.hash(bytes), |&id| self.slice(id) == bytes).copied()
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        self.hasher.hash_one(bytes)
    }

    /// Returns every token with its type and bytes.
    pub fn iter(&self) -> impl Iterator<Item = (u32, TokenType, &[u8])> {
        (0..).zip(&self.types).map(|(id, &kind)| (id, kind, self.slice(id)))
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn types(&self) -> &[TokenType] {
        &self.types
    }

    /// Returns the bytes of a token.
    pub fn bytes(&self, id: u32) -> Result<&[u8]> {
        if id as usize >= self.len() {
            let what = format!("{id} is not in the vocabulary, which has {} tokens", self.len());
            return Err(Error::argument("id", what));
        }
        Ok(self.slice(id))
    }

    /// Returns the bytes of a token; the id must be in the vocabulary.
    fn slice(&self, id: u32) -> &[u8] {
        let index = id as usize;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    /// Returns the bytes that a token adds to a text: none for special tokens.
    pub fn text_bytes(&self, id: u32) -> Result<&[u8]> {
        let bytes = self.bytes(id)?;
        Ok(if self.types[id as usize].is_special() { &[] } else { bytes })
    }
}

/// Reads the tokens' texts.
pub(super) fn tokens(gguf: &Gguf) -> Result<&Strings> {
    let tokens = gguf.strings(TOKENS)?.ok_or_else(|| Error::metadata(TOKENS, "is missing"))?;
    if tokens.is_empty() || u32::try_from(tokens.len()).is_err() {
        return Err(Error::metadata(TOKENS, format!("has {} tokens, but must have 1 to {}", tokens.len(), u32::MAX)));
    }
    Ok(tokens)
}

fn token_types(gguf: &Gguf, count: usize) -> Result<Vec<TokenType>> {
    const KEY: &str = "tokenizer.ggml.token_type";
    let numbers: Vec<i64> = match gguf.array(KEY)? {
        None => return Ok(vec![TokenType::Normal; count]),
        Some(Array::I32(numbers)) => numbers.iter().map(|&n| n.into()).collect(),
        Some(Array::U32(numbers)) => numbers.iter().map(|&n| n.into()).collect(),
        Some(_) => return Err(Error::metadata(KEY, "must be an array of 32-bit integers")),
    };
    same_length(KEY, numbers.len(), count)?;
    let kind = |number| {
        TokenType::from_number(number)
            .ok_or_else(|| Error::metadata(KEY, format!("has the unknown token type {number}; known are 1 to 6")))
    };
    numbers.into_iter().map(kind).collect()
}

/// Checks that an array has one element for each token.
pub(super) fn same_length(key: &str, length: usize, tokens: usize) -> Result<()> {
    if length == tokens {
        return Ok(());
    }
    Err(Error::metadata(key, format!("has {length} elements, but there are {tokens} tokens")))
}

/// Reads the list of end-of-sequence ids that checkpoints have.
fn end_ids(gguf: &Gguf, tokens: usize) -> Result<&[u32]> {
    const KEY: &str = "tokenizer.ggml.eos_token_ids";
    match gguf.array(KEY)? {
        None => Ok(&[]),
        Some(Array::U32(ids)) => match ids.iter().find(|&&id| id as usize >= tokens) {
            Some(id) => Err(Error::metadata(KEY, format!("has {id}, but there are only {tokens} tokens"))),
            None => Ok(ids),
        },
        Some(_) => Err(Error::metadata(KEY, "must be an array of unsigned 32-bit integers")),
    }
}

/// Reads the id of a special token.
pub(super) fn special_id(gguf: &Gguf, key: &str, tokens: usize) -> Result<Option<u32>> {
    match gguf.u32(key)? {
        Some(id) if id as usize >= tokens => {
            Err(Error::metadata(key, format!("is {id}, but there are only {tokens} tokens")))
        }
        id => Ok(id),
    }
}
