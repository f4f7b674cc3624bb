//! How a conversation becomes a prompt.

use std::collections::BTreeMap;

use minijinja::value::{Serde, Value};
use serde::Serialize;

use super::{CallForm, Document, Tool, ToolChoice};

/// How a conversation becomes a prompt. An option that the template never reads is an error when it is rendered.
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
    /// Whether the prompt ends with the words that open the assistant's turn, as it must for the model to answer. Default true.
    #[must_use]
    pub fn add_generation_prompt(mut self, add: bool) -> Self {
        self.add_generation_prompt = add;
        self
    }

    /// Whether a special token that a message spells out (`<|im_end|>` …) counts as one, so that whoever wrote it can end the turn and open
    /// another. Default false: it is text, in messages, tools, documents and variables alike.
    #[must_use]
    pub fn parse_special_tokens(mut self, parse: bool) -> Self {
        self.parse_special_tokens = parse;
        self
    }

    /// The tools that the model may call; none by default. A call comes as
    /// [`AnswerEvent::ToolCall`](super::AnswerEvent::ToolCall).
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.tools = tools.into_iter().collect();
        self
    }

    /// Sets whether the model may, must or must not call a tool.
    ///
    /// With the feature `constrained` calls are then held to the schemas of their tools while they
    /// are written: [`Required`](ToolChoice::Required) and [`Named`](ToolChoice::Named) leave the
    /// model nothing but calls after its thought, [`None`](ToolChoice::None) keeps it from
    /// beginning one, and with [`Auto`](ToolChoice::Auto) it is free until it begins a call; calls
    /// are then the end of the answer. A tool whose schema no grammar can hold to is an error that
    /// names the keyword: one of `multipleOf`, `patternProperties`, `prefixItems`, `uniqueItems`,
    /// `not`, `oneOf` with alternatives that are not told apart by type or by a constant property,
    /// and combinations that describe a property twice. Objects have the properties that the schema
    /// names alone, in its order.
    ///
    /// Where no choice is set, and with `Auto` and `None` without the feature, the model is free.
    /// In any case a call that does not fit the tools or the choice is an
    /// [`Error::ToolCall`](crate::Error::ToolCall). `Required` and `Named` without the feature are
    /// errors.
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
    ///     "properties": {"place": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
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

    /// Sets whether one answer may call several tools. Default true. Where it may not, a second
    /// call is an [`Error::ToolCall`](crate::Error::ToolCall); with a [choice](Self::tool_choice)
    /// that holds calls to their schemas none is written.
    #[must_use]
    pub fn parallel_tool_calls(mut self, parallel: bool) -> Self {
        self.parallel_tool_calls = parallel;
        self
    }

    /// The form in which the model writes its calls, where its template does not show it or shows another.
    #[must_use]
    pub fn call_form(mut self, form: CallForm) -> Self {
        self.call_form = Some(form);
        self
    }

    /// Texts that the model is to answer from.
    #[must_use]
    pub fn documents(self, documents: impl IntoIterator<Item = Document>) -> Self {
        self.variable("documents", documents.into_iter().collect::<Vec<_>>())
    }

    /// Whether the model is to think before it answers, for models that can do both (Qwen3, Qwen3.5, SmolLM3, Gemma 4).
    #[must_use]
    pub fn enable_thinking(self, enable: bool) -> Self {
        self.variable("enable_thinking", enable)
    }

    /// Sets a variable that the template reads, for example `date_string` (Llama 3).
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, value: impl Serialize) -> Self {
        self.variables.insert(name.into(), Value::from(Serde(value)));
        self
    }
}
