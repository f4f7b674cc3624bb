//! A stack for templates: to parse one, to run it and to let go of what it made goes as deep as it nests.

use std::thread;

use super::lexer::Piece;
use crate::error::{Error, Result};

/// Deep enough for the values that a template can nest within its steps, and for expressions and blocks within the limits
/// below. Systems give no memory for what is not used of it.
const STACK: usize = 1 << 30;

/// The most names, numbers, texts and symbols in one tag; templates of models have some hundred.
const MAX_TOKENS: usize = 4000;

/// The most tags; templates of models have some hundred.
const MAX_TAGS: usize = 5000;

/// Does something on a stack of its own. A panic of minijinja's is an error.
pub(super) fn on_deep_stack<T: Send>(act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let failed = |what: &str| Error::ChatTemplate(what.to_owned());
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("inkstone-template".into()).stack_size(STACK);
        let thread = thread.spawn_scoped(scope, act).map_err(|e| failed(&format!("has no thread to run on: {e}")))?;
        thread.join().unwrap_or_else(|_| Err(failed("asks for what cannot be computed")))
    })
}

/// Refuses a template whose parts may nest too deeply.
pub(super) fn check(template: &str, pieces: &[Piece<'_>]) -> Result<()> {
    let refuse = |at: usize, what: String| {
        let line = template[..at].matches('\n').count() + 1;
        Err(Error::ChatTemplate(format!("line {line}: {what}")))
    };
    let tags = || pieces.iter().filter_map(|piece| if let Piece::Tag(tag) = piece { Some(tag) } else { None });
    if let Some(tag) = tags().find(|tag| tag.tokens.len() > MAX_TOKENS) {
        return refuse(tag.tokens[0].at, format!("has a tag of more than {MAX_TOKENS} words and symbols"));
    }
    match tags().nth(MAX_TAGS) {
        Some(tag) => refuse(tag.end, format!("there are more than {MAX_TAGS} tags")),
        None => Ok(()),
    }
}
