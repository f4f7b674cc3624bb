//! Compiles grammars with llguidance, within limits on the time and memory of untrusted grammars.

use std::panic::AssertUnwindSafe;

use llguidance::{
    Matcher, ParserFactory,
    api::{GrammarInit, ParserLimits, TopLevelGrammar},
    earley::{lexerspec::LexerSpec, regexvec::RegexVec},
    panic_utils,
};

/// Why a grammar is refused by [`starts_within_limits`].
const TOO_COMPLEX: &str = "is too complex: which characters can begin a text takes too many steps to find out; \
                           smaller numbers in `multipleOf` and in repetitions, and fewer patterns for one value help";

/// Returns a matcher that has seen no token, or llguidance's words on why the grammar cannot be
/// used.
pub(super) fn compile(factory: &ParserFactory, grammar: TopLevelGrammar) -> Result<Matcher, String> {
    let limits = factory.limits();
    let parse = AssertUnwindSafe(|| {
        let environment = Some(factory.tok_env().clone());
        let (grammar, lexer) = GrammarInit::Serialized(grammar).to_internal(environment, limits.clone())?;
        let states = lexer.to_regex_vec(&mut limits.clone())?;
        let starts = starts_within_limits(states, &lexer, limits);
        Ok((grammar, lexer, starts))
    });
    let (grammar, lexer, starts) =
        panic_utils::catch_unwind(parse).map_err(|error| without_backtrace(&error.to_string()))?;
    if !starts {
        return Err(TOO_COMPLEX.into());
    }
    let matcher = Matcher::new(factory.create_parser_from_init_default(GrammarInit::Internal(grammar, lexer)));
    match matcher.get_error() {
        Some(what) => Err(without_backtrace(&what)),
        None => Ok(matcher),
    }
}

/// Returns whether the first step of the lexer stays within the limit that llguidance sets for all
/// steps but this one: with `{"multipleOf": 3456789}` it would take minutes and gigabytes.
fn starts_within_limits(mut states: RegexVec, lexer: &LexerSpec, limits: &ParserLimits) -> bool {
    states.set_fuel(limits.initial_lexer_fuel);
    let start = states.initial_state(&lexer.all_lexemes());
    for byte in 0..=u8::MAX {
        states.transition(start, byte);
    }
    !states.has_error()
}

/// Removes the backtrace that llguidance appends to the message of a panic.
fn without_backtrace(message: &str) -> String {
    message.split("\n<backtrace>").next().unwrap_or_default().to_owned()
}
