//! Messages in, the prompt out, in the words that the model was trained with.
//!
//! The words are in the model file: `tokenizer.chat_template`, a Jinja template written for Hugging Face's `apply_chat_template`.
//! It is rendered by minijinja set up as transformers sets up jinja2: blocks trimmed, Python's methods on strings and
//! dicts, `raise_exception`, `strftime_now`, its `tojson`, `{% break %}` and `{% continue %}`.
//!
//! The template comes from an untrusted file: it can reach nothing but its arguments, its steps are bounded, and so are the sizes
//! that it names. Strings that it doubles step by step are not: minijinja has no bound for them, nor has jinja2.

use std::collections::BTreeMap;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, ErrorKind};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::tokenizer::Tokenizer;

mod limits;
mod python;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, or another role that the template knows.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message of any role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }

    /// What the model is to be and do in the whole conversation.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// What the user says.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// What the model said.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }
}

/// How a conversation becomes a prompt.
#[derive(Clone, Debug)]
pub struct ChatOptions {
    add_generation_prompt: bool,
    variables: BTreeMap<String, Value>,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self { add_generation_prompt: true, variables: BTreeMap::new() }
    }
}

impl ChatOptions {
    /// Whether the prompt ends with the words that open the assistant's turn, as it must for the model to answer. Default true.
    #[must_use]
    pub fn add_generation_prompt(mut self, add: bool) -> Self {
        self.add_generation_prompt = add;
        self
    }

    /// Sets a variable that the template reads, for example `enable_thinking` (Qwen3), `tools` or `date_string` (Llama 3).
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, value: impl Serialize) -> Self {
        self.variables.insert(name.into(), Value::from(Serde(value)));
        self
    }
}

/// A model's chat template.
///
/// ```
/// use inkstone::chat::{ChatOptions, ChatTemplate, Message};
///
/// let source = "{% for m in messages %}<{{ m.role }}> {{ m.content }}\n{% endfor %}<assistant>";
/// let template = ChatTemplate::new(source, "", "")?;
/// let prompt = template.render(&[Message::user("Hello!")], &ChatOptions::default())?;
/// assert_eq!(prompt, "<user> Hello!\n<assistant>");
/// # Ok::<(), inkstone::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos_token: String,
    eos_token: String,
}

/// The name of the one template in its environment.
const NAME: &str = "chat_template";

/// The steps that a rendering may take: a conversation of a thousand messages takes a hundredth.
const FUEL: u64 = 20_000_000;

impl ChatTemplate {
    /// The template of a model file. The tokenizer gives the texts of its `bos_token` and `eos_token`.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] where the file has none or it does not parse.
    pub fn from_gguf(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Self> {
        const KEY: &str = "tokenizer.chat_template";
        let missing = || {
            let what = "the file has none (`tokenizer.chat_template`), so this may be a base model: use an instruct model, \
                        generate from a plain prompt, or give a template with `ChatTemplate::new`";
            Error::ChatTemplate(what.to_owned())
        };
        let source = gguf.str(KEY)?.ok_or_else(missing)?;
        let text = |id: Option<u32>| match id {
            Some(id) => tokenizer.token_bytes(id).map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
            None => Ok(String::new()),
        };
        Self::new(source, text(tokenizer.bos())?, text(tokenizer.eos())?)
    }

    /// A template from its source, with the texts of the begin- and end-of-sequence tokens that it may write.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] with the line where it does not parse.
    pub fn new(source: &str, bos_token: impl Into<String>, eos_token: impl Into<String>) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(error)?;
        environment.set_syntax(syntax);
        environment.set_fuel(Some(FUEL));
        limits::install(&mut environment);
        environment.set_formatter(python::print);
        environment.add_filter("tojson", python::tojson);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_template_owned(NAME, without_generation_marks(source)).map_err(error)?;
        Ok(Self { environment, bos_token: bos_token.into(), eos_token: eos_token.into() })
    }

    /// The prompt for a conversation. Its special tokens are spelt out: encode it with
    /// [`SpecialTokens::Parse`](crate::tokenizer::SpecialTokens::Parse), adding nothing.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] with the line where the template fails, refuses the messages or takes too many steps.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String> {
        let message = |m: &Message| Value::from_pairs([("role", m.role.as_str()), ("content", m.content.as_str())]);
        let mut context = BTreeMap::from([
            ("tools", Value::from(())),
            ("documents", Value::from(())),
            ("bos_token", Value::from(self.bos_token.as_str())),
            ("eos_token", Value::from(self.eos_token.as_str())),
        ]);
        context.extend(options.variables.iter().map(|(name, value)| (name.as_str(), value.clone())));
        context.insert("messages", messages.iter().map(message).collect());
        context.insert("add_generation_prompt", options.add_generation_prompt.into());
        let template = self.environment.get_template(NAME).map_err(error)?;
        template.render(Value::from_pairs(context)).map_err(error)
    }
}

fn error(error: minijinja::Error) -> Error {
    let line = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
    let what = match error.kind() {
        ErrorKind::OutOfFuel => "takes too many steps, and may never end".to_owned(),
        kind => error.detail().map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}")),
    };
    Error::ChatTemplate(line + &what)
}

/// How templates refuse messages that they have no form for.
fn raise_exception(message: &str) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message.to_owned()))
}

/// The local date and time, formatted as by Python's `datetime.strftime`.
fn strftime_now(format: &str) -> Result<String, minijinja::Error> {
    let now = jiff::Zoned::now();
    let invalid = |e: jiff::Error| minijinja::Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {e}"));
    jiff::fmt::strtime::format(format, &now).map_err(invalid)
}

/// The source without `{% generation %}` and its end, with which Hugging Face marks the assistant's tokens for training: they
/// print nothing, and minijinja has no tags of others.
fn without_generation_marks(source: &str) -> String {
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let end = rest[start..].find("%}").map_or(rest.len(), |length| start + length + 2);
        let tag = &rest[start..end];
        result.push_str(&rest[..start]);
        let name = tag.trim_start_matches("{%").trim_end_matches("%}").trim_matches(['-', '+']).trim();
        match name {
            "generation" => result.push_str(&tag.replace(name, "if true")),
            "endgeneration" => result.push_str(&tag.replace(name, "endif")),
            _ => result.push_str(tag),
        }
        rest = &rest[end..];
    }
    result + rest
}
