//! Reads the merges of a vocabulary from the metadata key `tokenizer.ggml.merges`.

use hashbrown::{HashMap, HashSet};

use super::{
    merge::{Join, Symbol},
    vocabulary::Vocabulary,
};
use crate::{
    error::{Error, Result},
    gguf::Gguf,
};

/// The rank and the merged token of each pair of tokens.
pub(super) struct Merges(HashMap<(u32, u32), (i32, u32)>);

impl Merges {
    /// Reads the merges of indexed tokens. `unspell` appends the bytes of a token's text.
    pub fn from_gguf(gguf: &Gguf, vocabulary: &Vocabulary, unspell: impl Fn(&str, &mut Vec<u8>)) -> Result<Self> {
        const KEY: &str = "tokenizer.ggml.merges";
        let lines = gguf.strings(KEY)?.ok_or_else(|| Error::metadata(KEY, "is missing"))?;
        let special: HashSet<&[u8]> =
            vocabulary.iter().filter(|(_, kind, _)| kind.is_special()).map(|(.., bytes)| bytes).collect();
        let mut merges = HashMap::with_capacity(lines.len());
        let mut spelt = Vec::new();
        for (rank, line) in (0i32..).zip(lines.iter()) {
            let unusable = || {
                Error::metadata(
                    KEY,
                    format!("line {rank}, `{line}`, must be two tokens of the vocabulary that form a third one"),
                )
            };
            let (left, right) = line.split_once(' ').ok_or_else(unusable)?;
            spelt.clear();
            unspell(left, &mut spelt);
            let middle = spelt.len();
            unspell(right, &mut spelt);
            let find = |bytes| vocabulary.find(bytes);
            let ids = || Some(((find(&spelt[..middle])?, find(&spelt[middle..])?), find(&spelt)?));
            match ids() {
                Some((pair, id)) => _ = merges.entry(pair).or_insert((rank, id)),
                // Text must not become a special token, although some converters list merges for
                // it.
                None if special.contains(&spelt[..]) => {}
                None => return Err(unusable()),
            }
        }
        Ok(Self(merges))
    }

    pub fn join(&self, left: &Symbol, right: &Symbol) -> Option<Join> {
        self.0.get(&(left.id?, right.id?)).map(|&(order, id)| Join { order, id })
    }
}
