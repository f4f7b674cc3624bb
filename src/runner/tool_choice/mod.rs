//! Constrains answers according to the tool choice.

#[cfg(all(test, feature = "constrained"))]
mod tests;

#[cfg(feature = "constrained")]
use super::Runner;
use crate::{
    Error, Result,
    chat::{AnswerParser, ToolChoice},
};
#[cfg(feature = "constrained")]
use crate::{generate::GenerateOptions, grammar::Grammar, tokenizer::Tokenizer};

/// Returns an error for a tool choice that needs a grammar.
#[cfg(not(feature = "constrained"))]
pub(super) fn refuse_forced_calls(parser: &AnswerParser) -> Result<()> {
    match parser.tool_choice() {
        Some(choice @ (ToolChoice::Required | ToolChoice::Named(_))) => {
            let what = format!(
                "is {choice:?}, which needs the feature `constrained` of inkstone: enable it, or choose `Auto`"
            );
            Err(Error::argument("tool_choice", what))
        }
        _ => Ok(()),
    }
}

#[cfg(feature = "constrained")]
impl Runner {
    /// Returns the grammar of the answer after its reasoning, `None` if it is unconstrained, and
    /// the parser of such answers.
    pub(super) fn answer_grammar(
        &self,
        parser: AnswerParser,
        options: &GenerateOptions,
    ) -> Result<(AnswerParser, Option<Grammar>)> {
        let Some(grammar) = &options.grammar else {
            let grammar = self.call_grammar(&parser)?;
            return Ok((parser, grammar));
        };
        if parser.tool_choice() == Some(&ToolChoice::None) {
            // A text of the caller's grammar may look like a call.
            return Ok((parser.without_calls(), Some(grammar.clone())));
        }
        if parser.offers_tools() {
            let what = "cannot be combined with tools that may be called: offer no tools, or set \
                        `ChatOptions::tool_choice(ToolChoice::None)`";
            return Err(Error::argument("grammar", what));
        }
        Ok((parser, Some(grammar.clone())))
    }

    fn call_grammar(&self, parser: &AnswerParser) -> Result<Option<Grammar>> {
        let Some(grammar) = call_grammar(parser, &self.tokenizer) else { return Ok(None) };
        self.grammars()?.lark(&grammar?).map(Some)
    }
}

/// Returns the grammar of answers with calls, in which marks are special tokens if the vocabulary
/// has them; `None` if the answer is unconstrained.
#[cfg(feature = "constrained")]
fn call_grammar(parser: &AnswerParser, tokenizer: &Tokenizer) -> Option<Result<String>> {
    let special = tokenizer.control_tokens().map(|(id, text)| (text, id)).collect();
    parser.grammar(special).map(|grammar| grammar.map_err(Error::Grammar))
}
