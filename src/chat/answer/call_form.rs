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
    /// `<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>`, where the tool's
    /// schema gives the arguments' types: GLM-4.5 and later.
    Glm,
    /// `<minimax:tool_call><invoke name="f"><parameter name="a">1</parameter></invoke>`, up to
    /// `</minimax:tool_call>`, where the tool's schema gives the arguments' types: MiniMax-M2.
    MiniMax,
    /// ``<｜tool▁call▁begin｜>function<｜tool▁sep｜>f```json{"a": 1}```<｜tool▁call▁end｜>``, or
    /// `f<｜tool▁sep｜>{"a": 1}` between the same marks, within `<｜tool▁calls▁begin｜>` and
    /// `<｜tool▁calls▁end｜>`: DeepSeek-V3, R1 and V3.1.
    DeepSeek,
    /// `<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>`
    /// within `<|tool_calls_section_begin|>` and `<|tool_calls_section_end|>`: Kimi K2.
    KimiK2,
    /// `[{"tool_call_id": "0", "tool_name": "f", "parameters": {"a": 1}}]` within
    /// `<|START_ACTION|>` and `<|END_ACTION|>`: Command R7B, Command A.
    Cohere,
    /// `<|tool_call|>[{"name": "f", "arguments": {"a": 1}}]`: Granite 3, Phi-4-mini.
    Granite,
    /// `<|tool_call_start|>[f(a=1), g(b="x")]<|tool_call_end|>`: LFM2.
    Lfm2,
}
