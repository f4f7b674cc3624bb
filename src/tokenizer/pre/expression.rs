//! The expressions of a `tokenizer.json`, run by the engine of the built-in ones.

use regex_automata::util::syntax;

use super::{Cut, Stage};

/// The expression that Hugging Face's byte-level pre-tokenizer has built in.
pub(in crate::tokenizer) const BYTE_LEVEL: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

impl Stage {
    /// What cuts at the matches of an expression of a `tokenizer.json`, if this engine can. It has no look-ahead but those of [`Cut`], takes
    /// possessive quantifiers for repetitions, and is asked for no empty matches.
    pub fn from_expression(expression: &str) -> Option<Self> {
        let cut = match expression {
            r"\d{1,3}(?=(?:\d{3})*\b)" => Cut::Thousands,
            r"(?=(\d{3})+(?!\d))" => Cut::BeforeThrees,
            // The first of three; the others then find nothing to cut.
            r"\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510}" => Cut::Threes(r"\p{Nd}+"),
            _ => expression.strip_suffix(r"|\s+(?!\S)|\s+").map_or(Cut::At(expression), Cut::Words),
        };
        let is_sound = |expression: &str| {
            !is_possessive(expression)
                && syntax::parse(expression).is_ok_and(|hir| hir.properties().minimum_len() > Some(0))
        };
        let is_sound = cut.expressions().into_iter().all(|(expression, _)| is_sound(expression));
        if is_sound { Self::new(cut).ok() } else { None }
    }
}

/// Whether an expression may have a possessive quantifier: `?+`, `*+`, `++` or `{1,3}+`.
fn is_possessive(expression: &str) -> bool {
    let counts = |before: &str| {
        before.rsplit('{').next().is_some_and(|count| count.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b',')))
    };
    ["?+", "*+", "++"].iter().any(|quantifier| expression.contains(quantifier))
        || expression.match_indices("}+").any(|(at, _)| counts(&expression[..at]))
}
