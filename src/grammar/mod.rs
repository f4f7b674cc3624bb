//! Keeps generated text to a form: JSON of a schema or of a Rust type, a match of a regular
//! expression, a sentence of a grammar.
//!
//! A [`Grammar`] says before each token which tokens may follow. The crate
//! [`llguidance`](https://github.com/guidance-ai/llguidance) does the work: its parser walks the
//! vocabulary as a trie, so that a mask costs far less than the step of the model before it.
//!
//! # JSON Schema
//!
//! [`Grammars::json_schema`] supports the following keywords of draft 2020-12. A keyword of the
//! specification that is not listed is an error; other keys are ignored, as the specification says.
//!
//! | for | keywords |
//! |---|---|
//! | any value | `type`, `const`, `enum`, `anyOf`, `allOf`, `$ref` within the schema, `oneOf` if no value can be valid by two of its schemas |
//! | numbers | `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `multipleOf` |
//! | strings | `minLength`, `maxLength`, `pattern`, and `format`: `date`, `time`, `date-time`, `duration`, `email`, `hostname`, `ipv4`, `ipv6`, `uri`, `uuid` |
//! | arrays | `items`, `prefixItems`, `minItems`, `maxItems` |
//! | objects | `properties`, `required`, `additionalProperties`, `patternProperties`, `minProperties`, `maxProperties` |
//!
//! Properties are written in the order of the schema. A schema with integers beyond 2^53 is held to
//! them exactly; around such an integer, `allOf` and the keywords beside `$ref` may not constrain
//! the same thing twice.
//!
//! # Rust types
//!
//! [`Runner::generate_as`](crate::Runner::generate_as) and
//! [`Runner::chat_as`](crate::Runner::chat_as) take the schema that schemars derives, in
//! [`JsonStyle::Compact`], and hold the text to what serde reads:
//!
//! | type | text |
//! |---|---|
//! | `u8` to `u128`, `i8` to `i128`, `usize`, `isize`, `NonZero` of each | every value of the type and no other; `schemars(range(..))` narrows it |
//! | `f32`, `f64` | finite; at most 17 digits before and after the point, or one digit, a fraction and an exponent; within a `range`, no exponent |
//! | `bool`, `char`, `()`, `String` | `schemars(length(..))`, `regex(..)` bound a string, whose length is else unbounded |
//! | `Option`, `Box`, tuples, `[T; N]`, `Vec`, `VecDeque`, `Range`, `Result` | as serde writes them |
//! | `HashSet`, `BTreeSet` | an array; serde merges duplicates |
//! | maps | keys that are strings, enums of unit variants, or integers, which have at most 9 digits |
//! | structs | the fields of the type alone, in order; also put together by `serde(flatten)` |
//! | enums | tagged externally, internally, adjacently or not at all |
//! | recursive types | unbounded, but serde_json reads 128 levels |
//! | `serde_json::Value` | 64 levels at most |
//! | `Duration`, `SystemTime` | less than a second of nanoseconds; years to 9999 |
//! | strings with a `format` of chrono, jiff, uuid, url | `date`, `time`, `date-time`, `partial-time`, `partial-date-time`, `duration` in hours, minutes and seconds, `uuid`, `uri`, `ip`, `ipv4`, `ipv6` |
//!
//! A keyword that cannot be kept, such as `contains`, is an [`Error::Grammar`] that names the type,
//! the field and the keyword. Some rules of a `Deserialize` are in no schema: the width of an
//! integer key below 32 bits, keys that are `char`, `bool` or enums with documented variants,
//! 128-bit integers below `flatten`, an internal tag or an untagged enum (serde reads none there),
//! a `try_from`, `SocketAddr`. A text that breaks one of them is an [`Error::Form`], which has the
//! text.

mod after_reasoning;
mod formats;
mod lark;
mod numbers;
mod schema;
mod translate;

mod message;

use std::{fmt, sync::Arc};

use llguidance::{
    Matcher, ParserFactory,
    api::TopLevelGrammar,
    toktrie::{ApproximateTokEnv, SimpleVob, TokEnv, TokRxInfo, TokTrie},
};
use serde_json::{Value, json};

use crate::{
    error::{Error, Result},
    sampler::LogitsProcessor,
    tokenizer::Tokenizer,
};

pub(crate) use after_reasoning::AfterThought;
pub(crate) use schema::closed_schema_of;

/// What may stand between JSON's parts: nothing, a space, or a line break and an indentation. Without a bound, models that are
/// unsure of what comes next write white space for ever.
const WHITE_SPACE: &str = r"( |\n {0,32})?";

/// The white space between the tokens of generated JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JsonStyle {
    /// Allows one space or one line break with up to 32 spaces between two tokens. Models that were
    /// trained on indented JSON write what they are used to.
    #[default]
    Spaced,
    /// Allows no white space: `{"a":1,"b":[1,2]}`. It takes the fewest tokens.
    Compact,
}

