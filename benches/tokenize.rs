//! Measures tokenization of mixed text of 1, 2 and 4 MB, and of very long words.
//!
//! Time should be proportional to length for any text. The words are at least 1 MB long: one
//! repeated letter, and random letters. Texts are measured in turn, so that a slow moment of the
//! machine affects all of them.
//!
//!     cargo bench --bench tokenize -- --help

#[path = "../examples/common/mod.rs"]
mod common;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    ptr,
    time::Instant,
};

use inkstone::{
    gguf::Gguf,
    tokenizer::{SpecialTokens, Tokenizer},
};

const USAGE: &str = "
Usage: cargo bench --bench tokenize -- [OPTIONS]

  --model FILE    a GGUF file (default: the model in this repository)
  --reps N        encodings of each text, of which the median counts (5)
  --write FOLDER  writes the texts to FOLDER, for other programs to encode";

const MEGABYTE: usize = 1 << 20;

/// Phrases of mixed text: English, code, and other scripts, in equal shares.
const PHRASES: [&[&str]; 3] = [
    &[
        "the lantern",
        "was found",
        "in 1987",
        "by a fox,",
        "who didn't",
        "know whose",
        "it is;",
        "\"Ask the owl!\"",
        "she said",
        "tomorrow.",
        "Extraordinarily",
        "warm light",
        "(it seemed)",
        "fell on",
        "12,500 trees.\n\n",
        "We'll",
        "never",
    ],
    &[
        "fn main() {\n",
        "    let mut ",
        "index_of_word = ",
        "self.table[",
        "0x1f3a];\n",
        "        ",
        "if a != b && ",
        "c <= 42 {\n",
        "return ",
        "Err(e)?;\n",
        "    }\n}\n",
        "// TODO: ",
        "https://example.org/a?b=c&d=1\n",
        "\t\t",
        "std::collections::",
        "HashMap<String, u64>",
    ],
    &[
        "狐は雪の中で",
        "ランタンを見つけた。",
        "Лиса ",
        "нашла фонарь ",
        "в снегу. ",
        "여우가 ",
        "눈 속에서 ",
        "Füchse, ",
        "œuvre d'été ",
        "नमस्ते ",
        "ภาษาไทย ",
        "السلام عليكم ",
        "🦊🏮 ",
        "👩‍👩‍👧 ",
        "½ ² ٣٤ ",
        "狐狸在雪中",
    ],
];

struct Case {
    name: &'static str,
    text: String,
    seconds: Vec<f64>,
}

fn main() -> ExitCode {
    common::run(USAGE, |mut args| {
        // Cargo passes this flag to every benchmark.
        args.flag("--bench");
        let model: Option<PathBuf> = args.value("--model")?;
        let reps: usize = args.value("--reps")?.unwrap_or(5);
        let folder: Option<PathBuf> = args.value("--write")?;
        args.finish()?;
        let mut cases = cases();
        if let Some(folder) = folder {
            for case in &cases {
                std::fs::write(folder.join(format!("{}.txt", case.name.replace(' ', "_"))), &case.text)?;
            }
        }
        let path = model.unwrap_or_else(|| "tests/data/storyteller/storyteller.gguf".into());
        let tokenizer = Tokenizer::from_gguf(&Gguf::open(&path)?)?;
        for _ in 0..reps.max(1) {
            for case in &mut cases {
                let started = Instant::now();
                tokenizer.encode(&case.text, SpecialTokens::Plain)?;
                case.seconds.push(started.elapsed().as_secs_f64());
            }
        }
        let mut out = io::stdout();
        writeln!(out, "{}: {} tokens; medians of {}\n", path.display(), tokenizer.vocab_size(), reps.max(1))?;
        writeln!(out, "{:<18}{:>10}{:>10}", "text", "ms", "MB/s")?;
        for case in &mut cases {
            let (seconds, megabytes) = (case.median(), case.text.len() as f64 / 1e6);
            writeln!(out, "{:<18}{:10.1}{:10.1}", case.name, 1e3 * seconds, megabytes / seconds)?;
        }
        Ok(())
    })
}

fn cases() -> Vec<Case> {
    let mut random = Random(1);
    let texts = [
        ("mixed 1 MB", random.mixed(MEGABYTE)),
        ("mixed 2 MB", random.mixed(2 * MEGABYTE)),
        ("mixed 4 MB", random.mixed(4 * MEGABYTE)),
        ("one letter", "a".repeat(MEGABYTE)),
        ("random letters", random.letters(MEGABYTE)),
        ("random letters 4", random.letters(4 * MEGABYTE)),
    ];
    texts.into_iter().map(|(name, text)| Case { name, text, seconds: Vec::new() }).collect()
}

impl Case {
    fn median(&mut self) -> f64 {
        self.seconds.sort_by(f64::total_cmp);
        self.seconds[self.seconds.len() / 2]
    }
}

/// Marsaglia's xorshift, so that all runs use the same texts.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    /// Returns at least `len` bytes of text, in paragraphs of one kind of phrases each.
    fn mixed(&mut self, len: usize) -> String {
        let mut text = String::with_capacity(len + MEGABYTE / 8);
        while text.len() < len {
            let phrases = PHRASES[self.below(PHRASES.len())];
            for _ in 0..60 {
                text.push_str(phrases[self.below(phrases.len())]);
                if ptr::eq(phrases, PHRASES[0]) {
                    text.push(' ');
                }
            }
            text.push('\n');
        }
        text
    }

    fn letters(&mut self, len: usize) -> String {
        (0..len).map(|_| (b'a' + self.below(26) as u8) as char).collect()
    }
}
