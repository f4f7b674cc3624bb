//! Rewords llguidance's errors in terms of the expression or grammar that the caller wrote.
//!
//! llguidance converts a regular expression into a grammar, and its errors show that grammar and
//! positions in it.

use regex_automata::util::syntax;

use crate::{Error, Result, error::excerpt};

/// The text between the expression and the reason in llguidance's errors.
const IN_REGEX: &str = " (in regex): ";

/// Checks the syntax of a regular expression.
///
/// # Errors
/// [`Error::Grammar`] with the expression and the place of the mistake.
pub(super) fn check_regex(expression: &str) -> Result<()> {
    syntax::parse(expression).map(drop).map_err(|error| Error::Grammar(error.to_string()))
}

/// Returns the error for a regular expression with valid syntax that llguidance rejected.
pub(super) fn of_regex(expression: &str, error: &str) -> Error {
    let what = Located::parse(error).map_or(error, |located| located.reason);
    // The reason may end with llguidance's version of the expression.
    let what = what.split(" in regex /").next().unwrap_or(what);
    Error::Grammar(format!("the regular expression `{}` cannot be used: {what}", excerpt(expression)))
}

/// Returns the error for a Lark grammar that llguidance rejected.
pub(super) fn of_lark(grammar: &str, error: &str) -> Error {
    let Some(Located { line, column, reason }) = Located::parse(error) else {
        // Its position is counted from the directive, not from the start of the grammar.
        let note = if error.starts_with("failed to parse \"%") { " (counted from the directive)" } else { "" };
        return Error::Grammar(format!("{error}{note}"));
    };
    let source = grammar.lines().nth(line - 1).map(excerpt).unwrap_or_default();
    let column = column.map(|column| format!(", column {column}")).unwrap_or_default();
    Error::Grammar(format!("line {line}{column}, `{source}`: {reason}"))
}

/// An error of llguidance about a place in a Lark grammar. Syntax errors have the form
/// `LINE(COLUMN): REASON`; other errors have the form `at LINE(COLUMN): REASON`, with the column of
/// the whole rule, and some lines of the grammar at the end.
#[derive(Debug, PartialEq)]
struct Located<'e> {
    line: usize,
    column: Option<usize>,
    reason: &'e str,
}

impl<'e> Located<'e> {
    fn parse(error: &'e str) -> Option<Self> {
        let (place, what) = error.split_once("): ")?;
        let (line, column) = place.strip_prefix("at ").unwrap_or(place).split_once('(')?;
        let (line, column) = (line.parse().ok().filter(|line| *line > 0)?, column.parse().ok()?);
        let column = (!place.starts_with("at ")).then_some(column);
        let shown_from = format!("\n{:>4} | ", usize::saturating_sub(line, 3) + 1);
        let what = what.split(&shown_from).next().unwrap_or(what).trim_end();
        let refused = what.strip_prefix("invalid regex ").and_then(|what| what.split_once(IN_REGEX));
        Some(Self { line, column, reason: refused.map_or(what, |(_, reason)| reason) })
    }
}
