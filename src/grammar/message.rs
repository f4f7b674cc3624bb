//! Rewords llguidance's errors in terms of the expression or grammar that the caller wrote.
//!
//! llguidance turns a regular expression into a grammar of its own before it reads it, and shows that grammar in its
//! errors, with positions there.

use regex_automata::util::syntax;

use crate::{Error, Result, error::excerpt};

/// What llguidance puts before the reason why an expression is refused, after the expression itself.
const IN_REGEX: &str = " (in regex): ";

/// Checks the syntax of a regular expression.
///
/// # Errors
/// [`Error::Grammar`] with the expression and the place where it is wrong.
pub(super) fn check_regex(expression: &str) -> Result<()> {
    syntax::parse(expression).map(drop).map_err(|error| Error::Grammar(error.to_string()))
}

/// Returns the error for a regular expression that llguidance refused although its syntax is right.
pub(super) fn of_regex(expression: &str, error: &str) -> Error {
    let what = Located::parse(error).map_or(error, |located| located.what);
    // The reason may end with llguidance's version of the expression.
    let what = what.split(" in regex /").next().unwrap_or(what);
    Error::Grammar(format!("the regular expression `{}` cannot be used: {what}", excerpt(expression)))
}

/// Returns the error for a Lark grammar that llguidance refused.
pub(super) fn of_lark(grammar: &str, error: &str) -> Error {
    let Some(Located { line, column, what }) = Located::parse(error) else {
        // Its position is counted from the directive, not from the start of the grammar.
        let note = if error.starts_with("failed to parse \"%") { " (counted from the directive)" } else { "" };
        return Error::Grammar(format!("{error}{note}"));
    };
    let source = grammar.lines().nth(line - 1).map(excerpt).unwrap_or_default();
    let column = column.map(|column| format!(", column {column}")).unwrap_or_default();
    Error::Grammar(format!("line {line}{column}, `{source}`: {what}"))
}

/// An error of llguidance's about a place in a Lark grammar: `LINE(COLUMN): WHAT` for its syntax, and
/// `at LINE(COLUMN): WHAT` with the column of the whole rule for its meaning, followed by some lines of the grammar.
#[derive(Debug, PartialEq)]
struct Located<'e> {
    line: usize,
    column: Option<usize>,
    what: &'e str,
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
        Some(Self { line, column, what: refused.map_or(what, |(_, reason)| reason) })
    }
}
