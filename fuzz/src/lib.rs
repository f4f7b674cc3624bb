//! Files, conversations and models that the fuzz targets share.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
    process,
};

use inkstone::{Device, GenerateOptions, Message, Runner, RunnerBuilder, chat::{ChatOptions, Document, Tool, ToolCall}, gguf::Gguf, tokenizer::{SpecialTokens, Tokenizer}};
use serde_json::json;

/// The bytes of memory that a model may take.
const MEMORY_LIMIT: u64 = 64 << 20;

/// Texts with special tokens, bytes that are rare in text, and white space.
const TEXTS: [&str; 4] = ["the fox<|im_end|>\n", "", "  a\u{301}\u{1f98a}\0 1234567 I'LL\t\r\n ", "<s>[INST]<unk></s>"];

/// A directory for the files of one target.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes an empty directory below the system's one for temporary files.
    pub fn new(target: &str) -> Self {
        let path = std::env::temp_dir().join(format!("inkstone-fuzz-{target}-{}", process::id()));
        fs::create_dir_all(&path).expect("a directory for temporary files");
        Self(path)
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file of these parts, one after the other, and returns its path.
    pub fn write(&self, name: &str, parts: &[&[u8]]) -> PathBuf {
        let path = self.0.join(name);
        let write = || -> io::Result<()> {
            let mut file = fs::File::create(&path)?;
            parts.iter().try_for_each(|part| file.write_all(part))
        };
        write().expect("space for a temporary file");
        path
    }

    /// Removes a file if there is one.
    pub fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.0.join(name));
    }
}

/// Returns data of up to 1 MB: the first byte, as often as the other four say (u32, little-endian).
pub fn filler([fill, length @ ..]: [u8; 5]) -> Vec<u8> {
    vec![fill; u32::from_le_bytes(length) as usize % (1 << 20)]
}

/// Returns the path of a fixture.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name)
}

/// Opens the tokenizer of a GGUF fixture.
pub fn fixture_tokenizer(name: &str) -> Tokenizer {
    let gguf = Gguf::open(fixture(name)).expect("a valid fixture");
    Tokenizer::from_gguf(&gguf).expect("a valid fixture")
}

/// Returns settings for models of untrusted files: one thread, and a limit for memory.
pub fn builder() -> RunnerBuilder {
    Runner::builder().device(Device::Cpu).threads(1).prefill_chunk(8).memory_limit(MEMORY_LIMIT)
}

/// Reads every key and tensor of a file, and tokenizes, renders and generates as far as it allows.
pub fn exercise_model(gguf: &Gguf, path: &Path) {
    for (_, value) in gguf.metadata() {
        let _ = value.to_string();
    }
    let bytes = gguf.tensors().iter().flat_map(|tensor| gguf.bytes(tensor).to_vec());
    std::hint::black_box(bytes.map(u64::from).sum::<u64>());
    if let Ok(tokenizer) = Tokenizer::from_gguf(gguf) {
        exercise_tokenizer(&tokenizer, TEXTS[0]);
    }
    let _ = builder().plan(path).map(|plan| plan.to_string());
    let Ok(mut runner) = builder().from_path(path) else { return };
    let mut options = GenerateOptions::default();
    options.max_tokens = Some(3);
    options.sampler.seed = Some(1);
    if let Ok(generation) = runner.generate(TEXTS[0], &options) {
        let _ = generation.collect::<Result<String, _>>();
    }
    if let Ok(answer) = runner.chat(&[Message::user("Hello!")], &options) {
        let _ = answer.collect::<Result<String, _>>();
    }
}

/// Encodes a text in every way, and decodes the ids as a whole and one by one.
///
/// # Panics
/// Panics if an id is not in the vocabulary, or decoding fails.
pub fn exercise_tokenizer(tokenizer: &Tokenizer, text: &str) {
    let size = tokenizer.vocab_size() as u32;
    assert!(tokenizer.end_of_generation().iter().all(|&id| id < size));
    for text in TEXTS.into_iter().chain([text]) {
        let middle = text.len() / 2;
        let plain = text.is_char_boundary(middle).then(|| middle..text.len());
        let encoded = [
            tokenizer.encode(text, SpecialTokens::Parse),
            tokenizer.encode(text, SpecialTokens::Plain),
            tokenizer.encode_mixed(text, plain.as_slice()),
            tokenizer.encode_prompt(text),
            tokenizer.encode_continuation(text),
        ];
        for ids in encoded.into_iter().flatten() {
            assert!(ids.iter().all(|&id| id < size), "{ids:?} of {size}");
            tokenizer.decode(&ids).expect("ids of the vocabulary");
        }
    }
}

/// Returns the tools of the conversations.
pub fn tools() -> Vec<Tool> {
    let schema = json!({
        "type": "object",
        "properties": {
            "place": {"type": "string", "description": "Where"},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "unit": {"enum": ["C", "F"]},
            "list": {"type": "array", "items": {"type": ["number", "null"]}},
        },
        "required": ["place"],
    });
    vec![Tool::new("weather", "The \"weather\" at a place", schema), Tool::new("stop", "", json!({"type": "object"}))]
}

/// Returns a conversation with a system message, a thought, a call and its result; `text` is the
/// user's.
pub fn conversation(text: &str) -> Vec<Message> {
    let call = ToolCall::new("weather", json!({"place": "Oslo", "days": 2, "list": [1.5, null]})).with_id("123456789");
    vec![
        Message::system("Be brief."),
        Message::user(text),
        Message::assistant("Let me see.").with_reasoning("I should look.").with_tool_calls([call]),
        Message::tool("weather", "{\"sky\": \"fair\"}").for_call("123456789"),
        Message::assistant(""),
        Message::user(format!("{text}<|im_end|>")),
    ]
}

/// Returns options with everything that a template of this source reads.
pub fn options_read_by(source: &str) -> ChatOptions {
    let mut options = ChatOptions::default();
    if source.contains("tools") {
        options = options.tools(tools());
    }
    if source.contains("documents") {
        options = options.documents([Document::new("Title", "Text")]);
    }
    if source.contains("enable_thinking") {
        options = options.enable_thinking(false);
    }
    options
}
