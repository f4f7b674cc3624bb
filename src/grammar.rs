//! Text that must be of a certain form: JSON of a schema, a match of a regular expression, a sentence of a grammar.
//!
//! In: the form, and a model's vocabulary. Out: before each token, which tokens may come. The work is done by the crate
//! [`llguidance`](https://github.com/guidance-ai/llguidance): its parser goes through the vocabulary as through a trie, so that
//! a mask costs far less than the model's step before it.

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

/// What may stand between JSON's parts: nothing, a space, or a line break and an indentation. Without a bound, models that are
/// unsure of what comes next write white space for ever.
const WHITE_SPACE: &str = r"( |\n {0,32})?";

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

    /// JSON that is valid by a [JSON Schema](https://json-schema.org/draft/2020-12).
    ///
    /// # Errors
    /// [`Error::Grammar`] for a schema that is none, that nothing satisfies, or with a keyword that is not supported.
    pub fn json_schema(&self, schema: &Value) -> Result<Grammar> {
        let mut spaced = schema.clone();
        if let Some(object) = spaced.as_object_mut() {
            if object.contains_key(OPTIONS) {
                return Err(Error::Grammar(format!("`{OPTIONS}` is no keyword of JSON Schema")));
            }
            object.insert(OPTIONS.into(), json!({ "whitespace_pattern": WHITE_SPACE }));
        }
        self.grammar(TopLevelGrammar::from_json_schema(spaced), schema.to_string()).map_err(Error::Grammar)
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
        self.grammar(grammar, expression.into()).map_err(|what| message::of_regex(expression, &what))
    }

    /// A sentence of a context-free grammar in llguidance's dialect of Lark
    /// ([syntax](https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md)), from the rule `start` on.
    ///
    /// # Errors
    /// [`Error::Grammar`] with the line where it is wrong.
    pub fn lark(&self, grammar: &str) -> Result<Grammar> {
        let parsed = self.grammar(TopLevelGrammar::from_lark(grammar.into()), grammar.into());
        parsed.map_err(|what| message::of_lark(grammar, &what))
    }

    /// Makes a grammar that has the `source`, or returns llguidance's words on why it cannot be used.
    fn grammar(&self, grammar: TopLevelGrammar, source: String) -> Result<Grammar, String> {
        let matcher = Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            Some(what) => Err(what),
            None => Ok(Grammar { fresh: Arc::new(matcher), source: source.into(), vocab_size: self.vocab_size }),
        }
    }
}

/// What llguidance takes its own options from.
const OPTIONS: &str = "x-guidance";

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
    vocab_size: usize,
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
        self.source == other.source && self.vocab_size == other.vocab_size
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
