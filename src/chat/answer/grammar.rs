//! Writes the grammar of whole answers: text, and calls that fit the offered tools.

use super::{
    call_format::CallFormat,
    call_grammar::{ANY, GrammarWriter, SpecialTokenIds, escaped, lacks},
    parser::AnswerParser,
};
use crate::chat::{Tool, ToolChoice};

impl AnswerParser {
    /// Returns the grammar of the answers that the tool choice allows, after their reasoning;
    /// `None` without a tool choice or without tools.
    ///
    /// # Errors
    /// Names the tool, and the keyword of its schema or the name that the grammar cannot express.
    pub(crate) fn grammar(&self, special: SpecialTokenIds<'_>) -> Option<Result<String, String>> {
        let choice = self.offered.choice.as_ref()?;
        self.calls.map(|format| self.answer_grammar(format, choice, special))
    }

    fn answer_grammar(
        &self,
        format: &'static CallFormat,
        choice: &ToolChoice,
        special: SpecialTokenIds<'_>,
    ) -> Result<String, String> {
        let offered = &self.offered;
        let mut writer = GrammarWriter::new(special);
        let content = self.text_without_calls(format);
        let text = writer.terminal(format!("/(?s:.+)/ & {content}"));
        if *choice == ToolChoice::None {
            return Ok(writer.finish(&format!("{text}?")));
        }
        let only = |tool: &&Tool| !matches!(choice, ToolChoice::Named(name) if *name != tool.name);
        let tools: Vec<&Tool> = offered.tools.iter().filter(only).collect();
        let calls = (format.write)(&mut writer, &tools, offered.parallel)?;
        let may_be_text = *choice == ToolChoice::Auto;
        let mut answers = vec![];
        if may_be_text {
            answers.push(format!("{text}?"));
        }
        if format.unmarked.is_some() {
            answers.push(calls.clone());
        }
        if !format.open.is_empty() {
            let open = if may_be_text {
                writer.text_before(format.open, &self.text_before_calls(format), true)
            } else {
                writer.mark(format.open)
            };
            answers.push(format!("{open} {calls}"));
        }
        Ok(writer.finish(&answers.join(" | ")))
    }

    /// Returns the terminal of texts in which the parser finds neither calls nor reasoning.
    fn text_without_calls(&self, format: &CallFormat) -> String {
        let no_call = (!format.open.is_empty()).then(|| lacks(format.open));
        no_call.into_iter().fold(self.text_before_calls(format), |content, lacking| format!("{content} & {lacking}"))
    }

    /// Returns the same as [`text_without_calls`](Self::text_without_calls), but allows the opening
    /// mark of calls.
    fn text_before_calls(&self, format: &CallFormat) -> String {
        let mut content = ANY.to_owned();
        if let Some(reasoning) = self.reasoning {
            let before = if reasoning.anywhere { "(?s:.*)" } else { r"\s*" };
            content += &format!(" & ~/{before}{}(?s:.*)/", escaped(reasoning.open));
        }
        if let Some(unmarked) = &format.unmarked {
            content += &format!(" & ~/{}(?s:.*)/", (unmarked.expression)(&self.offered.tools));
        }
        content
    }
}
