//! Embeddings, logits and greedy ids of models with images, as llama.cpp and transformers compute
//! them.
//!
//! The models are too large for the repository. Their writer and the expected results lie in
//! `../shared/vision`; this writes the models to `target/vision`, and then the test runs:
//!
//! ```sh
//! for c in ../shared/vision/configs/[giq]*_[ab].json; do n=target/vision/$(basename $c .json)
//!     python3 ../shared/vision/make_tiny_vision.py $c $n.mmproj.gguf --text $n.text.gguf; done
//! cargo test --test it -- --ignored images_give
//! ```

use std::{
    fs,
    path::{Path, PathBuf},
};

use inkstone::{
    CacheType, Device, Image, Runner,
    gguf::Gguf,
    image::Alpha,
    internals::{
        backend::{Backend, cpu::Cpu},
        image::Convention,
        models::vision::VisionModel,
        vision::{Picture, VisionEncoder},
        weights::Weights,
    },
};

use crate::support::drive;

/// The inputs and the expected results of one case.
struct Case {
    name: String,
    folder: PathBuf,
    info: serde_json::Value,
}

impl Case {
    fn all() -> Vec<Self> {
        let folders = fs::read_dir(shared("expected")).expect("../shared/vision has expected results");
        let mut folders: Vec<_> = folders.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
        folders.sort();
        let case = |folder: PathBuf| {
            let info = serde_json::from_slice(&fs::read(folder.join("info.json")).unwrap()).unwrap();
            Self { name: folder.file_name().unwrap().to_string_lossy().into(), folder, info }
        };
        folders.into_iter().map(case).collect()
    }

    fn model(&self, part: &str) -> PathBuf {
        let config = self.info["config"].as_str().unwrap();
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("target/vision/{config}.{part}.gguf"))
    }

    fn images(&self) -> Vec<Image> {
        let names = self.info["images"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
        names.map(|name| Image::options().alpha(Alpha::Drop).open(shared("images").join(name)).unwrap()).collect()
    }

    /// What each run of the encoder sees, after resizing.
    fn pictures(&self) -> Vec<Image> {
        let paths = (0..).map(|number| self.folder.join(format!("run.{number}.png")));
        paths.take_while(|path| path.exists()).map(|path| Image::open(path).unwrap()).collect()
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        let bytes = fs::read(self.folder.join(name)).unwrap();
        bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    }

    /// The most that results may differ from the reference with llama.cpp's deviations. It keeps
    /// the error function in InternVL's activations, where llama.cpp has the approximation by tanh.
    fn tolerance(&self) -> f64 {
        if self.name.starts_with("internvl") { 1e-6 } else { 1e-10 }
    }
}

fn shared(part: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/vision").join(part)
}

fn nmse(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let mean = expected.iter().copied().map(f64::from).sum::<f64>() / expected.len() as f64;
    let variance: f64 = expected.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum();
    let error = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).powi(2);
    found.iter().zip(expected).map(error).sum::<f64>() / variance
}

fn devices() -> Vec<Device> {
    drive::gpus().iter().map(|gpu| gpu.device().name.parse().unwrap()).chain([Device::Cpu]).collect()
}

#[test]
#[ignore = "needs models that ../shared/vision writes to target/vision: see the head of the file"]
fn images_give_the_results_of_llama_cpp() {
    for case in Case::all() {
        for device in devices() {
            let mut runner = Runner::builder()
                .device(device.clone())
                .cache_type(CacheType::F32)
                .vision(case.model("mmproj"))
                .vision_convention(Convention::LlamaCpp)
                .from_gguf(case.model("text"))
                .unwrap();
            let (images, name) = (case.images(), format!("{} on {device:?}", case.name));
            let error = nmse(&runner.image_embeddings(&images).unwrap(), &case.floats("like.embd.f32"));
            assert!(error < case.tolerance(), "{name}: the embeddings are off by {error:e}");
            let prompt = case.info["prompt"].as_str().unwrap();
            let logits = runner.prefill_images(prompt, &images).unwrap();
            let error = nmse(logits, &case.floats("like.logits.f32"));
            assert!(error < case.tolerance(), "{name}: the logits are off by {error:e}");
            let mut next = largest(logits);
            for (index, expected) in case.info["greedy"].as_array().unwrap().iter().enumerate() {
                assert_eq!(u64::from(next), expected.as_u64().unwrap(), "{name}: greedy id {index}");
                next = largest(runner.decode(next).unwrap());
            }
        }
    }
}

#[test]
#[ignore = "needs models that ../shared/vision writes to target/vision: see the head of the file"]
fn images_give_the_embeddings_of_transformers() {
    for case in Case::all() {
        let gguf = Gguf::open(case.model("mmproj")).unwrap();
        let model = VisionModel::from_gguf(&gguf, &Weights::from_gguf(&gguf), Convention::Transformers).unwrap();
        let mut backends: Vec<Box<dyn Backend>> = drive::gpus();
        backends.push(Box::new(Cpu::new(Some(2)).unwrap()));
        for backend in backends {
            let images = case.pictures();
            let pictures: Vec<_> = images.iter().map(Picture::from).collect();
            let mut encoder = VisionEncoder::new(model.clone(), &*backend, 4096).unwrap();
            let encoded = encoder.encode(&pictures, |_| true).unwrap().unwrap();
            let rows: Vec<_> = encoded.into_iter().flat_map(|picture| picture.rows).collect();
            let error = nmse(&rows, &case.floats("hf.embd.f32"));
            assert!(error < 1e-10, "{} on {}: off by {error:e}", case.name, backend.device().name);
        }
    }
}

/// Images that are in a prompt in chunks, together, and after a truncation.
#[test]
#[ignore = "needs models that ../shared/vision writes to target/vision: see the head of the file"]
fn prompts_with_images_are_computed_alike_in_chunks_and_from_the_cache() {
    for case in Case::all() {
        let load = |chunk: usize| {
            let builder = Runner::builder().device(Device::Cpu).vision(case.model("mmproj")).prefill_chunk(chunk);
            builder.vision_convention(Convention::LlamaCpp).from_gguf(case.model("text")).unwrap()
        };
        let images = case.images();
        let prompt = case.info["prompt"].as_str().unwrap();
        let mut whole = load(512);
        let logits = whole.prefill_images(prompt, &images).unwrap().to_vec();
        let mut chunked = load(5);
        assert!(chunked.prefill_images(prompt, &images).unwrap() == logits, "{} in chunks", case.name);
        // The same again: all but the last token is there.
        let computed = whole.tokens().len();
        assert!(whole.prefill_images(prompt, &images).unwrap() == logits, "{} again", case.name);
        // Another end, and an end within the last image.
        for keep in [computed - 3, computed - 9, 8] {
            whole.truncate(keep).unwrap();
            assert!(whole.prefill_images(prompt, &images).unwrap() == logits, "{} after {keep}", case.name);
        }
    }
}

fn largest(logits: &[f32]) -> u32 {
    (0..logits.len()).fold(0, |best, id| if logits[id] > logits[best] { id } else { best }) as u32
}
