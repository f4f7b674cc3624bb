//! The formats of tool calls that can be read and written.

/// The format in which a model writes its tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallForm {
    /// `<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>`: Hermes, Qwen2.5, Qwen3,
    /// SmolLM3.
    TaggedJson,
    /// `<tool_call><function=f><parameter=a>1</parameter></function></tool_call>`, where the tool's
    /// schema gives the arguments' types: Qwen3-Coder, Qwen3.5.
    Parameters,
    /// `{"name": "f", "parameters": {"a": 1}}` instead of an answer, or after `<|python_tag|>`:
    /// Llama 3.
    Json,
    /// `[f(a=1), g(b="x")]` instead of an answer: Llama 3.2 and 4.
    Pythonic,
    /// `f(a=1)` in a fenced code block with the language `tool_code`: Gemma 3, as its guide shows.
    ToolCode,
    /// `<|tool_call>call:f{a:1}<tool_call|>`: Gemma 4.
    Gemma4,
    /// `<start_function_call>call:f{a:1}<end_function_call>`: FunctionGemma.
    FunctionGemma,
    /// `[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]` or `[TOOL_CALLS]f[ARGS]{"a": 1}`:
    /// Mistral.
    Mistral,
    /// `<|channel|>commentary to=functions.f json<|message|>{"a": 1}<|call|>`: gpt-oss.
    Harmony,
}
