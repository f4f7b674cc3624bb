//! Options for rendering a conversation and reading its answer.

use std::collections::BTreeMap;

use minijinja::value::{Serde, Value};
use serde::Serialize;

use super::{CallForm, Document, Tool, ToolChoice};

/// Options for rendering a conversation and reading its answer.
///
/// Rendering fails if an option is set that the template never reads.
#[derive(Clone, Debug)]
pub struct ChatOptions {
    pub(super) add_generation_prompt: bool,
    pub(super) parse_special_tokens: bool,
    pub(super) tools: Vec<Tool>,
    pub(super) call_form: Option<CallForm>,
    pub(super) tool_choice: Option<ToolChoice>,
    pub(super) parallel_tool_calls: bool,
    pub(super) variables: BTreeMap<String, Value>,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self {
            add_generation_prompt: true,
            parse_special_tokens: false,
            tools: vec![],
            call_form: None,
            tool_choice: None,
            parallel_tool_calls: true,
            variables: BTreeMap::new(),
        }
    }
}

impl ChatOptions {
    /// Sets whether the prompt ends with the header of the assistant's turn, which the model needs
    /// to answer. Default true.
    #[must_use]
    pub fn add_generation_prompt(mut self, add: bool) -> Self {
        self.add_generation_prompt = add;
        self
    }

    /// Sets whether the text of a special token (such as `<|im_end|>`) in the conversation becomes
    /// that token, so that the author of a message can end the turn and begin another. Default
    /// false: it stays text in messages, tools, documents and variables.
    #[must_use]
    pub fn parse_special_tokens(mut self, parse: bool) -> Self {
        self.parse_special_tokens = parse;
        self
    }

    /// Sets the tools that the model may call; none by default. A call arrives as
    /// [`AnswerEvent::ToolCall`](super::AnswerEvent::ToolCall).
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.tools = tools.into_iter().collect();
        self
    }

    /// Sets whether the model may, must or must not call a tool.
    ///
    /// With the feature `constrained`, calls follow the schemas of their tools while they are
    /// generated. [`Required`](ToolChoice::Required) and [`Named`](ToolChoice::Named) allow only
    /// calls after the reasoning, [`None`](ToolChoice::None) allows no call, and
    /// [`Auto`](ToolChoice::Auto) constrains the answer from the start of a call to its end, after
    /// which only calls may follow. Objects have only the properties that the schema names, in its
    /// order. A schema that a grammar cannot express is an error that names the keyword: one of
    /// `multipleOf`, `patternProperties`, `prefixItems`, `uniqueItems`, `not`, `oneOf` with
    /// alternatives that differ neither in type nor in a constant property, and combinations that
    /// describe a property twice.
    ///
    /// Without a choice, nothing is constrained; the same holds for `Auto` and `None` without the
    /// feature. `Required` and `Named` without the feature are errors. In any case, a call that
    /// does not fit the tools or the choice is an [`Error::ToolCall`](crate::Error::ToolCall).
    ///
    /// ```no_run
    /// # fn main() -> inkstone::Result<()> {
    /// # #[cfg(feature = "constrained")] {
    /// use inkstone::chat::{AnswerEvent, ChatOptions, Tool, ToolChoice};
    /// use inkstone::{GenerateOptions, Message, Runner};
    /// use serde_json::json;
    ///
    /// let mut runner = Runner::from_gguf("Qwen3-4B-Q4_K_M.gguf")?;
    /// let schema = json!({
    ///     "type": "object",
    ///     "properties": {
    ///         "place": {"type": "string"},
    ///         "days": {"type": "integer", "minimum": 1, "maximum": 7},
    ///     },
    ///     "required": ["place"],
    /// });
    /// let chat = ChatOptions::default()
    ///     .tools([Tool::new("weather", "The weather at a place", schema)])
    ///     .tool_choice(ToolChoice::named("weather"))
    ///     .parallel_tool_calls(false);
    /// let messages = [Message::user("Shall I take an umbrella to Oslo?")];
    /// let mut answer = runner.chat_with(&messages, &chat, &GenerateOptions::default())?;
    /// for event in answer.events() {
    ///     if let AnswerEvent::ToolCall(call) = event? {
    ///         println!("{} for {} days", call.arguments["place"], call.arguments["days"]);
    ///     }
    /// }
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn tool_choice(mut self, choice: ToolChoice) -> Self {
        self.tool_choice = Some(choice);
        self
    }

    /// Sets whether one answer may have several tool calls. Default true. If not, a second call is
    /// an [`Error::ToolCall`](crate::Error::ToolCall); a [choice](Self::tool_choice) that
    /// constrains calls prevents it.
    #[must_use]
    pub fn parallel_tool_calls(mut self, parallel: bool) -> Self {
        self.parallel_tool_calls = parallel;
        self
    }

    /// Sets the format in which the model writes its calls. Default: the format that the template
    /// shows.
    #[must_use]
    pub fn call_form(mut self, form: CallForm) -> Self {
        self.call_form = Some(form);
        self
    }

    /// Sets the documents that the model answers from.
    #[must_use]
    pub fn documents(self, documents: impl IntoIterator<Item = Document>) -> Self {
        self.variable("documents", documents.into_iter().collect::<Vec<_>>())
    }

    /// Sets whether the model reasons before it answers, for models that can do both (Qwen3,
    /// Qwen3.5, SmolLM3, Gemma 4).
    #[must_use]
    pub fn enable_thinking(self, enable: bool) -> Self {
        self.variable("enable_thinking", enable)
    }

    /// Sets a variable of the template, for example `date_string` (Llama 3).
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, value: impl Serialize) -> Self {
        self.variables.insert(name.into(), Value::from(Serde(value)));
        self
    }
}
