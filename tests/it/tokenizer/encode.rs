//! Tests of tokenizers against llama.cpp's ids: real vocabularies in tests/data/vocabularies, and
//! small ones in tests/data/tokenizer.

use std::{
    collections::HashMap,
    ops::Range,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use inkstone::{
    Error,
    gguf::{Array, Gguf},
    tokenizer::{SpecialTokens, Tokenizer},
};
use proptest::prelude::*;
use serde_json::Value;

/// A folder of vocabularies with their references; tests/data/vocabularies/README.md describes the
/// files.
#[derive(Clone, Copy)]
enum Folder {
    Repository,
    /// Beside the repository: vocabularies that cannot be part of it.
    Shared,
}

impl Folder {
    fn file(self, name: &str) -> PathBuf {
        let folder = match self {
            Self::Repository => "tests/data/vocabularies",
            Self::Shared => "../shared/tokenizers",
        };
        Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(name)
    }

    fn upstream(self, name: &str) -> PathBuf {
        match self {
            Self::Repository => self.file(&format!("{name}.upstream")),
            Self::Shared => self.file(&format!("upstream/{name}.out")),
        }
    }
}

pub fn open(path: &Path) -> Tokenizer {
    Tokenizer::from_gguf(&Gguf::open(path).unwrap()).unwrap()
}

pub fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn assert_vectors(folder: Folder, name: &str, cleans_up: bool) {
    let tokenizer = open(&folder.file(&format!("{name}.gguf")));
    let vectors = std::fs::read_to_string(folder.file(&format!("{name}.jsonl"))).unwrap();
    assert_eq!(vectors.lines().count(), 300);
    for line in vectors.lines() {
        let vector: Value = serde_json::from_str(line).unwrap();
        let text = vector["text"].as_str().unwrap();
        let plain = tokenizer.encode(text, SpecialTokens::Plain).unwrap();
        assert_eq!(plain, ids(&vector["ids"]), "{name}: ids of {text:?}");
        assert_eq!(
            tokenizer.encode(text, SpecialTokens::Parse).unwrap(),
            ids(&vector["ids_special"]),
            "{name}: {text:?}"
        );
        assert_eq!(tokenizer.encode_prompt(text).unwrap(), ids(&vector["ids_bos"]), "{name}: {text:?}");
        let pieces: Vec<String> = plain.iter().map(|&id| hex(tokenizer.token_bytes(id).unwrap())).collect();
        assert_eq!(pieces, strings(&vector["pieces_hex"]), "{name}: pieces of {text:?}");
        // If the oracle removes spaces that tokens contain, the tokens are right.
        let expected = if cleans_up { joined(&pieces) } else { vector["detok"].as_str().unwrap().to_owned() };
        assert_eq!(tokenizer.decode(&plain).unwrap(), expected, "{name}: detok");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn joined(pieces: &[String]) -> String {
    let digits = pieces.concat();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    String::from_utf8((0..digits.len()).step_by(2).map(byte).collect()).unwrap()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// llama.cpp's own test texts.
fn assert_upstream(folder: Folder, name: &str) {
    let tokenizer = open(&folder.file(&format!("{name}.gguf")));
    let texts = std::fs::read_to_string(Folder::Repository.file("upstream.txt")).unwrap();
    let expected = std::fs::read_to_string(folder.upstream(name)).unwrap();
    let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
    for (index, line) in expected.lines().enumerate() {
        let expected: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
        let text = texts[index];
        assert_eq!(tokenizer.encode(text, SpecialTokens::Plain).unwrap(), expected, "{name}: text {index}, {text:?}");
    }
    assert_eq!(expected.lines().count(), 46);
}

macro_rules! vectors {
    ($($test:ident: $folder:ident $name:literal $(#[$ignored:meta])?, cleans up $cleans_up:literal, upstream $upstream:literal;)*) => { $(
        #[test]
        $(#[$ignored])?
        fn $test() {
            assert_vectors(Folder::$folder, $name, $cleans_up);
            if $upstream {
                assert_upstream(Folder::$folder, $name);
            }
        }
    )* };
}

vectors! {
    qwen2: Repository "qwen2", cleans up false, upstream true;
    gpt_2: Repository "gpt-2", cleans up true, upstream true;
    phi_3: Repository "phi-3", cleans up false, upstream true;
    spm_noprefix: Repository "spm-noprefix", cleans up false, upstream false;
    llama_bpe: Shared "llama-bpe" #[ignore = "Llama 3's licence keeps its vocabulary out of the repository"], cleans up true, upstream true;
    llama_spm: Shared "llama-spm" #[ignore = "Llama 2's licence keeps its vocabulary out of the repository"], cleans up false, upstream true;
    starcoder: Shared "starcoder" #[ignore = "StarCoder's licence keeps its vocabulary out of the repository"], cleans up true, upstream true;
    deepseek_llm: Shared "deepseek-llm" #[ignore = "DeepSeek's licence keeps its vocabulary out of the repository"], cleans up false, upstream true;
    deepseek_coder: Shared "deepseek-coder" #[ignore = "DeepSeek's licence keeps its vocabulary out of the repository"], cleans up false, upstream true;
    falcon: Shared "falcon" #[ignore = "the size of Falcon's vocabulary keeps it out of the repository"], cleans up true, upstream true;
}

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer").join(name)
}

fn assert_small_vectors(tokenizer: &Tokenizer, name: &str) {
    let vectors = std::fs::read_to_string(data(name)).unwrap();
    assert!(vectors.lines().count() > 40);
    for line in vectors.lines() {
        let vector: Value = serde_json::from_str(line).unwrap();
        let text = vector["text"].as_str().unwrap();
        assert_eq!(tokenizer.encode(text, SpecialTokens::Plain).unwrap(), ids(&vector["ids"]), "{name}: {text:?}");
        assert_eq!(
            tokenizer.encode(text, SpecialTokens::Parse).unwrap(),
            ids(&vector["ids_special"]),
            "{name}: {text:?}"
        );
    }
}

/// Tests the vectors of tests/data/tokenizer/make.py, on which llama.cpp and the trainers agree.
#[test]
fn small_vocabularies_encode_as_their_references() {
    assert_small_vectors(&open(&data("bpe.gguf")), "bpe.jsonl");
    assert_small_vectors(&open(&data("spm.gguf")), "spm.jsonl");
    assert_small_vectors(&open(&data("marks.gguf")), "marks.jsonl");
    assert_small_vectors(&open(&data("gemma.gguf")), "gemma.jsonl");
    assert_small_vectors(&Tokenizer::from_file(data("bpe.json")).unwrap(), "bpe.jsonl");
}

#[test]
fn bos_and_eos_are_added_as_the_metadata_says() {
    let spm = open(&data("spm.gguf"));
    let (bos, ids) = (spm.bos().unwrap(), spm.encode("fox", SpecialTokens::Parse).unwrap());
    assert_eq!(spm.encode_prompt("fox").unwrap(), [&[bos], ids.as_slice()].concat(), "SentencePiece's default");
    let bpe = open(&data("bpe.gguf"));
    assert_eq!(bpe.encode_prompt("fox").unwrap(), bpe.encode("fox", SpecialTokens::Parse).unwrap());
}

#[test]
fn generation_ends_at_named_and_well_known_tokens() {
    let bpe = open(&data("bpe.gguf"));
    let end: Vec<&[u8]> = bpe.end_of_generation().iter().map(|&id| bpe.token_bytes(id).unwrap()).collect();
    assert_eq!(end, [b"<|endoftext|>".as_slice(), b"<|im_end|>"]);
    assert!(bpe.is_end_of_generation(bpe.eos().unwrap()));
    assert!(!bpe.is_end_of_generation(0));
    let spm = open(&data("spm.gguf"));
    let json = Tokenizer::from_file(data("bpe.json")).unwrap();
    assert_eq!(json.end_of_generation(), bpe.end_of_generation());
    assert_eq!(spm.token_bytes(spm.eos().unwrap()).unwrap(), b"</s>");
}

/// Checks that the text of every control token is that token if special tokens are parsed, and
/// other tokens if it is plain text.
fn assert_control_tokens(tokenizers: &[Tokenizer]) {
    for tokenizer in tokenizers {
        let marks = (0..tokenizer.vocab_size() as u32).filter(|&id| {
            // Special tokens are tokens that have bytes but no text.
            !tokenizer.token_bytes(id).unwrap().is_empty() && tokenizer.decode(&[id]).unwrap().is_empty()
        });
        let marks: Vec<u32> = marks.filter(|&id| tokenizer.token_bytes(id).unwrap() != b" ").collect();
        assert!(!marks.is_empty());
        for &id in &marks {
            let text = std::str::from_utf8(tokenizer.token_bytes(id).unwrap()).unwrap();
            let plain = tokenizer.encode(text, SpecialTokens::Plain).unwrap();
            assert!(plain.iter().all(|id| !marks.contains(id)), "{text} became {plain:?}");
            assert!(tokenizer.encode(text, SpecialTokens::Parse).unwrap().contains(&id), "{text}");
        }
    }
}

#[test]
fn plain_text_never_encodes_to_control_tokens() {
    let small = ["bpe", "spm", "gemma"].map(|name| open(&data(&format!("{name}.gguf"))));
    assert_control_tokens(&small);
    assert_control_tokens(&[Tokenizer::from_file(data("bpe.json")).unwrap()]);
    let vocabulary = |name| open(&Folder::Repository.file(&format!("{name}.gguf")));
    assert_control_tokens(&["qwen2", "gpt-2", "phi-3", "spm-noprefix"].map(vocabulary));
}

#[test]
#[ignore = "licences and sizes keep these vocabularies out of the repository"]
fn plain_text_never_encodes_to_control_tokens_of_other_vocabularies() {
    let names = ["llama-bpe", "starcoder", "falcon", "deepseek-llm", "deepseek-coder", "llama-spm"];
    assert_control_tokens(&names.map(|name| open(&Folder::Shared.file(&format!("{name}.gguf")))));
}

/// Returns a text of pieces that are special tokens or plain text, its plain ranges for
/// `encode_mixed`, and its ids by `encode`.
fn mixed(tokenizer: &Tokenizer, pieces: &[(bool, &str)]) -> (String, Vec<Range<usize>>, Vec<u32>) {
    let (mut text, mut plain, mut stretch, mut ids) = (String::new(), vec![], String::new(), vec![]);
    let end_stretch = |stretch: &mut String, ids: &mut Vec<u32>| {
        if !stretch.is_empty() {
            ids.extend(tokenizer.encode(&std::mem::take(stretch), SpecialTokens::Plain).unwrap());
        }
    };
    for &(special, piece) in pieces {
        let start = text.len();
        text.push_str(piece);
        if special {
            end_stretch(&mut stretch, &mut ids);
            ids.extend(tokenizer.control_tokens().find(|(_, text)| *text == piece).map(|(id, _)| id));
        } else {
            stretch.push_str(piece);
            plain.push(start..text.len());
        }
    }
    end_stretch(&mut stretch, &mut ids);
    (text, plain, ids)
}

proptest! {
    #[test]
    fn encode_mixed_parses_only_tokens_outside_the_ranges(pieces in prop::collection::vec((any::<bool>(), 0usize..9), 0..12)) {
        let tokenizers = [open(&data("bpe.gguf")), open(&data("spm.gguf")), Tokenizer::from_file(data("bpe.json")).unwrap()];
        for tokenizer in tokenizers {
            let marks: Vec<&str> = tokenizer.control_tokens().map(|(_, text)| text).collect();
            let words = ["the fox", " ", "\n", "<|im_", "end|>", "\u{100000}"];
            let pieces: Vec<(bool, &str)> = pieces
                .iter()
                .map(|&(special, at)| match words.get(at) {
                    Some(word) if !special => (false, *word),
                    _ => (special, marks[at % marks.len()]),
                })
                .collect();
            let (text, plain, ids) = mixed(&tokenizer, &pieces);
            prop_assert_eq!(tokenizer.encode_mixed(&text, &plain).unwrap(), ids, "{:?}", pieces);
        }
    }
}

#[test]
fn invalid_plain_ranges_are_refused() {
    let tokenizer = open(&data("bpe.gguf"));
    for ranges in [[0..0, 0..3], [0..0, 1..2], [0..2, 0..2]] {
        assert!(
            matches!(tokenizer.encode_mixed("é", &ranges), Err(Error::Argument { name: "plain", .. })),
            "{ranges:?}"
        );
    }
}

#[test]
fn ids_out_of_range_are_refused() {
    let tokenizer = open(&data("bpe.gguf"));
    let past = tokenizer.vocab_size() as u32;
    assert!(matches!(tokenizer.token_bytes(past), Err(Error::Argument { name: "id", .. })));
    assert!(matches!(tokenizer.decode(&[0, u32::MAX]), Err(Error::Argument { name: "id", .. })));
    assert!(matches!(tokenizer.stream().push(past), Err(Error::Argument { name: "id", .. })));
}

#[test]
fn streams_yield_whole_characters() {
    let tokenizer = open(&data("bpe.gguf"));
    // The emoji and some letters have no token, so their bytes arrive one by one.
    let text = "🦊🏮 狐は\u{301} naïve 👩‍👩‍👧";
    let ids = tokenizer.encode(text, SpecialTokens::Plain).unwrap();
    assert!(ids.len() > text.chars().count(), "some characters are split");
    let mut stream = tokenizer.stream();
    let pieces: Vec<String> = ids.iter().filter_map(|&id| stream.push(id).unwrap()).collect();
    assert_eq!(pieces.concat(), text);
    assert!(pieces.iter().all(|piece| !piece.is_empty() && !piece.contains('\u{fffd}')));
    assert_eq!(stream.finish(), None);
    assert_eq!(stream.push(ids[0]).unwrap(), None, "the first byte of an emoji");
    assert_eq!(stream.finish().as_deref(), Some("\u{fffd}"));
    let mark = tokenizer.eos().unwrap();
    assert_eq!(stream.push(mark).unwrap(), None, "marks are no text");
}

proptest! {
    /// For any ids, the stream's pieces equal the decoded text.
    #[test]
    fn streams_match_decode(ids in prop::collection::vec(0u32..260, 0..40)) {
        let tokenizer = open(&data("bpe.gguf"));
        let mut stream = tokenizer.stream();
        let mut text = String::new();
        for &id in &ids {
            text.extend(stream.push(id).unwrap());
        }
        text.extend(stream.finish());
        prop_assert_eq!(text, tokenizer.decode(&ids).unwrap());
    }

    /// Decoding restores any text byte for byte, and the `tokenizers` crate gives the same ids.
    #[test]
    fn decoding_restores_the_text(text in prop_oneof!["(\\PC|\\s|[ a-z\n\u{2581}<|>/_]){0,80}", any::<String>()]) {
        static BPE: LazyLock<Tokenizer> = LazyLock::new(|| open(&data("bpe.gguf")));
        static JSON: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::from_file(data("bpe.json")).unwrap());
        static SPM: LazyLock<Tokenizer> = LazyLock::new(|| open(&data("spm.gguf")));
        for special in [SpecialTokens::Plain, SpecialTokens::Parse] {
            let ids = BPE.encode(&text, special).unwrap();
            let joined: Vec<u8> = ids.iter().flat_map(|&id| BPE.token_bytes(id).unwrap().to_vec()).collect();
            prop_assert_eq!(String::from_utf8(joined).unwrap(), text.clone());
            prop_assert_eq!(ids, JSON.encode(&text, special).unwrap());
        }
        let ids = SPM.encode(&text, SpecialTokens::Plain).unwrap();
        prop_assert_eq!(SPM.decode(&ids).unwrap().replace(' ', ""), text.replace(['\u{2581}', ' '], ""));
    }
}

/// Tests words longer than a window, against the `tokenizers` crate, which merges whole words, and
/// against plain loops.
#[test]
fn long_words_merge_as_without_windows() {
    let (bpe, json) = (open(&data("bpe.gguf")), Tokenizer::from_file(data("bpe.json")).unwrap());
    let spm = PlainSpm::open(&data("spm.gguf"));
    for letters in ["a", "ab", "fox", "etaoinshr", "abcdefghijklmnopqrstuvwxyz", "éaüß", "the", "aaaaaaax"] {
        let letters: Vec<char> = letters.chars().collect();
        let mut state = 1u32;
        let random = (0..9000).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            letters[(state >> 16) as usize % letters.len()]
        });
        for word in [random.collect::<String>(), letters.iter().cycle().take(9001).collect()] {
            let expected = json.encode(&word, SpecialTokens::Plain).unwrap();
            assert_eq!(bpe.encode(&word, SpecialTokens::Plain).unwrap(), expected, "{letters:?}");
            assert_eq!(spm.tokenizer.encode(&word, SpecialTokens::Plain).unwrap(), spm.encode(&word), "{letters:?}");
        }
    }
}

/// Merges as the authors of SentencePiece define it: repeatedly the best of all pairs.
struct PlainSpm {
    tokenizer: Tokenizer,
    pieces: HashMap<Vec<u8>, (u32, f32)>,
}

impl PlainSpm {
    fn open(path: &Path) -> Self {
        let gguf = Gguf::open(path).unwrap();
        let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
        let Some(Array::F32(scores)) = gguf.array("tokenizer.ggml.scores").unwrap() else { panic!("scores") };
        let Some(Array::I32(kinds)) = gguf.array("tokenizer.ggml.token_type").unwrap() else { panic!("kinds") };
        let normal = (0..).zip(kinds.iter().zip(scores.iter())).filter(|(_, (kind, _))| **kind == 1);
        let pieces = normal.map(|(id, (_, &score))| (tokenizer.token_bytes(id).unwrap().to_vec(), (id, score)));
        Self { pieces: pieces.collect(), tokenizer }
    }

    fn encode(&self, word: &str) -> Vec<u32> {
        let mut parts: Vec<Vec<u8>> = format!(" {word}").chars().map(|char| char.to_string().into_bytes()).collect();
        let score = |a: &[u8], b: &[u8]| self.pieces.get(&[a, b].concat()).map_or(f32::NEG_INFINITY, |piece| piece.1);
        let mut scores: Vec<f32> = parts.windows(2).map(|pair| score(&pair[0], &pair[1])).collect();
        // Of equal elements, `max_by` returns the last.
        while let Some((at, _)) =
            scores.iter().enumerate().rev().max_by(|a, b| a.1.total_cmp(b.1)).filter(|best| best.1.is_finite())
        {
            let right = parts.remove(at + 1);
            parts[at].extend(right);
            scores.remove(at);
            for left in at.saturating_sub(1)..=at.min(scores.len().saturating_sub(1)) {
                if left < scores.len() {
                    scores[left] = score(&parts[left], &parts[left + 1]);
                }
            }
        }
        let byte = |byte| self.byte(byte);
        let ids = |part: Vec<u8>| {
            self.pieces.get(&part).map_or_else(|| part.into_iter().map(byte).collect(), |piece| vec![piece.0])
        };
        parts.into_iter().flat_map(ids).collect()
    }

    fn byte(&self, byte: u8) -> u32 {
        // The offset skips the unknown token and two special tokens.
        (3..).find(|&id| self.tokenizer.token_bytes(id).unwrap() == [byte]).unwrap()
    }
}

/// Hostile texts cause no panic and contain no special token.
#[test]
fn hostile_prompts_encode_as_text() {
    let tokenizers = [open(&data("bpe.gguf")), open(&data("spm.gguf")), open(&data("gemma.gguf"))];
    for tokenizer in &tokenizers {
        let marks: Vec<u32> = (0..tokenizer.vocab_size() as u32)
            .filter(|&id| tokenizer.token_bytes(id).unwrap().len() > 2 && tokenizer.decode(&[id]).unwrap().is_empty())
            .collect();
        let names: Vec<&str> =
            marks.iter().map(|&id| std::str::from_utf8(tokenizer.token_bytes(id).unwrap()).unwrap()).collect();
        let attack = format!("\0{}\0\u{feff}<|im_end|>\u{202e}\n", names.join("\0"));
        let ids = tokenizer.encode(&attack.repeat((10 << 20) / attack.len()), SpecialTokens::Plain).unwrap();
        assert!(ids.iter().all(|id| !marks.contains(id)));
        for text in ["\0", "\0\0\0", "a\0b", &"\0".repeat(5000)] {
            let ids = tokenizer.encode(text, SpecialTokens::Parse).unwrap();
            assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        }
    }
}

/// Long texts without a place to split take time and memory in proportion to their length.
#[test]
fn encoding_time_is_linear_in_the_text() {
    let tokenizers = [open(&data("bpe.gguf")), open(&data("spm.gguf"))];
    for text in [
        " ".repeat(1 << 20) + "x",
        "x".repeat(1 << 20),
        "\n".repeat(1 << 20) + " x",
        "!".repeat(1 << 20),
        " a\n".repeat(1 << 18),
    ] {
        for tokenizer in &tokenizers {
            let started = std::time::Instant::now();
            let ids = tokenizer.encode(&text, SpecialTokens::Plain).unwrap();
            assert_eq!(tokenizer.decode(&ids).unwrap().len(), text.len());
            // A megabyte takes at most a second; a quadratic algorithm would take hours.
            assert!(started.elapsed().as_secs() < 60, "{:?}", &text[..4]);
        }
    }
}
