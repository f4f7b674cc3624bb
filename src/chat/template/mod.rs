//! Renders conversations into prompts with a model's Jinja chat template.

mod budget;
mod builtins;
mod error;
mod escape;
mod filters;
mod images;
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
    error::template_error,
    escape::Escaper,
    images::MarkedText,
    lexer::SourcePiece,
    rewrite::{Offsets, Rewritten},
    symbols::TemplateSymbols,
};
use super::{ChatOptions, Message};
use crate::{
    error::{Error, Result, excerpt},
    gguf::Gguf,
    image::Image,
    tokenizer::Tokenizer,
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
    /// The mapping from offsets in minijinja's text to offsets in `text`.
    offsets: Offsets,
    symbols: TemplateSymbols,
    bos_token: String,
    eos_token: String,
}

/// A rendered conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RenderedPrompt {
    /// The text, including special tokens and the template's mark for each image.
    pub text: String,
    /// The token ids, without images.
    pub ids: Vec<u32>,
    /// The images in order, each with the number of `ids` before it.
    pub images: Vec<(usize, Image)>,
}

/// The template's name in its environment.
const NAME: &str = "chat_template";

/// The function with which templates reject messages. Its error is shown without the tag that
/// called it.
const RAISE_EXCEPTION: &str = "raise_exception";

/// The largest number of steps of a rendering: a conversation of a thousand messages needs a
/// twentieth of it.
const FUEL: u64 = 5_000_000;

impl ChatTemplate {
    /// Returns the template of a model file, with the texts of the tokenizer's `bos_token` and
    /// `eos_token`.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] if the file has no template, or one that does not parse.
    pub fn from_gguf(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Self> {
        const KEY: &str = "tokenizer.chat_template";
        let missing = || {
            let what = "the file has none (`tokenizer.chat_template`), so this may be a base model: use an instruct model, \
                        generate from a plain prompt, or set a template with `RunnerBuilder::chat_template`";
            Error::ChatTemplate(what.to_owned())
        };
        let source = gguf.str(KEY)?.ok_or_else(missing)?;
        Self::new(source, "", "")?.for_tokenizer(tokenizer)
    }

    /// Sets the texts of a tokenizer's begin- and end-of-sequence tokens.
    pub(crate) fn for_tokenizer(self, tokenizer: &Tokenizer) -> Result<Self> {
        let text = |id: Option<u32>| match id {
            Some(id) => tokenizer.token_bytes(id).map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
            None => Ok(String::new()),
        };
        Ok(Self { bos_token: text(tokenizer.bos())?, eos_token: text(tokenizer.eos())?, ..self })
    }

    /// Parses a template. `bos_token` and `eos_token` are the texts of the begin- and
    /// end-of-sequence tokens, which the template may write.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`], with the line, if it does not parse.
    pub fn new(source: &str, bos_token: impl Into<String>, eos_token: impl Into<String>) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(template_error)?;
        environment.set_syntax(syntax);
        // With debug on, errors name the undefined variable or attribute.
        environment.set_debug(true);
        environment.set_fuel(Some(FUEL));
        environment.set_formatter(python_format::print);
        filters::install(&mut environment);
        python_methods::install(&mut environment);
        builtins::install(&mut environment);
        environment.add_function(RAISE_EXCEPTION, raise_exception);
        environment
            .add_function("strftime_now", builtins::counted(Value::from_function(strftime_now), builtins::no_cost));
        // The text before the first tag is not counted, so the template must not include itself.
        environment.set_path_join_callback(|name, _| format!("./{name}").into());
        let pieces = lexer::pieces(source);
        stack::check_size(source, &pieces)?;
        let Rewritten { text, offsets } = rewrite::rewrite(source, &pieces);
        let environment = stack::on_deep_stack(|| {
            environment.add_template_owned(NAME, text).map_err(template_error)?;
            Ok(environment)
        })?;
        Ok(Self {
            environment,
            text: source.to_owned(),
            offsets,
            symbols: TemplateSymbols::new(&pieces),
            bos_token: bos_token.into(),
            eos_token: eos_token.into(),
        })
    }

