//! Compiles the expressions of a `tokenizer.json` for our engine.

use regex_automata::util::syntax;

use super::{SplitRule, SplitStage};

/// The built-in expression of Hugging Face's byte-level pre-tokenizer.
pub(in crate::tokenizer) const BYTE_LEVEL: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

impl SplitStage {
    /// Returns the stage that splits at the matches of an expression of a `tokenizer.json`; `None`
    /// if our engine cannot run it. The engine supports only the look-aheads of [`SplitRule`],
    /// reads possessive quantifiers as repetitions, and finds no empty matches.
    pub fn from_expression(expression: &str) -> Option<Self> {
        let rule = match expression {
            r"\d{1,3}(?=(?:\d{3})*\b)" => SplitRule::Thousands,
            r"(?=(\d{3})+(?!\d))" => SplitRule::BeforeThrees,
            // The first of three expressions; the other two have no effect after it.
            r"\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510}" => SplitRule::Threes(r"\p{Nd}+"),
            _ => expression.strip_suffix(r"|\s+(?!\S)|\s+").map_or(SplitRule::At(expression), SplitRule::Words),
        };
        let is_supported = |expression: &str| {
            !is_possessive(expression)
                && syntax::parse(expression).is_ok_and(|hir| hir.properties().minimum_len() > Some(0))
        };
        let is_supported = rule.expressions().into_iter().all(|(expression, _)| is_supported(expression));
        if is_supported { Self::new(rule).ok() } else { None }
    }
}

/// Returns whether an expression may have a possessive quantifier: `?+`, `*+`, `++` or `{1,3}+`.
fn is_possessive(expression: &str) -> bool {
    let ends_with_count = |before: &str| {
        before.rsplit('{').next().is_some_and(|count| count.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b',')))
    };
    ["?+", "*+", "++"].iter().any(|quantifier| expression.contains(quantifier))
        || expression.match_indices("}+").any(|(at, _)| ends_with_count(&expression[..at]))
}
