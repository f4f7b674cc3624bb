//! Constrains generated text: to JSON of a schema or of a Rust type, to matches of a regular
//! expression, or to sentences of a grammar.
//!
//! A [`Grammar`] determines before each token which tokens may follow. The crate
//! [`llguidance`](https://github.com/guidance-ai/llguidance) computes these masks: its parser walks
//! the vocabulary as a trie, so that a mask takes far less time than the model's step before it.
//!
//! # JSON Schema
//!
//! [`Grammars::json_schema`] supports the following keywords of draft 2020-12. A keyword of the
//! specification that is not listed is an error; other keys are ignored, as the specification
//! requires.
//!
//! - any value: `type`, `const`, `enum`, `anyOf`, `allOf`, `$ref` within the schema, `oneOf` if no
//!   value can be valid by two of its schemas
//! - numbers: `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `multipleOf` of at most
//!   8 digits
//! - strings: `minLength`, `maxLength`, `pattern`, and `format` with `date`, `time`, `date-time`,
//!   `duration`, `email`, `hostname`, `ipv4`, `ipv6`, `uri` or `uuid`
//! - arrays: `items`, `prefixItems`, `minItems`, `maxItems`
//! - objects: `properties`, `required`, `additionalProperties`, `patternProperties`,
//!   `minProperties`, `maxProperties`
//!
//! Properties are written in the order of the schema. Integers beyond 2^53 are exact; in the schema
//! around such an integer, `allOf` and the keywords next to `$ref` must not set a keyword twice.
//!
//! # Rust types
//!
//! [`Runner::generate_as`](crate::Runner::generate_as) and
//! [`Runner::chat_as`](crate::Runner::chat_as) take the schema that schemars derives, in
//! [`JsonStyle::Compact`], and constrain the text to JSON that serde reads:
//!
//! - `u8` to `u128`, `i8` to `i128`, `usize`, `isize` and their `NonZero`: exactly the values of
//!   the type; `schemars(range(..))` narrows them
//! - `f32`, `f64`: finite numbers with at most 17 digits before and after the point, or with one
//!   digit, a fraction and an exponent; within a `range`, no exponent
//! - `bool`, `char`, `()`, `String`: any length; `schemars(length(..))` and `regex(..)` limit
//!   strings
//! - `Option`, `Box`, tuples, `[T; N]`, `Vec`, `VecDeque`, `Range`, `Result`: as serde writes them
//! - `HashSet`, `BTreeSet`: an array; serde merges duplicates
//! - maps: keys that are strings, enums of unit variants, or integers of at most 9 digits
//! - structs: only the fields of the type, in order; `serde(flatten)` is supported
//! - enums: tagged externally, internally, adjacently or not at all
//! - recursive types: unbounded, but serde_json reads 128 levels
//! - `serde_json::Value`: at most 64 levels
//! - `Duration`, `SystemTime`: less than a second of nanoseconds; years to 9999
//! - strings with a `format` of chrono, jiff, uuid or url: `date`, `time`, `date-time`,
//!   `partial-time`, `partial-date-time`, `duration` in hours, minutes and seconds, `uuid`, `uri`,
//!   `ip`, `ipv4`, `ipv6`
//!
//! A keyword that cannot be expressed, such as `contains`, is an [`Error::Grammar`] that names the
//! type, the field and the keyword. Some rules of a `Deserialize` are in no schema: the width of an
//! integer key below 32 bits, keys that are `char`, `bool` or enums with documented variants,
//! 128-bit integers below `flatten`, an internal tag or an untagged enum (serde cannot read them
//! there), a `try_from`, `SocketAddr`. A text that breaks one of them is an [`Error::Form`], which
//! contains the text.

mod after_reasoning;
mod compile;
mod formats;
mod lark;
mod message;
mod numbers;
mod schema;
mod translate;

use std::{fmt, sync::Arc};

use llguidance::{
    Matcher, ParserFactory,
    api::TopLevelGrammar,
    toktrie::{ApproximateTokEnv, SimpleVob, TokEnv, TokRxInfo, TokTrie},
};
use serde_json::{Map, Value, json};

