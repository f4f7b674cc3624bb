//! Embeddings, logits and greedy ids of models with images, as llama.cpp computes them with
//! `mmproj` files. `checkpoints` has models of the same kinds; these are of other sizes, have
//! larger images, and some have the forms of old files.
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

use inkstone::{CacheType, Device, Image, Runner, image::Alpha, internals::image::Convention};

use crate::support::{drive, tiny::nmse};

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

fn largest(logits: &[f32]) -> u32 {
    (0..logits.len()).fold(0, |best, id| if logits[id] > logits[best] { id } else { best }) as u32
}
