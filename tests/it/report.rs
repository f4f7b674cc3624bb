//! Writes a report of what is checked, and how close it comes, as tables in Markdown: a row for
//! each architecture, and one for each tensor format.
//!
//! `cargo test --features wgpu --test it -- --ignored report` writes it, on the CPU and on every
//! GPU. The other tests check the same within bounds.

use std::{collections::BTreeMap, fs, path::Path};

use inkstone::{
    CacheType, DType, Error, Runner,
    gguf::Gguf,
    internals::{backend::Backend, models::FAMILIES},
};

use crate::{
    backend::ops,
    support::{
        drive,
        gguf_file::{Folder, GgufFile},
        on_cpu,
        tiny::{MODELS, Tiny, nmse},
    },
};

/// Keys that change the computation without changing the shape of a tensor, with the number of the
/// value's type and an unusual value. A family reads a key, or refuses it.
const KEYS: [(&str, u32, [u8; 4]); 8] = [
    ("attention.scale", 6, 0.37f32.to_le_bytes()),
    ("attention.sliding_window", 4, 3u32.to_le_bytes()),
    ("attn_logit_softcapping", 6, 7.5f32.to_le_bytes()),
    ("embedding_scale", 6, 0.37f32.to_le_bytes()),
    ("final_logit_softcapping", 6, 7.5f32.to_le_bytes()),
    ("logit_scale", 6, 0.37f32.to_le_bytes()),
    ("nextn_predict_layers", 4, 1u32.to_le_bytes()),
    ("residual_scale", 6, 0.37f32.to_le_bytes()),
];

#[test]
#[ignore = "writes a report, which takes minutes on a software GPU"]
fn report() {
    let text = format!("{}\n{}", architectures(), formats());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report.md");
    fs::write(&path, &text).unwrap();
    println!("{text}\nwritten to {}", path.display());
}

/// Returns the devices of the report: the CPU with its fastest instruction set, and every GPU.
fn devices() -> Vec<Box<dyn Backend>> {
    drive::cpus().into_iter().take(1).chain(drive::gpus()).collect()
}

/// Returns the head of a table whose last columns are the devices.
fn head(columns: &[&str]) -> String {
    let devices = devices();
    let names = devices.iter().map(|device| format!("{} {}", device.device().name, device.device().details));
    let all: Vec<_> = columns.iter().map(|column| (*column).to_owned()).chain(names).collect();
    format!("| {} |\n|{}\n", all.join(" | "), "---|".repeat(all.len()))
}

/// Returns a table of the largest errors of the tiny models of each architecture, as shares of the
/// variance of logits.
fn architectures() -> String {
    let mut tiny: BTreeMap<String, Vec<Tiny>> = BTreeMap::new();
    for model in MODELS {
        tiny.entry(Gguf::open(model.path()).unwrap().architecture().unwrap().to_owned()).or_default().push(model);
    }
    let mut table = head(&["architecture", "models", "tiny models", "refused keys", "from transformers"]);
    for family in FAMILIES {
        let models = tiny.get(family.architecture).map(Vec::as_slice).unwrap_or_default();
        let names: Vec<_> = models.iter().map(|model| model.0).collect();
        let refused = models.first().map(|model| refused_keys(*model)).unwrap_or_default();
        let transformers = largest(models, from_transformers);
        let mut cells = vec![family.architecture.into(), family.models.into(), names.join(", "), refused, transformers];
        for device in devices() {
            cells.push(largest(models, |model| Some(from_llama_cpp(model, &*device))));
        }
        table += &format!("| {} |\n", cells.join(" | "));
    }
    table
}

fn largest(models: &[Tiny], error: impl Fn(Tiny) -> Option<f64>) -> String {
    models.iter().filter_map(|model| error(*model)).reduce(f64::max).map_or("-".into(), |error| format!("{error:.0e}"))
}

fn prompt_logits(runner: &mut Runner, tiny: Tiny) -> Vec<f32> {
    runner.predict_logits(&tiny.expected().prompt).unwrap().to_vec()
}

/// Returns the distance of a device's logits from llama.cpp's.
fn from_llama_cpp(tiny: Tiny, device: &dyn Backend) -> f64 {
    let builder = match device.device().name.as_str() {
        "CPU" => on_cpu(),
        name => Runner::builder().device(name.parse().unwrap()),
    };
    let mut runner = builder.cache_type(CacheType::F32).from_gguf(tiny.path()).unwrap();
    nmse(&prompt_logits(&mut runner, tiny), &tiny.expected().prompt_logits)
}

/// Returns the distance of the CPU's logits from those of transformers, if it has the model.
fn from_transformers(tiny: Tiny) -> Option<f64> {
    let [expected, _] = tiny.expected().transformers?;
    let mut runner = on_cpu().cache_type(CacheType::F32).from_gguf(tiny.path()).unwrap();
    Some(nmse(&prompt_logits(&mut runner, tiny), &expected))
}

/// Returns those of [`KEYS`] that a model's file must not have.
fn refused_keys(tiny: Tiny) -> String {
    let folder = Folder::new();
    let gguf = Gguf::open(tiny.path()).unwrap();
    let is_refused = |(key, number, value): &(&str, u32, [u8; 4])| {
        let full = format!("{}.{key}", gguf.architecture().unwrap());
        let mut file = GgufFile::of(&gguf);
        file.keys.retain(|(known, ..)| known != full.as_bytes());
        let verdict = Runner::builder().check(folder.write("key.gguf", file.key(&full, *number, value).bytes()));
        let is_named = |error: &Error| matches!(error, Error::Metadata { key, .. } if *key == full);
        verdict.obstacles.iter().any(|obstacle| is_named(&obstacle.error))
    };
    let refused = KEYS.iter().filter(|key| is_refused(key)).map(|(key, ..)| format!("`{key}`"));
    refused.collect::<Vec<_>>().join(", ")
}

/// Returns a table of the errors of products of normal numbers with matrices of each format, from
/// loops in f64 over the decoded weights, as shares of their squares.
fn formats() -> String {
    let mut table = head(&["format", "bytes of a block", "weights of a block"]);
    for &dtype in DType::ALL {
        let case = ops::normal_product(dtype);
        let mut cells =
            vec![dtype.name().to_owned(), dtype.block_bytes().to_string(), dtype.block_weights().to_string()];
        cells.extend(devices().iter().map(|device| format!("{:.0e}", case.error_on(&**device))));
        table += &format!("| {} |\n", cells.join(" | "));
    }
    table
}
