//! The request of the chat API.

use std::collections::BTreeMap;

use inkstone::chat::ChatOptions;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use super::{
    ChatCall,
    message::{self, ChatMessage},
};
use crate::{
    app::App,
    body::TextOr,
    engine::{Input, Job},
    error::ApiError,
    limits,
    openai::{
        format::{self, ResponseFormat},
        sampling::Sampling,
        settings::{ServiceTier, Verbosity},
        tools::{self, Choice, Mode, Tools},
    },
};

/// A request. Fields with an underscore are checked and have no effect.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatRequest {
    messages: Vec<ChatMessage>,
    model: String,
    cache_salt: Option<String>,
    frequency_penalty: Option<f32>,
    logit_bias: Option<BTreeMap<String, f32>>,
    #[serde(default)]
    logprobs: bool,
    max_completion_tokens: Option<usize>,
    max_tokens: Option<usize>,
    #[serde(rename = "metadata")]
    _metadata: Option<BTreeMap<String, String>>,
    #[serde(rename = "modalities")]
    _modalities: Option<Vec<Modality>>,
    min_p: Option<f32>,
    n: Option<usize>,
    parallel_tool_calls: Option<bool>,
    presence_penalty: Option<f32>,
    /// Every prompt is cached.
    #[serde(rename = "prompt_cache_key")]
    _prompt_cache_key: Option<String>,
    #[serde(rename = "prompt_cache_retention")]
    _prompt_cache_retention: Option<IgnoredAny>,
    reasoning_effort: Option<String>,
    repetition_penalty: Option<f32>,
    response_format: Option<ResponseFormat>,
    #[serde(rename = "safety_identifier")]
    _safety_identifier: Option<String>,
    seed: Option<i64>,
    #[serde(rename = "service_tier")]
    _service_tier: Option<ServiceTier>,
    stop: Option<TextOr<String>>,
    #[serde(default)]
    store: bool,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
    temperature: Option<f32>,
    tool_choice: Option<ToolChoice>,
    tools: Option<Vec<ToolDefinition>>,
    top_k: Option<usize>,
    top_logprobs: Option<usize>,
    top_p: Option<f32>,
    #[serde(rename = "user")]
    _user: Option<String>,
    #[serde(rename = "verbosity")]
    _verbosity: Option<Verbosity>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Modality {
    Text,
}

/// The options of a stream.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamOptions {
    /// Whether the stream ends with counts of tokens.
    #[serde(default)]
    pub include_usage: bool,
    #[serde(default)]
    include_obfuscation: bool,
}

impl StreamOptions {
    /// Refuses options without a stream, and options that the server does not have.
    ///
    /// # Errors
    /// [`ApiError`] with the field.
    pub fn check(options: Option<&Self>, stream: bool) -> Result<(), ApiError> {
        match options {
            Some(_) if !stream => Err(ApiError::field("stream_options", "needs `stream`")),
            Some(Self { include_obfuscation: true, .. }) => {
                Err(ApiError::field("stream_options.include_obfuscation", "is not supported"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ToolDefinition {
    Function { function: Function },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Function {
    name: String,
    description: Option<String>,
    parameters: Option<Value>,
    strict: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ToolChoice {
    Mode(Mode),
    Named(NamedChoice),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum NamedChoice {
    Function { function: Name },
    AllowedTools { allowed_tools: AllowedTools },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowedTools {
    mode: Mode,
    tools: Vec<AllowedTool>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum AllowedTool {
    Function { function: Name },
}

impl ChatRequest {
    /// Returns the job of the request.
    ///
    /// # Errors
    /// [`ApiError`] with the field that cannot be served.
    pub fn into_call(self, app: &App) -> Result<ChatCall, ApiError> {
        app.check_model(&self.model)?;
        let (stream, choices) = (self.stream, self.n.unwrap_or(1));
        self.check()?;
        let include_usage = self.stream_options.as_ref().is_some_and(|options| options.include_usage);
        let tools = offered(self.tools, self.tool_choice, self.parallel_tool_calls);
        let form = self.response_format.and_then(ResponseFormat::form);
        format::check(form.as_ref(), tools.may_call())?;
        let mut chat = tools.add_to(ChatOptions::default())?;
        if let Some(effort) = &self.reasoning_effort {
            chat = tools::with_effort(chat, effort, app.engine.model(), "reasoning_effort")?;
        }
        let max_tokens = match (self.max_completion_tokens, self.max_tokens) {
            (Some(tokens), _) => Some((tokens, "max_completion_tokens")),
            (None, tokens) => tokens.map(|tokens| (tokens, "max_tokens")),
        };
        let sampling = Sampling {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            logit_bias: self.logit_bias,
            seed: self.seed,
            cache_salt: self.cache_salt,
            stop: self.stop,
            max_tokens,
            logprobs: self.logprobs.then(|| (self.top_logprobs.unwrap_or(0), "top_logprobs")),
        };
        let input =
            Input::Chat { messages: message::conversation(self.messages)?, chat, parallel_tool_calls: tools.parallel };
        let job = Job { input, field: "messages", options: sampling.options()?, form, choices };
        Ok(ChatCall { job, stream, include_usage })
    }

    fn check(&self) -> Result<(), ApiError> {
        if self.store {
            return Err(ApiError::field("store", "nothing is stored: leave it out"));
        }
        if self.top_logprobs.is_some() && !self.logprobs {
            return Err(ApiError::field("top_logprobs", "needs `logprobs`"));
        }
        if !(1..=limits::CHOICES).contains(&self.n.unwrap_or(1)) {
            return Err(ApiError::field("n", &format!("must be from 1 to {}", limits::CHOICES)));
        }
        StreamOptions::check(self.stream_options.as_ref(), self.stream)
    }
}

fn offered(tools: Option<Vec<ToolDefinition>>, choice: Option<ToolChoice>, parallel: Option<bool>) -> Tools {
    let functions = tools.unwrap_or_default().into_iter().map(|ToolDefinition::Function { function }| function);
    let mut offered = Tools { parallel: parallel.unwrap_or(true), ..Tools::default() };
    for Function { name, description, parameters, strict } in functions {
        offered.strict |= strict.unwrap_or(false);
        offered.offered.push(tools::tool(name, description, parameters));
    }
    offered.choice = match choice {
        None => Choice::Auto,
        Some(ToolChoice::Mode(mode)) => mode.into(),
        Some(ToolChoice::Named(NamedChoice::Function { function })) => Choice::Named(function.name),
        Some(ToolChoice::Named(NamedChoice::AllowedTools { allowed_tools: AllowedTools { mode, tools } })) => {
            let allowed = |name: &str| tools.iter().any(|AllowedTool::Function { function }| function.name == name);
            offered.offered.retain(|tool| allowed(&tool.name));
            mode.into()
        }
    };
    offered
}