impl JsonStyle {
    /// Returns the options of llguidance for this style.
    fn options(self) -> Value {
        match self {
            Self::Spaced => json!({ "whitespace_pattern": WHITE_SPACE }),
            Self::Compact => json!({ "whitespace_flexible": false }),
        }
    }
}

/// Makes grammars for one vocabulary. [`Runner::grammars`](crate::Runner::grammars) has the model's.
///
/// Making it takes some tenths of a second, a grammar much less.
#[derive(Clone)]
pub struct Grammars {
    factory: Arc<ParserFactory>,
    vocab_size: usize,
}

impl Grammars {
    /// Those over this tokenizer's vocabulary.
    ///
    /// # Errors
    /// [`Error::Grammar`] where no token of it ends a text.
    pub fn new(tokenizer: &Tokenizer) -> Result<Self> {
        let vocab_size = tokenizer.vocab_size();
        let ends = tokenizer.end_of_generation();
        let Some(&end) = ends.first() else {
            return Err(Error::Grammar("the vocabulary has no token that ends a text, so no form could end".into()));
        };
        let words = (0..vocab_size as u32).map(|id| tokenizer.token_bytes(id).map(<[u8]>::to_vec));
        let mut words = words.collect::<Result<Vec<_>>>()?;
        for (id, text) in tokenizer.control_tokens() {
            words[id as usize] = [&[TokTrie::SPECIAL_TOKEN_MARKER], text.as_bytes()].concat();
        }
        let trie = TokTrie::from(&TokRxInfo::new(vocab_size as u32, end), &words).with_eos_tokens(ends);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&environment).map_err(error)?;
        factory.quiet().limits_mut().verbose_errors = false;
        Ok(Self { factory: Arc::new(factory), vocab_size })
    }

    /// Returns a grammar of the JSON texts that are valid by a [JSON
    /// Schema](https://json-schema.org/draft/2020-12), in [`JsonStyle::Spaced`]. The
    /// [module](self#json-schema) lists the supported keywords.
    ///
    /// # Errors
    /// [`Error::Grammar`] if the schema is malformed, nothing satisfies it, or it has a keyword
    /// that is not supported.
    pub fn json_schema(&self, schema: &Value) -> Result<Grammar> {
        self.json_schema_with(schema, JsonStyle::Spaced)
    }

    /// Returns a grammar of the JSON texts that are valid by a JSON Schema, in this style.
    ///
    /// ```
    /// use inkstone::{GenerateOptions, Runner, grammar::JsonStyle};
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/storyteller/storyteller.gguf");
    ///
    /// let mut runner = Runner::from_gguf(path)?;
    /// let items = serde_json::json!({ "type": "boolean" });
    /// let schema = serde_json::json!({ "type": "array", "items": items, "minItems": 1, "maxItems": 1 });
    /// let grammar = runner.grammars()?.json_schema_with(&schema, JsonStyle::Compact)?;
    /// let options = GenerateOptions { grammar: Some(grammar), ..Default::default() };
    /// let text: String = runner.generate("Once", &options)?.collect::<Result<_, _>>()?;
    /// assert!(text == "[true]" || text == "[false]");
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`json_schema`](Self::json_schema).
    pub fn json_schema_with(&self, schema: &Value, style: JsonStyle) -> Result<Grammar> {
        if schema.as_object().is_some_and(|object| object.contains_key(OPTIONS)) {
            return Err(Error::Grammar(format!("`{OPTIONS}` is not a keyword of JSON Schema: give a `JsonStyle`")));
        }
        let form = Form::Json(style);
        let grammar = if translate::has_wide_integers(schema) {
            TopLevelGrammar::from_lark(translate::to_lark(schema, translate::Source::Schema, style)?)
        } else {
            json_grammar(schema, style)
        };
        self.grammar(grammar, schema.to_string(), form).map_err(Error::Grammar)
    }

    /// Returns a grammar of the compact JSON texts that can be read as a Rust type, whose schema
    /// this is.
    pub(crate) fn json_of_type(&self, name: &str, schema: &Value) -> Result<Grammar> {
        let lark = translate::to_lark(schema, translate::Source::Type(name), JsonStyle::Compact)?;
        let grammar = self.grammar(TopLevelGrammar::from_lark(lark), schema.to_string(), Form::Type);
        grammar.map_err(|what| Error::Grammar(format!("type `{name}`: {what}")))
    }

    /// A match of a regular expression, from its beginning to its end
    /// ([syntax](https://docs.rs/regex/latest/regex/#syntax), without look-around and references). `\d` is a digit of any
    /// script there.
    ///
    /// # Errors
    /// [`Error::Grammar`] with the place where its syntax is wrong, or with the part of the syntax that is not supported.
    pub fn regex(&self, expression: &str) -> Result<Grammar> {
        message::check_regex(expression)?;
        let grammar = TopLevelGrammar::from_regex(expression);
        self.grammar(grammar, expression.into(), Form::Regex).map_err(|what| message::of_regex(expression, &what))
    }

    /// A sentence of a context-free grammar in llguidance's dialect of Lark
    /// ([syntax](https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md)), from the rule `start` on.
    ///
    /// # Errors
    /// [`Error::Grammar`] with the line where it is wrong.
    pub fn lark(&self, grammar: &str) -> Result<Grammar> {
        let lark = lark::with_white_space(grammar)?;
        let parsed = self.grammar(TopLevelGrammar::from_lark(lark), grammar.into(), Form::Lark);
        parsed.map_err(|what| message::of_lark(grammar, &what))
    }

    /// Makes a grammar that has the `source`, or returns llguidance's words on why it cannot be used.
    fn grammar(&self, grammar: TopLevelGrammar, source: String, form: Form) -> Result<Grammar, String> {
        let matcher = Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            Some(what) => Err(what),
            None => Ok(Grammar { fresh: Arc::new(matcher), source: source.into(), form, vocab_size: self.vocab_size }),
        }
    }
}

