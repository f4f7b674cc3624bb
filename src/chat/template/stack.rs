//! Runs work on templates on a thread with a large stack. Parsing a template, rendering it and
//! dropping its values recurse as deep as the template nests.

use std::thread;

use super::lexer::SourcePiece;
use crate::error::{Error, Result};

/// Size of the stack in bytes: enough for the deepest values that a template can build in its
/// steps, and for expressions and blocks within the limits below. Unused pages take no memory.
const STACK_BYTES: usize = 1 << 30;

/// The largest number of tokens in one tag; models' templates have some hundred.
const MAX_TOKENS: usize = 4000;

/// The largest number of tags; models' templates have some hundred.
const MAX_TAGS: usize = 5000;

/// Runs `act` on a thread with a large stack. A panic of minijinja becomes an error.
pub(super) fn on_deep_stack<T: Send>(act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let failed = |what: &str| Error::ChatTemplate(what.to_owned());
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("inkstone-template".into()).stack_size(STACK_BYTES);
        let thread = thread
            .spawn_scoped(scope, act)
            .map_err(|e| failed(&format!("a thread to render it could not be started: {e}")))?;
        thread.join().unwrap_or_else(|_| Err(failed("contains an expression that the template engine cannot compute")))
    })
}

/// Returns an error for a template with parts that may nest too deeply.
pub(super) fn check_size(template: &str, pieces: &[SourcePiece<'_>]) -> Result<()> {
    let refuse = |offset: usize, what: String| {
        let line = template[..offset].matches('\n').count() + 1;
        Err(Error::ChatTemplate(format!("line {line}: {what}")))
    };
    let tags = || pieces.iter().filter_map(|piece| if let SourcePiece::Tag(tag) = piece { Some(tag) } else { None });
    if let Some(tag) = tags().find(|tag| tag.tokens.len() > MAX_TOKENS) {
        return refuse(tag.tokens[0].offset, format!("has a tag of more than {MAX_TOKENS} words and symbols"));
    }
    match tags().nth(MAX_TAGS) {
        Some(tag) => refuse(tag.end, format!("there are more than {MAX_TAGS} tags")),
        None => Ok(()),
    }
}
