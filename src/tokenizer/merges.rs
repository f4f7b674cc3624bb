//! The metadata key `tokenizer.ggml.merges` in; which tokens are joined, and in which order, out.

use hashbrown::{HashMap, HashSet};

use super::merge::{Join, Symbol};
use super::vocabulary::Vocabulary;
use crate::error::{Error, Result};
use crate::gguf::Gguf;

/// The token that two tokens make, and the rank of that merge.
pub(super) struct Merges(HashMap<(u32, u32), (i32, u32)>);

impl Merges {
    /// Reads the merges between tokens that the vocabulary finds. `unspell` appends the bytes that a token's text stands for.
    pub fn from_gguf(gguf: &Gguf, vocabulary: &Vocabulary, unspell: impl Fn(&str, &mut Vec<u8>)) -> Result<Self> {
        const KEY: &str = "tokenizer.ggml.merges";
        let lines = gguf.strings(KEY)?.ok_or_else(|| Error::metadata(KEY, "is missing"))?;
        let marks: HashSet<&[u8]> =
            vocabulary.iter().filter(|(_, kind, _)| kind.is_mark()).map(|(.., bytes)| bytes).collect();
        let mut merges = HashMap::with_capacity(lines.len());
        let mut spelt = Vec::new();
        for (rank, line) in (0i32..).zip(lines.iter()) {
            let unusable =
                || Error::metadata(KEY, format!("line {rank}, `{line}`, is not two tokens that make a third"));
            let (left, right) = line.split_once(' ').ok_or_else(unusable)?;
            spelt.clear();
            unspell(left, &mut spelt);
            let middle = spelt.len();
            unspell(right, &mut spelt);
            let find = |bytes| vocabulary.find(bytes);
            let ids = || Some(((find(&spelt[..middle])?, find(&spelt[middle..])?), find(&spelt)?));
            match ids() {
                Some((pair, id)) => _ = merges.entry(pair).or_insert((rank, id)),
                // Text must not become a mark; that some converters list the way to one does not make it text.
                None if marks.contains(&spelt[..]) => {}
                None => return Err(unusable()),
            }
        }
        Ok(Self(merges))
    }

    pub fn join(&self, a: &Symbol, b: &Symbol) -> Option<Join> {
        self.0.get(&(a.id?, b.id?)).map(|&(order, id)| Join { order, id })
    }
}
