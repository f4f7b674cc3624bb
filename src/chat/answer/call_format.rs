//! The forms in which models write their calls of tools; each is a file.

#[cfg(feature = "constrained")]
use super::call_grammar::WriteCalls;
use super::scanner::{Ends, Quote};
use super::formats::{gemma, json, mistral, parameters, pythonic};
use crate::chat::{Tool, ToolCall};

/// The form in which a model writes its calls of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallForm {
    /// `<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>`: Hermes, Qwen2.5, Qwen3, SmolLM3.
    TaggedJson,
    /// `<tool_call><function=f><parameter=a>1</parameter></function></tool_call>`, typed by the tool's schema:
    /// Qwen3-Coder, Qwen3.5.
    Parameters,
    /// `{"name": "f", "parameters": {"a": 1}}` in the place of an answer, or after `<|python_tag|>`: Llama 3.
    Json,
    /// `[f(a=1), g(b="x")]` in the place of an answer: Llama 3.2 and 4.
    Pythonic,
    /// `f(a=1)` in a block of code called `tool_code`: Gemma 3, as its guide has it.
    ToolCode,
    /// `<|tool_call>call:f{a:1}<tool_call|>`: Gemma 4.
    Gemma4,
    /// `<start_function_call>call:f{a:1}<end_function_call>`: FunctionGemma.
    FunctionGemma,
    /// `[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]` or `[TOOL_CALLS]f[ARGS]{"a": 1}`: Mistral.
    Mistral,
}

/// How a call is known that no mark begins.
#[derive(Debug)]
pub(super) struct Bare {
    /// Whether an answer that begins so, with these tools, is a call; `None` while it may become
    /// one.
    pub begins: fn(&str, &[Tool]) -> Option<bool>,
    /// The regular expression for the beginnings of which that is true.
    #[cfg(feature = "constrained")]
    pub expression: fn(&[Tool]) -> String,
}

/// What a form looks like.
#[derive(Debug)]
pub(super) struct Shape {
    /// What a template has in it, all of it, where models call so. A template's `\"` counts as `"`.
    pub shown_by: &'static [&'static str],
    /// What begins a call; empty where calls only come in the place of an answer.
    pub open: &'static str,
    /// Where calls may come without the mark.
    pub bare: Option<Bare>,
    /// Within what the end is not looked for.
    pub quotes: &'static [Quote],
    pub ends: Ends,
    /// What may stand between two calls, besides white space.
    pub between: &'static [char],
    /// Whether a call also ends a thought that was not closed.
    pub ends_thought: bool,
    /// The calls in what stands between the marks, or what is wrong with it.
    pub parse: fn(&str, &[Tool]) -> Result<Vec<ToolCall>, String>,
    /// The expression for calls of these tools after the mark that begins the first one.
    #[cfg(feature = "constrained")]
    pub write: WriteCalls,
}

/// Every form, those first whose marks are theirs alone.
const FORMS: &[CallForm] = &[
    CallForm::Gemma4,
    CallForm::FunctionGemma,
    CallForm::Mistral,
    CallForm::Parameters,
    CallForm::TaggedJson,
    CallForm::ToolCode,
    CallForm::Pythonic,
    CallForm::Json,
];

impl CallForm {
    /// The form that a template shows.
    pub(super) fn of(template: &str) -> Option<Self> {
        let template = template.replace("\\\"", "\"");
        FORMS.iter().copied().find(|form| form.shape().shown_by.iter().all(|text| template.contains(text)))
    }

    pub(super) fn shape(self) -> &'static Shape {
        match self {
            Self::TaggedJson => &json::TAGGED,
            Self::Parameters => &parameters::SHAPE,
            Self::Json => &json::BARE,
            Self::Pythonic => &pythonic::BARE,
            Self::ToolCode => &pythonic::CODE,
            Self::Gemma4 => &gemma::GEMMA_4,
            Self::FunctionGemma => &gemma::FUNCTION_GEMMA,
            Self::Mistral => &mistral::SHAPE,
        }
    }
}

impl Shape {
    /// The mark that ends a call; empty where a bracket does.
    pub const fn close(&self) -> &'static str {
        match self.ends {
            Ends::Mark(end) => end,
            Ends::Brackets => "",
        }
    }

    /// All marks of the form.
    pub fn marks(&self) -> impl Iterator<Item = &'static str> {
        [self.open, self.close()].into_iter().chain(self.quotes.iter().flat_map(|quote| [quote.open, quote.close]))
    }
}