/// The key of a schema from which llguidance takes its own options.
const OPTIONS: &str = "x-guidance";

fn json_grammar(schema: &Value, style: JsonStyle) -> TopLevelGrammar {
    let mut schema = match schema {
        Value::Bool(true) => json!({}),
        schema => schema.clone(),
    };
    if let Some(object) = schema.as_object_mut() {
        object.insert(OPTIONS.into(), style.options());
    }
    TopLevelGrammar::from_json_schema(schema)
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammars").field("vocab_size", &self.vocab_size).finish_non_exhaustive()
    }
}

/// The form that a text must have; made by [`Grammars`]. Cheap to clone.
///
/// In [`GenerateOptions::grammar`](crate::GenerateOptions::grammar) it leaves no token but those with which the text can still
/// become of this form, and none but an end where it is complete.
#[derive(Clone)]
pub struct Grammar {
    /// One that has seen nothing, and stays so.
    fresh: Arc<Matcher>,
    source: Arc<str>,
    form: Form,
    vocab_size: usize,
}

/// The language of a grammar's source.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Json(JsonStyle),
    Type,
    Regex,
    Lark,
}

impl Grammar {
    /// The schema, expression or grammar.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The stage of a sampler that keeps the tokens after those that it has then to this form.
    ///
    /// # Errors
    /// [`Error::Argument`] where it was made for a vocabulary larger than `vocab_size`.
    pub fn constraint(&self, vocab_size: usize) -> Result<Constraint> {
        if self.vocab_size > vocab_size {
            let what = format!("is for a vocabulary of {}, this model's has {vocab_size}", self.vocab_size);
            return Err(Error::argument("grammar", what));
        }
        Ok(Constraint { fresh: self.fresh.clone(), matcher: None, seen: None })
    }
}

impl PartialEq for Grammar {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source && self.form == other.form && self.vocab_size == other.vocab_size
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Grammar").field(&self.source).finish()
    }
}

/// Keeps what is sampled to a form.
pub struct Constraint {
    fresh: Arc<Matcher>,
    /// Made when the first token is chosen: of many texts that wait, none takes a parser's memory.
    matcher: Option<Matcher>,
    /// How many of the ids it knows; none of those before the first it is asked about are of the form.
    seen: Option<usize>,
}

impl Constraint {
    /// Whether the text may end here.
    pub(crate) fn is_complete(&mut self) -> Result<bool> {
        self.matcher().is_accepting().map_err(error)
    }

    /// Begins the form afresh after the first `seen` ids.
    pub(crate) fn begin(&mut self, seen: usize) -> Result<()> {
        match &mut self.matcher {
            Some(matcher) if self.seen.is_some() => matcher.reset().map_err(error)?,
            _ => {}
        }
        self.seen = Some(seen);
        Ok(())
    }

    fn matcher(&mut self) -> &mut Matcher {
        self.matcher.get_or_insert_with(|| self.fresh.deep_clone())
    }
}

impl LogitsProcessor for Constraint {
    fn process(&mut self, ids: &[u32], logits: &mut [f32]) -> Result<()> {
        let seen = *self.seen.get_or_insert(ids.len());
        let matcher = self.matcher();
        matcher.consume_tokens(&ids[seen..]).map_err(error)?;
        let mask = matcher.compute_mask_or_eos().map_err(error);
        self.seen = Some(ids.len());
        let mask = mask?;
        forbid_all_but(&mask, logits);
        Ok(())
    }
}

fn forbid_all_but(mask: &SimpleVob, logits: &mut [f32]) {
    let words = mask.as_slice().iter().chain(std::iter::repeat(&0));
    for (word, logits) in words.zip(logits.chunks_mut(32)) {
        match word {
            0 => logits.fill(f32::NEG_INFINITY),
            &u32::MAX => {}
            word => {
                let forbidden = logits.iter_mut().enumerate().filter(|(bit, _)| word >> bit & 1 == 0);
                forbidden.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
            }
        }
    }
}

fn error(error: impl fmt::Display) -> Error {
    Error::Grammar(error.to_string())
}
