//! Embeddings, logits and greedy ids of prompts with two images, as transformers computes them in
//! double precision, and with llama.cpp's conventions as llama.cpp does.

use inkstone::{
    Runner,
    gguf::{Array, Gguf, Value},
    internals::{image::Convention, models},
};
use serde_json::json;

use super::{Case, MODELS, builder, largest, nmse};
use crate::support::{
    drive,
    gguf_file::{Folder, GgufFile, array, string},
};

/// The largest error of a computation in single precision: its rounding is about 1e-14 for each of
/// some hundred steps.
const SINGLE: f64 = 1e-10;

/// The largest error of a GPU, which may round products to half precision.
const GPU: f64 = 1e-3;

/// The largest errors of llama.cpp, of rows and logits: it rounds patches and their kernels to f16,
/// and has a table of the activation's values in f16.
const LLAMA_CPP: [f64; 2] = [1e-6, 1e-5];

/// Compares embeddings and logits with the results of `who`, and returns the logits.
fn assert_logits(case: &Case, runner: &mut Runner, who: &str, [rows, logits]: [f64; 2]) -> Vec<f32> {
    let name = format!("{} as {who} on {}", case.folder.display(), runner.device().name);
    let images = case.images();
    let error = nmse(&runner.image_embeddings(&images).unwrap(), &case.floats(&format!("{who}.embd.f32")));
    assert!(error < rows, "{name}: the embeddings are off by {error:e}");
    let found = runner.prefill_images(case.prompt(), &images).unwrap();
    let error = nmse(found, &case.floats(&format!("{who}.logits.f32")));
    assert!(error < logits, "{name}: the logits are off by {error:e}");
    found.to_vec()
}

/// Compares embeddings, logits and greedy ids with the results of `who`.
fn assert_results(case: &Case, runner: &mut Runner, who: &str, tolerances: [f64; 2]) {
    let mut next = largest(&assert_logits(case, runner, who, tolerances));
    for (index, expected) in case.greedy(who).into_iter().enumerate() {
        assert_eq!(next, expected, "{} as {who}: greedy id {index}", case.folder.display());
        next = largest(runner.decode(next).unwrap());
    }
}

#[test]
fn directories_give_the_results_of_transformers() {
    for case in MODELS.map(Case::new) {
        let mut runner = builder().from_safetensors(&case.folder).unwrap();
        assert_results(&case, &mut runner, "transformers", [SINGLE; 2]);
        let ids = case.ids();
        assert_eq!(runner.tokens()[..ids.len()], ids, "{}", case.folder.display());
    }
}

#[test]
fn directories_give_the_results_of_llama_cpp() {
    for case in MODELS.map(Case::new) {
        let builder = builder().vision_convention(Convention::LlamaCpp);
        assert_results(&case, &mut builder.from_safetensors(&case.folder).unwrap(), "llama.cpp", LLAMA_CPP);
    }
}

#[test]
fn directories_give_the_results_of_transformers_on_gpus() {
    for gpu in drive::gpus() {
        for case in MODELS.map(Case::new) {
            let builder = builder().device(gpu.device().name.parse().unwrap());
            assert_logits(&case, &mut builder.from_safetensors(&case.folder).unwrap(), "transformers", [GPU; 2]);
        }
    }
}

/// Returns the bytes of a value in a GGUF file, with the number of its type.
fn value(value: &Value) -> (u32, Vec<u8>) {
    match value {
        Value::U32(number) => (4, number.to_le_bytes().into()),
        Value::F32(number) => (6, number.to_le_bytes().into()),
        Value::Bool(flag) => (7, vec![u8::from(*flag)]),
        Value::String(text) => (8, string(text)),
        Value::U64(number) => (10, number.to_le_bytes().into()),
        Value::Array(Array::F32(numbers)) => {
            let elements: Vec<_> = numbers.iter().map(|number| number.to_le_bytes().to_vec()).collect();
            (9, array(6, &elements))
        }
        Value::Array(Array::Bool(flags)) => {
            let elements: Vec<_> = flags.iter().map(|flag| vec![u8::from(*flag)]).collect();
            (9, array(7, &elements))
        }
        other => panic!("{other}"),
    }
}