use self::compile::compile;
pub(crate) use self::{after_reasoning::AfterReasoning, schema::closed_schema_of};
use crate::{
    error::{Error, Result},
    sampler::LogitsProcessor,
    tokenizer::Tokenizer,
};

/// An object of JSON.
type JsonObject = Map<String, Value>;

/// The white space between JSON tokens: none, a space, or a line break with an indentation. It is
/// bounded because models that are unsure of the next token would write white space for ever.
const WHITE_SPACE: &str = r"( |\n {0,32})?";

/// The white space between the tokens of generated JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JsonStyle {
    /// Allows one space, or one line break with up to 32 spaces, between two tokens. Models can
    /// then indent JSON as in their training.
    #[default]
    Spaced,
    /// Allows no white space: `{"a":1,"b":[1,2]}`. This takes the fewest tokens.
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

/// Compiles grammars for one vocabulary. [`Runner::grammars`](crate::Runner::grammars) returns the
/// one for the model's vocabulary.
///
/// Creating it takes some tenths of a second, compiling a grammar much less.
#[derive(Clone)]
pub struct Grammars {
    factory: Arc<ParserFactory>,
    vocab_size: usize,
}

impl Grammars {
    /// Returns the compiler for a tokenizer's vocabulary.
    ///
    /// # Errors
    /// [`Error::Grammar`] if the vocabulary has no end-of-generation token.
    pub fn new(tokenizer: &Tokenizer) -> Result<Self> {
        let vocab_size = tokenizer.vocab_size();
        let ends = tokenizer.end_of_generation();
        let Some(&end) = ends.first() else {
            return Err(Error::Grammar(
                "the vocabulary has no end-of-generation token, with which a constrained text ends".into(),
            ));
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

    /// Returns a grammar of the JSON texts that are valid according to a [JSON
    /// Schema](https://json-schema.org/draft/2020-12), in [`JsonStyle::Spaced`]. The
    /// [module](self#json-schema) lists the supported keywords.
    ///
    /// # Errors
    /// [`Error::Grammar`] if the schema is malformed, no value is valid, or it has a keyword that
    /// is not supported.
    pub fn json_schema(&self, schema: &Value) -> Result<Grammar> {
        self.json_schema_with(schema, JsonStyle::Spaced)
    }

    /// Returns a grammar of the JSON texts that are valid according to a JSON Schema, in a style.
    ///
    /// ```
    /// use inkstone::{GenerateOptions, Runner, grammar::JsonStyle};
    /// use serde_json::json;
    /// # let root = env!("CARGO_MANIFEST_DIR");
    /// # let path = format!("{root}/tests/data/storyteller/storyteller.gguf");
    ///
    /// let mut runner = Runner::from_gguf(path)?;
    /// let items = json!({ "type": "boolean" });
    /// let schema = json!({ "type": "array", "items": items, "minItems": 1, "maxItems": 1 });
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
            return Err(Error::Grammar(format!("`{OPTIONS}` is not a keyword of JSON Schema: pass a `JsonStyle`")));
        }
        translate::check_multiples(schema)?;
        let kind = GrammarKind::Json(style);
        let grammar = if translate::has_wide_integers(schema) {
            TopLevelGrammar::from_lark(translate::to_lark(schema, translate::SchemaOrigin::Caller, style)?)
        } else {
            json_grammar(schema, style)
        };
        self.grammar(grammar, schema.to_string(), kind).map_err(Error::Grammar)
    }

    /// Returns a grammar of the compact JSON texts that can be read as the Rust type with this name
    /// and schema.
    pub(crate) fn json_of_type(&self, name: &str, schema: &Value) -> Result<Grammar> {
        translate::check_multiples(schema)?;
        let lark = translate::to_lark(schema, translate::SchemaOrigin::Type(name), JsonStyle::Compact)?;
        let grammar = self.grammar(TopLevelGrammar::from_lark(lark), schema.to_string(), GrammarKind::Type);
        grammar.map_err(|what| Error::Grammar(format!("type `{name}`: {what}")))
    }

