//! The request of Anthropic's API.

use inkstone::{GenerateOptions, Runner, chat::ChatOptions};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use super::{
    MessagesCall,
    block::{self, AnthropicMessage, TextBlock},
};
use crate::{
    app::App,
    body::TextOr,
    chat,
    engine::{Form, Input, Job},
    error::ApiError,
    openai::{
        format,
        sampling::Sampling,
        tools::{self, Choice, Tools},
    },
};

/// A request. Fields with an underscore are checked and have no effect.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessagesRequest {
    max_tokens: Option<usize>,
    messages: Vec<AnthropicMessage>,
    model: String,
    /// Every prompt is cached.
    #[serde(rename = "cache_control")]
    _cache_control: Option<IgnoredAny>,
    #[serde(rename = "context_management")]
    _context_management: Option<ContextManagement>,
    #[serde(rename = "metadata")]
    _metadata: Option<Metadata>,
    output_config: Option<OutputConfig>,
    #[serde(rename = "service_tier")]
    _service_tier: Option<ServiceTier>,
    stop_sequences: Option<Vec<String>>,
    #[serde(default)]
    stream: bool,
    system: Option<TextOr<TextBlock>>,
    temperature: Option<f32>,
    thinking: Option<Thinking>,
    tool_choice: Option<ToolChoice>,
    tools: Option<Vec<ToolDefinition>>,
    top_k: Option<usize>,
    top_p: Option<f32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    #[serde(rename = "user_id")]
    _user_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ServiceTier {
    Auto,
    StandardOnly,
}

/// Rules for old parts of a conversation, of which only the one that keeps everything is supported.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContextManagement {
    #[serde(rename = "edits")]
    _edits: Option<Vec<Edit>>,
}

#[derive(Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
enum Edit {
    #[serde(rename = "clear_thinking_20251015")]
    ClearThinking {
        #[serde(rename = "keep")]
        _keep: Keep,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Keep {
    All,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputConfig {
    effort: Option<String>,
    format: Option<OutputFormat>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum OutputFormat {
    JsonSchema { schema: Value },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Thinking {
    Enabled {
        /// Not a limit of its own: `max_tokens` bounds reasoning and text together.
        #[serde(rename = "budget_tokens")]
        _budget_tokens: usize,
        display: Option<Display>,
    },
    Adaptive {
        display: Option<Display>,
    },
    Disabled {},
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Display {
    Summarized,
    Omitted,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ToolChoice {
    Auto {
        #[serde(default)]
        disable_parallel_tool_use: bool,
    },
    Any {
        #[serde(default)]
        disable_parallel_tool_use: bool,
    },
    Tool {
        name: String,
        #[serde(default)]
        disable_parallel_tool_use: bool,
    },
    None {},
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolDefinition {
    name: String,
    description: Option<String>,
    input_schema: Value,
    strict: Option<bool>,
    #[serde(rename = "type")]
    _kind: Option<ToolKind>,
    #[serde(rename = "cache_control")]
    _cache_control: Option<IgnoredAny>,
    /// Calls are sent when they are complete.
    #[serde(rename = "eager_input_streaming")]
    _eager_input_streaming: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToolKind {
    Custom,
}

impl MessagesRequest {
    /// Returns the job of the request.
    ///
    /// # Errors
    /// [`ApiError`] with the field that cannot be served.
    pub fn into_call(self, app: &App) -> Result<MessagesCall, ApiError> {
        app.check_model(&self.model)?;
        let Some(max_tokens) = self.max_tokens else {
            return Err(ApiError::field("max_tokens", "is missing"));
        };
        let sampling = Sampling {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            stop: self.stop_sequences.map(TextOr::List),
            max_tokens: Some((max_tokens, "max_tokens")),
            ..Sampling::default()
        };
        let tools = offered(self.tools, self.tool_choice);
        let config = self.output_config.unwrap_or(OutputConfig { effort: None, format: None });
        let form =
            config.format.map(|OutputFormat::JsonSchema { schema }| Form { schema, field: "output_config.format" });
        format::check(form.as_ref(), tools.may_call())?;
        let display = match &self.thinking {
            Some(Thinking::Enabled { display, .. } | Thinking::Adaptive { display }) => *display,
            Some(Thinking::Disabled {}) | None => None,
        };
        let model = app.engine.model();
        let chat = options(&tools, self.thinking.as_ref(), config.effort.as_deref(), model)?;
        let messages = chat::check(block::conversation(self.system, self.messages)?)?;
        let input = Input::Chat { messages, chat, parallel_tool_calls: tools.parallel };
        let job = Job { input, field: "messages", options: sampling.options()?, form, choices: 1 };
        Ok(MessagesCall { job, stream: self.stream, omits_thinking: display == Some(Display::Omitted) })
    }

    /// Returns the number of tokens of the conversation.
    ///
    /// # Errors
    /// As [`into_call`](Self::into_call); as [`Runner::chat_with`].
    pub fn count(self, app: &App) -> Result<usize, ApiError> {
        let request = Self { max_tokens: self.max_tokens.or(Some(1)), ..self };
        let Input::Chat { messages, chat, .. } = request.into_call(app)?.job.input else {
            return Err(ApiError::internal("a conversation is not one"));
        };
        // Places images in the prompt, and computes nothing.
        let mut runner = app.engine.model().clone();
        let answer = runner.chat_with(&messages, &chat, &GenerateOptions::default())?;
        Ok(answer.summary().prompt_tokens)
    }
}

/// Returns the options of the conversation.
fn options(
    tools: &Tools,
    thinking: Option<&Thinking>,
    effort: Option<&str>,
    model: &Runner,
) -> Result<ChatOptions, ApiError> {
    let chat = tools.add_to(ChatOptions::default())?;
    let template = model.chat_template()?;
    let reads_switch = template.reads("enable_thinking");
    let chat = match effort {
        // The default, which Claude Code sends to every model.
        Some("high") if !template.reads("reasoning_effort") => chat,
        Some(effort) => tools::with_effort(chat, effort, model, "output_config.effort")?,
        None => chat,
    };
    match thinking {
        Some(Thinking::Enabled { .. }) if !reads_switch && !template.source().contains("think") => {
            Err(ApiError::field("thinking", "the model does not reason: leave it out"))
        }
        Some(Thinking::Enabled { .. } | Thinking::Adaptive { .. }) if reads_switch => Ok(chat.enable_thinking(true)),
        Some(Thinking::Disabled {}) if reads_switch => Ok(chat.enable_thinking(false)),
        Some(_) | None => Ok(chat),
    }
}

fn offered(tools: Option<Vec<ToolDefinition>>, choice: Option<ToolChoice>) -> Tools {
    let mut offered = Tools::default();
    for ToolDefinition { name, description, input_schema, strict, .. } in tools.unwrap_or_default() {
        offered.strict |= strict.unwrap_or(false);
        offered.offered.push(tools::tool(name, description, Some(input_schema)));
    }
    let (choice, is_single) = match choice {
        None => (Choice::Auto, false),
        Some(ToolChoice::Auto { disable_parallel_tool_use }) => (Choice::Auto, disable_parallel_tool_use),
        Some(ToolChoice::Any { disable_parallel_tool_use }) => (Choice::Required, disable_parallel_tool_use),
        Some(ToolChoice::Tool { name, disable_parallel_tool_use }) => (Choice::Named(name), disable_parallel_tool_use),
        Some(ToolChoice::None {}) => (Choice::None, false),
    };
    Tools { choice, parallel: !is_single, ..offered }
}