    /// Returns the template's source.
    pub fn source(&self) -> &str {
        &self.text
    }

    /// Returns whether the template reads a variable, such as `enable_thinking` or `tools`. An
    /// option that it never reads is an error when a conversation is rendered.
    pub fn reads(&self, variable: &str) -> bool {
        self.symbols.names.contains(variable)
    }

    /// Returns the text of the prompt for a conversation, as transformers renders it. The text is
    /// for reading: it does not distinguish special tokens of the template from the same text in a
    /// message. Use [`prompt`](Self::prompt) for a prompt that does.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`], with the line and the tag, if the template fails, rejects the
    /// messages, or exceeds its limits of steps and memory; and if it never reads an option that is
    /// set.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String> {
        let conversation = self.conversation(messages, options)?;
        self.render_with(conversation.iter().map(|(name, value)| (*name, value.clone())), options)
    }

    /// Returns the prompt for a conversation. The template's special tokens become tokens; special
    /// tokens in the conversation stay text unless
    /// [`parse_special_tokens`](ChatOptions::parse_special_tokens) is set.
    ///
    /// An image stands in the place of the template's mark for it, such as `<|image_pad|>`. If the
    /// template marks no images, it renders the content as text in which each part has a line.
    ///
    /// # Errors
    /// As [`render`](Self::render); [`Error::ChatTemplate`] also if the template leaves out an
    /// image; [`Error::Argument`] for a role with other characters than letters, digits, `_` and
    /// `-`; [`Error::Tokenizer`] if the vocabulary cannot express the prompt.
    pub fn prompt(&self, messages: &[Message], options: &ChatOptions, tokenizer: &Tokenizer) -> Result<RenderedPrompt> {
        let allowed = |char: char| char.is_alphanumeric() || char == '_' || char == '-';
        if let Some(message) = messages.iter().find(|message| !message.role.chars().all(allowed)) {
            let what =
                format!("must consist of letters, digits, `_` and `-`, but is `{}`", message.role.escape_debug());
            return Err(Error::argument("role", what));
        }
        let images: Vec<_> = messages.iter().flat_map(|message| message.content.images()).cloned().collect();
        let marked = match images.len() {
            0 => {
                let (text, plain) = self.render_escaped(messages, options, tokenizer, &[])?;
                MarkedText::without_images(text, plain)
            }
            count => self.render_images(messages, options, tokenizer, count)?,
        };
        let (ids, places) = marked.encode(tokenizer)?;
        Ok(RenderedPrompt { text: marked.text, ids, images: places.into_iter().zip(images).collect() })
    }

    /// Renders a conversation with this number of images: with a list of parts, or if the template
    /// marks no images in lists, with texts.
    fn render_images(
        &self,
        messages: &[Message],
        options: &ChatOptions,
        tokenizer: &Tokenizer,
        count: usize,
    ) -> Result<MarkedText> {
        let with_lists = self.render_escaped(messages, options, tokenizer, &images::marks());
        let marked = match &with_lists {
            Ok((text, plain)) => MarkedText::with_marks(text, plain),
            Err(_) => None,
        };
        let marked = match marked {
            Some(marked) => marked,
            None => {
                let mark = images::unused_character(self.source(), messages)?;
                let joined: Vec<_> = messages.iter().map(|message| images::joined(message, mark)).collect();
                // If the template refuses lists and texts, its error for lists says more.
                let (text, plain) = self
                    .render_escaped(&joined, options, tokenizer, &[])
                    .map_err(|error| with_lists.err().unwrap_or(error))?;
                MarkedText::with_mark(text, plain, mark)
            }
        };
        marked.check(count)?;
        Ok(marked)
    }

    /// Returns the prompt's text, and the byte ranges that no special token may overlap. `marks`:
    /// the template's texts for images, which are special as well.
    fn render_escaped(
        &self,
        messages: &[Message],
        options: &ChatOptions,
        tokenizer: &Tokenizer,
        marks: &[&str],
    ) -> Result<(String, Vec<Range<usize>>)> {
        let conversation = self.conversation(messages, options)?;
        let tokens: Vec<&str> = match options.parse_special_tokens {
            true => vec![],
            false => tokenizer.control_tokens().map(|(_, text)| text).chain(marks.iter().copied()).collect(),
        };
        let escaper = Escaper::new(&self.symbols, &tokens, &conversation.values().collect::<Vec<_>>())?;
        let escape = |(&name, value): (&_, &_)| match name {
            "messages" => Ok((name, escaper.escape_messages(value)?)),
            _ => Ok((name, escaper.escape(value)?)),
        };
        let escaped: Result<Vec<(&str, Value)>, _> = conversation.iter().map(escape).collect();
        Ok(escaper.unescape(self.render_with(escaped.map_err(template_error)?, options)?))
    }

    /// Returns the variables of the conversation by name.
    fn conversation<'o>(&self, messages: &[Message], options: &'o ChatOptions) -> Result<BTreeMap<&'o str, Value>> {
        let mut conversation = BTreeMap::from([("tools", Value::from(())), ("documents", Value::from(()))]);
        conversation.extend(options.variables.iter().map(|(name, value)| (name.as_str(), value.clone())));
        if !options.tools.is_empty() {
            conversation.insert("tools", Value::from(Serde(&options.tools)));
        }
        let set = options.variables.keys().map(String::as_str).chain((!options.tools.is_empty()).then_some("tools"));
        if let Some(name) = set.into_iter().find(|name| !self.reads(name)) {
            let what = format!(
                "never reads `{name}`, which is set: leave it out, or use a model with a template that reads it"
            );
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
            let template = self.environment.get_template(NAME).map_err(template_error)?;
            let mut prompt = budget::Output::default();
            let rendered = template.render_captured_to(Value::from_pairs(context), &mut prompt);
            rendered.map_err(|e| self.error_in_tag(e))?;
            String::from_utf8(prompt.bytes).map_err(|e| Error::ChatTemplate(e.to_string()))
        })
    }

    /// Returns the error with the original source of the tag in which it occurred.
    fn error_in_tag(&self, failure: minijinja::Error) -> Error {
        let limit = matches!(failure.kind(), ErrorKind::OutOfFuel | ErrorKind::WriteFailure);
        let at = failure.range().filter(|_| !limit).map(|range| self.offsets.original(range.start));
        let tag = at.and_then(|at| self.tag_at(at)).filter(|tag| !tag.contains(RAISE_EXCEPTION));
        match (template_error(failure), tag) {
            (Error::ChatTemplate(what), Some(tag)) => Error::ChatTemplate(format!("{what} (`{}`)", excerpt(tag))),
            (error, _) => error,
        }
    }

    /// Returns the source of the tag around an offset in bytes.
    fn tag_at(&self, offset: usize) -> Option<&str> {
        lexer::pieces(&self.text).into_iter().find_map(|piece| match piece {
            SourcePiece::Tag(tag) if (tag.start..tag.end).contains(&offset) => self.text.get(tag.start..tag.end),
            _ => None,
        })
    }
}

/// Returns a message's variables. Some templates read the reasoning as `thinking`, which
/// transformers sets, too.
fn message_value(message: &Message) -> Value {
    let value = images::message_value(message);
    match &message.reasoning {
        Some(reasoning) => merge_maps([context! { thinking => reasoning }, value]),
        None => value,
    }
}

/// Fails with a message; templates call it for conversations that they do not support.
fn raise_exception(message: &str) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message.to_owned()))
}

/// Returns the local date and time in a format of Python's `datetime.strftime`.
fn strftime_now(format: &str) -> Result<String, minijinja::Error> {
    budget::check_width(Some(format.len()))?;
    let now = jiff::Zoned::now();
    let invalid = |e: jiff::Error| minijinja::Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {e}"));
    jiff::fmt::strtime::format(format, &now).map_err(invalid)
}
