//! A model's chat template: messages in, the prompt out.

mod budget;
mod builtins;
mod escape;
mod filters;
mod lexer;
mod python_format;
mod python_methods;
mod rewrite;
mod stack;
mod symbols;

use std::{collections::BTreeMap, ops::Range};

use minijinja::{
    Environment, ErrorKind, context,
    syntax::SyntaxConfig,
    value::{Serde, Value, merge_maps},
};

use self::{
    escape::Provenance,
    lexer::Piece,
    rewrite::{Offsets, Rewritten},
    symbols::Source,
};
use super::{ChatOptions, Message};
use crate::{
    error::{Error, Result, excerpt},
    gguf::Gguf,
    tokenizer::{SpecialTokens, Tokenizer},
};

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
    text: String,
    /// From the text that minijinja runs to `text`.
    offsets: Offsets,
    source: Source,
    bos_token: String,
    eos_token: String,
}

/// A conversation as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RenderedPrompt {
    /// Its text, special tokens spelt out.
    pub text: String,
    /// Its ids.
    pub ids: Vec<u32>,
}

/// The name of the one template in its environment.
const NAME: &str = "chat_template";

/// The function with which templates refuse messages: its message needs no tag beside it.
const RAISE_EXCEPTION: &str = "raise_exception";

/// The steps that a rendering may take: a conversation of a thousand messages takes a twentieth.
const FUEL: u64 = 5_000_000;

impl ChatTemplate {
    /// The template of a model file. The tokenizer gives the texts of its `bos_token` and `eos_token`.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] where the file has none or it does not parse.
    pub fn from_gguf(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Self> {
        const KEY: &str = "tokenizer.chat_template";
        let missing = || {
            let what = "the file has none (`tokenizer.chat_template`), so this may be a base model: use an instruct model, \
                        generate from a plain prompt, or give the builder a template (`RunnerBuilder::chat_template`)";
            Error::ChatTemplate(what.to_owned())
        };
        let source = gguf.str(KEY)?.ok_or_else(missing)?;
        Self::new(source, "", "")?.for_tokenizer(tokenizer)
    }

    /// Gives the template the texts of a tokenizer's begin- and end-of-sequence tokens.
    pub(crate) fn for_tokenizer(self, tokenizer: &Tokenizer) -> Result<Self> {
        let text = |id: Option<u32>| match id {
            Some(id) => tokenizer.token_bytes(id).map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
            None => Ok(String::new()),
        };
        Ok(Self { bos_token: text(tokenizer.bos())?, eos_token: text(tokenizer.eos())?, ..self })
    }

    /// A template from its source, with the texts of the begin- and end-of-sequence tokens that it may write.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] with the line where it does not parse.
    pub fn new(source: &str, bos_token: impl Into<String>, eos_token: impl Into<String>) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(error)?;
        environment.set_syntax(syntax);
        // Errors then say which variable or attribute is undefined.
        environment.set_debug(true);
        environment.set_fuel(Some(FUEL));
        environment.set_formatter(python_format::print);
        filters::install(&mut environment);
        python_methods::install(&mut environment);
        builtins::install(&mut environment);
        environment.add_function(RAISE_EXCEPTION, raise_exception);
        environment.add_function("strftime_now", builtins::counted(Value::from_function(strftime_now), builtins::nothing));
        // A template that includes itself would write its beginning uncounted.
        environment.set_path_join_callback(|name, _| format!("./{name}").into());
        let pieces = lexer::pieces(source);
        stack::check(source, &pieces)?;
        let Rewritten { text, offsets } = rewrite::rewrite(source, &pieces);
        let environment = stack::on_deep_stack(|| {
            environment.add_template_owned(NAME, text).map_err(error)?;
            Ok(environment)
        })?;
        Ok(Self {
            environment,
            text: source.to_owned(),
            offsets,
            source: Source::new(&pieces),
            bos_token: bos_token.into(),
            eos_token: eos_token.into(),
        })
    }

    /// The template's source.
    pub fn source(&self) -> &str {
        &self.text
    }

