//! How a conversation becomes a prompt.

use std::collections::BTreeMap;

use minijinja::value::{Serde, Value};
use serde::Serialize;

use super::{CallForm, Document, Tool};

/// How a conversation becomes a prompt. An option that the template never reads is an error when it is rendered.
#[derive(Clone, Debug)]
pub struct ChatOptions {
    pub(super) add_generation_prompt: bool,
    pub(super) parse_special_tokens: bool,
    pub(super) tools: Vec<Tool>,
    pub(super) call_form: Option<CallForm>,
    pub(super) variables: BTreeMap<String, Value>,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self {
            add_generation_prompt: true,
            parse_special_tokens: false,
            tools: vec![],
            call_form: None,
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
