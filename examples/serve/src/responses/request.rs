//! The request of the responses API.

use std::collections::BTreeMap;

use inkstone::chat::ChatOptions;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value, json};

use super::{
    ResponsesCall, Settings,
    input::{self, InputItem},
    tools::offered,
};
use crate::{
    app::App,
    body::TextOr,
    chat::StreamOptions,
    engine::{Input, Job},
    error::ApiError,
    openai::{
        format::{self, TextFormat},
        sampling::Sampling,
        settings::{ServiceTier, Verbosity},
        tools,
    },
};

/// A request. Fields with an underscore are checked and have no effect.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResponsesRequest {
    input: TextOr<InputItem>,
    model: String,
    #[serde(default)]
    background: bool,
    cache_salt: Option<String>,
    #[serde(rename = "client_metadata")]
    _client_metadata: Option<IgnoredAny>,
    include: Option<Vec<Include>>,
    instructions: Option<String>,
    max_output_tokens: Option<usize>,
    metadata: Option<BTreeMap<String, String>>,
    parallel_tool_calls: Option<bool>,
    /// Every prompt is cached.
    #[serde(rename = "prompt_cache_key")]
    _prompt_cache_key: Option<String>,
    #[serde(rename = "prompt_cache_retention")]
    _prompt_cache_retention: Option<IgnoredAny>,
    reasoning: Option<Reasoning>,
    #[serde(rename = "safety_identifier")]
    _safety_identifier: Option<String>,
    #[serde(rename = "service_tier")]
    _service_tier: Option<ServiceTier>,
    #[serde(default)]
    store: bool,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
    temperature: Option<f32>,
    text: Option<Text>,
    tool_choice: Option<Value>,
    tools: Option<Vec<Value>>,
    top_logprobs: Option<usize>,
    top_p: Option<f32>,
    #[serde(rename = "truncation")]
    _truncation: Option<Truncation>,
    #[serde(rename = "user")]
    _user: Option<String>,
}

#[derive(Deserialize, PartialEq)]
enum Include {
    #[serde(rename = "reasoning.encrypted_content")]
    EncryptedReasoning,
    #[serde(rename = "message.output_text.logprobs")]
    Logprobs,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reasoning {
    effort: Option<String>,
    /// Reasoning is sent as it is.
    #[serde(rename = "summary")]
    _summary: Option<Summary>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Summary {
    Auto,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Truncation {
    Disabled,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    format: Option<TextFormat>,
    #[serde(rename = "verbosity")]
    _verbosity: Option<Verbosity>,
}

impl ResponsesRequest {
    /// Returns the job of the request.
    ///
    /// # Errors
    /// [`ApiError`] with the field that cannot be served.
    pub fn into_call(self, app: &App) -> Result<ResponsesCall, ApiError> {
        app.check_model(&self.model)?;
        self.check()?;
        let mut settings = self.settings();
        let (tools, namespaces) = offered(self.tools, self.tool_choice, self.parallel_tool_calls)?;
        settings.namespaces = namespaces;
        let form = self.text.and_then(|text| text.format).and_then(TextFormat::form);
        format::check(form.as_ref(), tools.may_call())?;
        let mut chat = tools.add_to(ChatOptions::default())?;
        if let Some(effort) = self.reasoning.and_then(|reasoning| reasoning.effort) {
            chat = tools::with_effort(chat, &effort, app.engine.model(), "reasoning.effort")?;
        }
        let sampling = Sampling {
            temperature: self.temperature,
            top_p: self.top_p,
            cache_salt: self.cache_salt,
            max_tokens: self.max_output_tokens.map(|tokens| (tokens, "max_output_tokens")),
            logprobs: settings.logprobs.then(|| (self.top_logprobs.unwrap_or(0), "top_logprobs")),
            ..Sampling::default()
        };
        let messages = input::conversation(self.instructions, self.input)?;
        let input = Input::Chat { messages, chat, parallel_tool_calls: tools.parallel };
        let job = Job { input, field: "input", options: sampling.options()?, form, choices: 1 };
        Ok(ResponsesCall { job, stream: self.stream, settings })
    }

    fn check(&self) -> Result<(), ApiError> {
        if self.store {
            return Err(ApiError::field("store", "nothing is stored: leave it out"));
        }
        if self.background {
            return Err(ApiError::field("background", "is not supported: leave it out"));
        }
        if self.top_logprobs.is_some() && !self.includes(&Include::Logprobs) {
            let what = "needs `message.output_text.logprobs` in `include`";
            return Err(ApiError::field("top_logprobs", what));
        }
        StreamOptions::check(self.stream_options.as_ref(), self.stream)
    }

    fn includes(&self, item: &Include) -> bool {
        self.include.as_ref().is_some_and(|include| include.contains(item))
    }

    fn settings(&self) -> Settings {
        let fields = json!({
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata.clone().unwrap_or_default(),
            "parallel_tool_calls": self.parallel_tool_calls.unwrap_or(true),
            "temperature": self.temperature,
            "tool_choice": self.tool_choice.clone().unwrap_or_else(|| "auto".into()),
            "tools": self.tools.clone().unwrap_or_default(),
            "top_p": self.top_p,
        });
        let fields = match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        Settings {
            fields,
            encrypted_reasoning: self.includes(&Include::EncryptedReasoning),
            logprobs: self.includes(&Include::Logprobs),
            ..Settings::default()
        }
    }
}
