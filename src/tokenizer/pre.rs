//! A text in; the words that byte-level BPE merges within out.
//!
//! `tokenizer.ggml.pre` names how a model's text was cut in training. The published patterns are one regular expression each, with a
//! look-ahead, `\s+(?!\S)`: white space but for its last character where something follows. Engines with look-ahead backtrack, and give
//! up on long texts; so a row lists the alternatives of its expression one by one, and [`Take::ButLast`] says the look-ahead.

use regex_automata::meta::Regex;

use crate::error::{Error, Result};

/// How much of a match is the word.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Take {
    All,
    /// All but the last character, where the next match begins.
    ButLast,
}

/// One way to cut a text.
pub(super) struct Row {
    /// The values of `tokenizer.ggml.pre` that mean it.
    names: &'static [&'static str],
    /// Each stage cuts what the one before left, at its matches; of the alternatives, the first that matches counts.
    stages: &'static [&'static [(Take, &'static str)]],
    /// Whether a word that is a token is that token, whatever its merges would give.
    pub ignore_merges: bool,
    /// Whether sequences begin with a mark where the file does not say.
    pub add_bos: bool,
}

use Take::{All, ButLast};

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
const GPT_2: &[(Take, &str)] = &[
    (All, r"'s|'t|'re|'ve|'m|'ll|'d"),
    (All, r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"),
    (All, r"\s+$"),
    (ButLast, r"\s+\s"),
    (All, r"\s"),
];

const ROWS: &[Row] = &[
    Row { names: &["gpt-2", "phi-2"], stages: &[GPT_2], ignore_merges: false, add_bos: false },
    Row { names: &["starcoder", "smollm"], stages: &[&[(All, r"\p{N}")], GPT_2], ignore_merges: false, add_bos: false },
    Row {
        // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
        names: &["qwen2", "deepseek-r1-qwen"],
        stages: &[&[
            (All, r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"),
            (All, r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"),
            (All, r"\s+$"),
            (ButLast, r"\s+\s"),
            (All, r"\s"),
        ]],
        ignore_merges: false,
        add_bos: false,
    },
    Row {
        // As qwen2, with marks taken for letters.
        names: &["qwen35"],
        stages: &[&[
            (All, r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"),
            (All, r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"),
            (All, r"\s+$"),
            (ButLast, r"\s+\s"),
            (All, r"\s"),
        ]],
        ignore_merges: false,
        add_bos: false,
    },
    Row {
        // As qwen2, with numbers of up to three digits.
        names: &["llama-bpe", "llama3", "llama-v3"],
        stages: &[&[
            (All, r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"),
            (All, r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"),
            (All, r"\s+$"),
            (ButLast, r"\s+\s"),
            (All, r"\s"),
        ]],
        ignore_merges: true,
        add_bos: true,
    },
];

/// The row of a `tokenizer.ggml.pre`.
///
/// # Errors
/// [`Error::Metadata`] naming a pre-tokenizer that no row has.
pub(super) fn row(name: Option<&str>) -> Result<&'static Row> {
    const KEY: &str = "tokenizer.ggml.pre";
    let known = || ROWS.iter().flat_map(|row| row.names).copied().collect::<Vec<_>>().join(", ");
    let Some(name) = name else {
        let what = format!("is missing, so how text is cut is unknown: convert the model again; known: {}", known());
        return Err(Error::metadata(KEY, what));
    };
    let unknown =
        || Error::metadata(KEY, format!("`{name}` is a pre-tokenizer that is not supported; supported: {}", known()));
    ROWS.iter().find(|row| row.names.contains(&name)).ok_or_else(unknown)
}

/// A row made ready to run.
pub(super) struct Splitter {
    stages: Vec<(Regex, &'static [(Take, &'static str)])>,
}

impl Splitter {
    pub fn new(row: &'static Row) -> Result<Self> {
        let compile = |&stage: &&'static [(Take, &'static str)]| {
            let patterns: Vec<&str> = stage.iter().map(|(_, pattern)| *pattern).collect();
            let regex = Regex::new_many(&patterns).map_err(|e| Error::Tokenizer(format!("pre-tokenizer: {e}")))?;
            Ok((regex, stage))
        };
        Ok(Self { stages: row.stages.iter().map(compile).collect::<Result<_>>()? })
    }

    /// Calls `each` with every word, in order; joined they are the text.
    pub fn split<'t>(&self, text: &'t str, mut each: impl FnMut(&'t str) -> Result<()>) -> Result<()> {
        self.split_stages(0, text, &mut each)
    }

    fn split_stages<'t>(&self, stage: usize, text: &'t str, each: &mut dyn FnMut(&'t str) -> Result<()>) -> Result<()> {
        let Some((regex, alternatives)) = self.stages.get(stage) else { return each(text) };
        let mut start = 0;
        while let Some(found) = regex.find(regex_automata::Input::new(text).range(start..)) {
            let word = &text[found.range()];
            let (take, _) = alternatives[found.pattern().as_usize()];
            let last = word.chars().next_back().map_or(0, char::len_utf8);
            let end = if take == ButLast { found.end() - last } else { found.end() };
            if start < found.start() {
                self.split_stages(stage + 1, &text[start..found.start()], each)?;
            }
            self.split_stages(stage + 1, &text[found.start()..end], each)?;
            start = end;
        }
        if start < text.len() {
            self.split_stages(stage + 1, &text[start..], each)?;
        }
        Ok(())
    }
}
