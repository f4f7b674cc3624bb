//! Keeps answers to the choice of tools.

#[cfg(all(test, feature = "constrained"))]
mod tests;

use crate::{Error, Result, chat::AnswerParser, chat::ToolChoice};
#[cfg(feature = "constrained")]
use {
    super::Runner,
    crate::{generate::GenerateOptions, grammar::Grammar, tokenizer::Tokenizer},
};

/// Refuses a choice of tools that only a grammar can bring about.
#[cfg(not(feature = "constrained"))]
pub(super) fn refuse_forced_calls(parser: &AnswerParser) -> Result<()> {
    match parser.tool_choice() {
        Some(choice @ (ToolChoice::Required | ToolChoice::Named(_))) => {
            let what =
                format!("is {choice:?}, which takes inkstone's feature `constrained`: build with it, or choose `Auto`");
            Err(Error::argument("tool_choice", what))
        }
        _ => Ok(()),
    }
}

#[cfg(feature = "constrained")]
impl Runner {
    /// Returns the form that the answer has after a thought, if it must have one, and the parser of
    /// such answers.
    pub(super) fn form_of_answer(
        &self,
        parser: AnswerParser,
        options: &GenerateOptions,
    ) -> Result<(AnswerParser, Option<Grammar>)> {
        let Some(grammar) = &options.grammar else {
            let form = self.form_of_calls(&parser)?;
            return Ok((parser, form));
        };
        if parser.tool_choice() == Some(&ToolChoice::None) {
            // The caller's form may look like a call without being one.
            return Ok((parser.without_calls(), Some(grammar.clone())));
        }
        if parser.offers_tools() {
            let what = "cannot be combined with tools that may be called: offer none, or set \
                        `ChatOptions::tool_choice(ToolChoice::None)`";
            return Err(Error::argument("grammar", what));
        }
        Ok((parser, Some(grammar.clone())))
    }

    fn form_of_calls(&self, parser: &AnswerParser) -> Result<Option<Grammar>> {
        let Some(grammar) = grammar_of_calls(parser, &self.tokenizer) else { return Ok(None) };
        self.grammars()?.lark(&grammar?).map(Some)
    }
}

/// The grammar of answers with calls in a vocabulary in which marks may be special tokens.
#[cfg(feature = "constrained")]
fn grammar_of_calls(parser: &AnswerParser, tokenizer: &Tokenizer) -> Option<Result<String>> {
    let special = tokenizer.control_tokens().map(|(id, text)| (text, id)).collect();
    parser.grammar(special).map(|grammar| grammar.map_err(Error::Grammar))
}
