//! A text in; its special tokens and the stretches between them out.
//!
//! At each place the longest special token wins, the leftmost place first: what Hugging Face's added tokens do.

use ahash::AHashSet;
use aho_corasick::{AhoCorasick, MatchKind};

use super::SpecialTokens;
use super::vocabulary::{Kind, Vocabulary};
use crate::error::{Error, Result};
use crate::gguf::{Gguf, Strings};

/// A part of a text.
pub(super) enum Fragment<'t> {
    /// A special token.
    Token(u32),
    /// Ordinary text, not empty.
    Text(&'t str),
}

/// Finds special tokens.
pub(super) struct SpecialFinder {
    /// Control, unknown and user-defined tokens.
    all: Finder,
    /// User-defined tokens alone.
    user_defined: Finder,
    /// The tokens that swallow the white space after them.
    strips_after: AHashSet<u32>,
}

struct Finder {
    automaton: AhoCorasick,
    ids: Vec<u32>,
}

/// Models whose tokenizers strip the white space after special tokens (`rstrip` in their `tokenizer.json`), which GGUF
/// has no key for: what `general.name` contains, in lower case, and the tokens exempt from it.
const STRIPS_AFTER: &[(&[&str], &[&str])] = &[(&["phi-3", "phi3"], &["<unk>", "<s>", "<|endoftext|>"])];

impl SpecialFinder {
    /// A finder of the special ones among the `tokens` of a vocabulary.
    pub fn from_gguf(gguf: &Gguf, tokens: &Strings, vocabulary: &Vocabulary) -> Result<Self> {
        let special = |wanted: fn(Kind) -> bool| {
            let tokens = (0..).zip(tokens.iter()).zip(vocabulary.kinds());
            tokens.filter(move |((_, text), kind)| wanted(**kind) && !text.is_empty()).map(|(token, _)| token)
        };
        let all = |kind: Kind| kind.is_mark() || kind == Kind::UserDefined;
        let name = gguf.str("general.name")?.unwrap_or_default().to_lowercase();
        let row = STRIPS_AFTER.iter().find(|(names, _)| names.iter().any(|part| name.contains(part)));
        let strips_after =
            row.map(|(_, exempt)| special(all).filter(|(_, text)| !exempt.contains(text)).map(|(id, _)| id));
        Ok(Self {
            all: Finder::new(special(all))?,
            user_defined: Finder::new(special(|kind| kind == Kind::UserDefined))?,
            strips_after: strips_after.map(Iterator::collect).unwrap_or_default(),
        })
    }

    /// Calls `each` with every part of the text, in order.
    pub fn split<'t>(
        &self,
        text: &'t str,
        special: SpecialTokens,
        mut each: impl FnMut(Fragment<'t>) -> Result<()>,
    ) -> Result<()> {
        let finder = match special {
            SpecialTokens::Parse => &self.all,
            SpecialTokens::Plain => &self.user_defined,
        };
        let mut start = 0;
        for found in finder.automaton.find_iter(text) {
            let id = finder.ids[found.pattern().as_usize()];
            // White space swallowed by the token before may reach into this one, if it begins with some.
            if found.start() < start {
                continue;
            }
            if start < found.start() {
                each(Fragment::Text(&text[start..found.start()]))?;
            }
            each(Fragment::Token(id))?;
            start = found.end();
            if self.strips_after.contains(&id) {
                start = text.len() - text[start..].trim_start_matches(is_c_space).len();
            }
        }
        if start < text.len() {
            each(Fragment::Text(&text[start..]))?;
        }
        Ok(())
    }
}

/// `isspace` of C's default locale, which llama.cpp strips by.
fn is_c_space(char: char) -> bool {
    matches!(char, ' ' | '\t'..='\r')
}

impl Finder {
    fn new<'t>(tokens: impl Iterator<Item = (u32, &'t str)>) -> Result<Self> {
        let (ids, texts): (Vec<u32>, Vec<&str>) = tokens.unzip();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts)
            .map_err(|e| Error::Tokenizer(format!("the special tokens cannot be searched for: {e}")))?;
        Ok(Self { automaton, ids })
    }
}
