//! Builds of the crate with fewer features: what is left works, and a model that needs more is told
//! which feature.
//!
//! `cargo test --no-default-features --features cpu --test features` runs the build with the least.

#[cfg(not(feature = "tokenizers"))]
#[allow(dead_code, reason = "these tests write no tensors")]
#[path = "it/support/gguf_file.rs"]
mod gguf_file;

use std::{fs, path::PathBuf};

use inkstone::{CacheType, GenerateOptions, Image, LmRunner, Runner, RunnerBuilder, SamplerOptions};

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn builder() -> RunnerBuilder {
    Runner::builder().threads(1).cache_type(CacheType::F32)
}

fn storyteller() -> Runner {
    builder().from_path(data("storyteller/storyteller.gguf")).unwrap()
}

/// A prompt of the oracle's, its ids, and how llama.cpp goes on from it.
fn expected() -> (String, Vec<u32>, Vec<u32>) {
    let text = fs::read_to_string(data("storyteller/expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    let case = &expected["generate"][0];
    let ids = |key: &str| case[key].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
    (case["prompt"].as_str().unwrap().to_owned(), ids("prompt_ids"), ids("ids"))
}

/// The tokens that are compared: at the next one the two best are nearly equal, and rounding
/// decides.
const COMPARED: usize = 5;

#[test]
fn a_gguf_file_tells_llama_cpps_story() {
    let mut runner = storyteller();
    let (prompt, prompt_ids, ids) = expected();
    let greedy = |max_tokens| GenerateOptions {
        sampler: SamplerOptions::greedy(),
        max_tokens: Some(max_tokens),
        ..Default::default()
    };
    let mut generation = runner.generate(&prompt, &greedy(COMPARED)).unwrap();
    assert_eq!(generation.prompt(), prompt_ids);
    let text: String = generation.by_ref().collect::<inkstone::Result<_>>().unwrap();
    assert_eq!(text, runner.tokenizer().decode(&ids[..COMPARED]).unwrap());

    let model: &mut dyn LmRunner = &mut runner;
    assert_eq!(model.generate(&prompt_ids, COMPARED, &mut |_| true).unwrap(), ids[..COMPARED]);
}

#[test]
fn texts_are_sampled_and_scored() {
    let mut runner = storyteller();
    let sampler = SamplerOptions { seed: Some(7), ..Default::default() };
    let options = GenerateOptions { sampler, max_tokens: Some(12), ..Default::default() };
    let mut sample = || -> String {
        let pieces = runner.generate("Once upon a time", &options).unwrap();
        pieces.collect::<inkstone::Result<_>>().unwrap()
    };
    assert_eq!(sample(), sample());
    let mut score = |text: &str| -> f32 {
        let tokens = runner.score("Once upon a time there was a", text, 0).unwrap();
        tokens.iter().map(|token| token.token.logprob).sum()
    };
    assert!(score(" fox") > score(" logarithm"));
}

#[test]
fn images_are_made_of_pixels() {
    let image = Image::from_rgb([9; 12], 2, 2).unwrap();
    assert_eq!((image.width(), image.height(), image.rgb()), (2, 2, [9; 12].as_slice()));
}

#[cfg(not(feature = "safetensors"))]
#[test]
fn a_directory_of_safetensors_names_its_feature() {
    let directory = data("checkpoints/qwen3");
    let message = builder().from_path(&directory).unwrap_err().to_string();
    let what = "is a directory of safetensors, which needs the feature `safetensors` of inkstone: \
                enable it in the program's Cargo.toml";
    assert_eq!(message, format!("{}: {what}", directory.display()));
    assert!(matches!(
        inkstone::internals::models::open(&directory),
        Err(inkstone::Error::MissingFeature { feature: "safetensors", .. })
    ));
}

#[cfg(not(feature = "tokenizers"))]
#[test]
fn hugging_faces_vocabularies_name_their_feature() {
    use inkstone::{Error, gguf::Gguf, tokenizer::Tokenizer};

    let folder = gguf_file::Folder::new();
    let file = gguf_file::GgufFile::new().string("tokenizer.huggingface.json", "{}");
    let whole = folder.write("whole.gguf", file.bytes());
    for (path, key) in [(data("tokenizer/bert.gguf"), "tokenizer.ggml.model"), (whole, "tokenizer.huggingface.json")] {
        let error = Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).unwrap_err();
        assert!(matches!(error, Error::MissingFeature { feature: "tokenizers", .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains(&*path.to_string_lossy()) && message.contains(key), "{message}");
    }
}

#[cfg(not(feature = "tokenizers"))]
#[test]
fn a_file_without_a_vocabulary_is_no_matter_of_features() {
    use inkstone::{gguf::Gguf, tokenizer::Tokenizer};

    let folder = gguf_file::Folder::new();
    let path = folder.write("none.gguf", gguf_file::GgufFile::new().bytes());
    let message = Tokenizer::from_gguf(&Gguf::open(path).unwrap()).unwrap_err().to_string();
    assert_eq!(message, "metadata key `tokenizer.ggml.model`: is missing: this file holds no tokenizer");
}