    /// The prompt's text for a conversation, as transformers renders it: to read, for it does not tell the special tokens of the
    /// template from those that somebody spelt in a message. [`prompt`](Self::prompt) does.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] with the line and the tag where the template fails, refuses the messages, takes too many
    /// steps or makes too much; or where it never reads an option that is set.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String> {
        let conversation = self.conversation(messages, options)?;
        self.render_with(conversation.iter().map(|(name, value)| (*name, value.clone())), options)
    }

    /// The prompt for a conversation. Special tokens count where the template writes them, and in the conversation only if
    /// [`parse_special_tokens`](ChatOptions::parse_special_tokens) says so.
    ///
    /// # Errors
    /// As [`render`](Self::render); [`Error::Argument`] for a role that is not made of letters, digits, `_` and `-`;
    /// [`Error::Tokenizer`] where the vocabulary cannot express the prompt.
    pub fn prompt(&self, messages: &[Message], options: &ChatOptions, tokenizer: &Tokenizer) -> Result<RenderedPrompt> {
        let name = |char: char| char.is_alphanumeric() || char == '_' || char == '-';
        if let Some(message) = messages.iter().find(|message| !message.role.chars().all(name)) {
            let what = format!("must be of letters, digits, `_` and `-`, but is `{}`", message.role.escape_debug());
            return Err(Error::argument("role", what));
        }
        if options.parse_special_tokens {
            let text = self.render(messages, options)?;
            return Ok(RenderedPrompt { ids: tokenizer.encode(&text, SpecialTokens::Parse)?, text });
        }
        let (text, plain) = self.render_apart(messages, options, tokenizer)?;
        Ok(RenderedPrompt { ids: tokenizer.encode_mixed(&text, &plain)?, text })
    }

    /// The prompt's text, and which of its bytes cannot be of a special token.
    fn render_apart(
        &self,
        messages: &[Message],
        options: &ChatOptions,
        tokenizer: &Tokenizer,
    ) -> Result<(String, Vec<Range<usize>>)> {
        let conversation = self.conversation(messages, options)?;
        let tokens: Vec<&str> = tokenizer.control_tokens().map(|(_, text)| text).collect();
        let provenance = Provenance::new(&self.source, &tokens, &conversation.values().collect::<Vec<_>>())?;
        let hide = |(&name, value): (&_, &_)| match name {
            "messages" => Ok((name, provenance.hide_messages(value)?)),
            _ => Ok((name, provenance.hide(value)?)),
        };
        let hidden: Vec<(&str, Value)> = conversation.iter().map(hide).collect::<Result<_, _>>().map_err(error)?;
        Ok(provenance.reveal(self.render_with(hidden, options)?))
    }

    /// What the conversation brings, by the name of the variable.
    fn conversation<'o>(&self, messages: &[Message], options: &'o ChatOptions) -> Result<BTreeMap<&'o str, Value>> {
        let mut conversation = BTreeMap::from([("tools", Value::from(())), ("documents", Value::from(()))]);
        conversation.extend(options.variables.iter().map(|(name, value)| (name.as_str(), value.clone())));
        if !options.tools.is_empty() {
            conversation.insert("tools", Value::from(Serde(&options.tools)));
        }
        let set = options.variables.keys().map(String::as_str).chain((!options.tools.is_empty()).then_some("tools"));
        if let Some(name) = set.into_iter().find(|name| !self.source.names.contains(*name)) {
            let what =
                format!("never reads `{name}`, which is set: leave it out, or use a model whose template knows it");
            return Err(Error::ChatTemplate(what));
        }
        conversation.insert("messages", messages.iter().map(message_value).collect());
        Ok(conversation)
    }

    fn render_with<'a>(
        &'a self,
        conversation: impl IntoIterator<Item = (&'a str, Value)>,
        options: &ChatOptions,
    ) -> Result<String> {
        let mut context = BTreeMap::from([
            ("bos_token", Value::from(self.bos_token.as_str())),
            ("eos_token", Value::from(self.eos_token.as_str())),
        ]);
        context.extend(conversation);
        context.insert("add_generation_prompt", options.add_generation_prompt.into());
        stack::on_deep_stack(|| {
            let template = self.environment.get_template(NAME).map_err(error)?;
            let mut prompt = budget::Output::default();
            let rendered = template.render_captured_to(Value::from_pairs(context), &mut prompt);
            rendered.map_err(|e| self.error_in_tag(e))?;
            String::from_utf8(prompt.bytes).map_err(|e| Error::ChatTemplate(e.to_string()))
        })
    }

    /// Returns the error with the tag in which it occurred, as the template's author wrote it.
    fn error_in_tag(&self, failure: minijinja::Error) -> Error {
        let limit = matches!(failure.kind(), ErrorKind::OutOfFuel | ErrorKind::WriteFailure);
        let at = failure.range().filter(|_| !limit).map(|range| self.offsets.original(range.start));
        let tag = at.and_then(|at| self.tag_at(at)).filter(|tag| !tag.contains(RAISE_EXCEPTION));
        match (error(failure), tag) {
            (Error::ChatTemplate(what), Some(tag)) => Error::ChatTemplate(format!("{what} (`{}`)", excerpt(tag))),
            (error, _) => error,
        }
    }

    /// Returns the tag that has the byte at this offset.
    fn tag_at(&self, offset: usize) -> Option<&str> {
        lexer::pieces(&self.text).into_iter().find_map(|piece| match piece {
            Piece::Tag(tag) if (tag.start..tag.end).contains(&offset) => self.text.get(tag.start..tag.end),
            _ => None,
        })
    }
}

/// A message as templates read it. Some have another name for what was thought, which transformers gives them too.
fn message_value(message: &Message) -> Value {
    let value = Value::from(Serde(message));
    match &message.reasoning {
        Some(reasoning) => merge_maps([context! { thinking => reasoning }, value]),
        None => value,
    }
}

pub(super) fn error(error: minijinja::Error) -> Error {
    let line = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
    let what = match error.kind() {
        // minijinja counts the bytes that steps make among them, from 3.1 on.
        ErrorKind::OutOfFuel => {
            format!("takes too many steps or makes more than {} MB, and may never end", budget::MAX_MADE >> 20)
        }
        ErrorKind::WriteFailure => format!("writes more than {} MB", budget::MAX_TEXT >> 20),
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
    builtins::check(Some(format.len()))?;
    let now = jiff::Zoned::now();
    let invalid = |e: jiff::Error| minijinja::Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {e}"));
    jiff::fmt::strtime::format(format, &now).map_err(invalid)
}