    /// Returns a grammar of the texts that a regular expression matches as a whole
    /// ([syntax](https://docs.rs/regex/latest/regex/#syntax), without look-around and references).
    /// `\d` matches a digit of any script.
    ///
    /// # Errors
    /// [`Error::Grammar`] with the place of a syntax error, or with the syntax that is not
    /// supported.
    pub fn regex(&self, expression: &str) -> Result<Grammar> {
        message::check_regex(expression)?;
        let grammar = TopLevelGrammar::from_regex(expression);
        self.grammar(grammar, expression.into(), GrammarKind::Regex)
            .map_err(|what| message::of_regex(expression, &what))
    }

    /// Compiles a context-free grammar in llguidance's dialect of Lark
    /// ([syntax](https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md)), with the
    /// start rule `start`.
    ///
    /// # Errors
    /// [`Error::Grammar`] with the line of the mistake.
    pub fn lark(&self, grammar: &str) -> Result<Grammar> {
        let lark = lark::with_white_space(grammar)?;
        let parsed = self.grammar(TopLevelGrammar::from_lark(lark), grammar.into(), GrammarKind::Lark);
        parsed.map_err(|what| message::of_lark(grammar, &what))
    }

    /// Compiles a grammar; `source` is the caller's text of it. The error is llguidance's reason.
    fn grammar(&self, grammar: TopLevelGrammar, source: String, kind: GrammarKind) -> Result<Grammar, String> {
        let matcher = compile(&self.factory, grammar)?;
        Ok(Grammar { fresh: Arc::new(matcher), source: source.into(), kind, vocab_size: self.vocab_size })
    }
}

/// The key of a schema under which llguidance finds its options.
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

/// A set of allowed texts; compiled by [`Grammars`]. Cheap to clone.
///
/// With [`GenerateOptions::grammar`](crate::GenerateOptions::grammar), only tokens are sampled
/// after which an allowed text is still possible, and only an end-of-generation token after a text
/// that cannot be continued.
#[derive(Clone)]
pub struct Grammar {
    /// The compiled matcher in its initial state, which is cloned for each text.
    fresh: Arc<Matcher>,
    source: Arc<str>,
    kind: GrammarKind,
    vocab_size: usize,
}

/// The language of a grammar's source.
#[derive(Clone, Copy, PartialEq)]
enum GrammarKind {
    Json(JsonStyle),
    Type,
    Regex,
    Lark,
}

impl Grammar {
    /// Returns the schema, expression or grammar.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns a logits processor that constrains the tokens sampled after its first call.
    ///
    /// # Errors
    /// [`Error::Argument`] if the grammar's vocabulary is larger than `vocab_size`.
    pub fn constraint(&self, vocab_size: usize) -> Result<Constraint> {
        if self.vocab_size > vocab_size {
            let what = format!(
                "was compiled for {} tokens, but the model has {vocab_size}: compile it with this model's `grammars`",
                self.vocab_size
            );
            return Err(Error::argument("grammar", what));
        }
        Ok(Constraint { fresh: self.fresh.clone(), matcher: None, seen: None })
    }
}

impl PartialEq for Grammar {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source && self.kind == other.kind && self.vocab_size == other.vocab_size
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Grammar").field(&self.source).finish()
    }
}

/// A logits processor that allows only the texts of a [`Grammar`].
pub struct Constraint {
    fresh: Arc<Matcher>,
    /// Cloned before the first token, so that texts that wait for their turn take no memory for it.
    matcher: Option<Matcher>,
    /// Number of processed ids, including the ids before the constrained text; `None` before the
    /// first call.
    seen: Option<usize>,
}

impl Constraint {
    /// Returns whether the text may end here.
    pub(crate) fn is_complete(&mut self) -> Result<bool> {
        self.matcher().is_accepting().map_err(error)
    }

    /// Restarts the constrained text after the first `seen` ids.
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

    fn allowed(&mut self, ids: &[u32], next: &[u32]) -> Result<usize> {
        // The constrained text begins with the first processed token.
        let Some(seen) = self.seen.replace(ids.len()) else { return Ok(next.len()) };
        let matcher = self.matcher();
        matcher.consume_tokens(&ids[seen..]).map_err(error)?;
        matcher.validate_tokens(next).map_err(error)
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