/// Returns an `mmproj` file with the content of a directory's encoder.
fn mmproj(encoder: &Gguf) -> GgufFile {
    let file = encoder.metadata().fold(GgufFile::new(), |file, (key, content)| {
        let (type_number, bytes) = value(content);
        file.key(key, type_number, bytes)
    });
    encoder.tensors().iter().fold(file, |file, tensor| {
        let dimensions: Vec<_> = tensor.shape.iter().rev().map(|&len| len as u64).collect();
        let number = tensor.dtype.dtype().unwrap().ggml();
        file.tensor(&tensor.name, &dimensions, number, encoder.bytes(tensor))
    })
}

/// An explicit file takes precedence over the encoder in the directory, which here cannot be used.
#[test]
fn encoders_in_files_of_their_own_give_the_same_results() {
    for case in MODELS.map(Case::new) {
        let folder = Folder::new();
        let encoder = models::open_encoder(&case.folder).unwrap().unwrap();
        let path = folder.write("encoder.gguf", mmproj(&encoder).bytes());
        let directory = case.checkpoint().with("config.json", "model_type", json!("llava")).write(&folder);
        let without = builder().from_safetensors(&directory).unwrap();
        assert!(without.image_embeddings(&case.images()).is_err());
        let mut runner = builder().vision(path).from_safetensors(&directory).unwrap();
        assert_results(&case, &mut runner, "transformers", [SINGLE; 2]);
    }
}

/// Published checkpoints of Qwen3-VL with experts store their matrices with rows and columns
/// exchanged.
#[test]
fn experts_are_loaded_in_either_order_of_dimensions() {
    let case = Case::new("qwen3_vl_moe");
    let mut checkpoint = case.checkpoint();
    let experts = checkpoint.tensors.iter_mut().filter(|tensor| tensor.name.contains(".experts."));
    let mut count = 0;
    for tensor in experts {
        let [experts, rows, columns] = tensor.shape[..] else { panic!("{:?}", tensor.shape) };
        let place = |expert: usize, row: usize, column: usize| 2 * ((expert * rows + row) * columns + column);
        let places = (0..experts).flat_map(|expert| {
            (0..columns).flat_map(move |column| (0..rows).map(move |row| place(expert, row, column)))
        });
        tensor.data = places.flat_map(|place| tensor.data[place..place + 2].to_vec()).collect();
        tensor.shape = vec![experts, columns, rows];
        count += 1;
    }
    assert_eq!(count, 4);
    let folder = Folder::new();
    let mut runner = builder().from_safetensors(checkpoint.write(&folder)).unwrap();
    assert_results(&case, &mut runner, "transformers", [SINGLE; 2]);
}

/// Published checkpoints of Qwen2-VL and Qwen2.5-VL have the settings of the text model beside the
/// object of the encoder's.
#[test]
fn flat_configs_are_loaded() {
    for case in ["qwen2_vl", "qwen2_5_vl"].map(Case::new) {
        let checkpoint = case.checkpoint();
        let mut config = checkpoint.json("config.json");
        let mut text = config.remove("text_config").unwrap().as_object().unwrap().clone();
        let rope = text.remove("rope_parameters").unwrap();
        text.remove("model_type");
        config.extend(text);
        config.insert("rope_theta".into(), rope["rope_theta"].clone());
        config.insert("rope_scaling".into(), json!({ "type": "mrope", "mrope_section": rope["mrope_section"] }));
        let folder = Folder::new();
        let directory = checkpoint.with_file("config.json", json!(config).to_string()).write(&folder);
        assert_results(&case, &mut builder().from_safetensors(directory).unwrap(), "transformers", [SINGLE; 2]);
    }
}

/// Each version of transformers has its own prefix for the encoder of Gemma 3.
#[test]
fn prefixes_of_all_versions_are_understood() {
    let case = Case::new("gemma3");
    for prefix in ["vision_tower.vision_model.", "model.vision_tower.vision_model.", "model.vision_tower."] {
        let mut checkpoint = case.checkpoint();
        for tensor in &mut checkpoint.tensors {
            if let Some(rest) = tensor.name.strip_prefix("vision_tower.") {
                tensor.name = format!("{prefix}{rest}");
            }
        }
        let folder = Folder::new();
        let directory = checkpoint.write(&folder);
        assert_results(&case, &mut builder().from_safetensors(directory).unwrap(), "transformers", [SINGLE; 2]);
    }
}
