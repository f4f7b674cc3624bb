//! Answers about pictures of the repository's model that sees, which was never trained on them.

use std::fs;

use inkstone::{Device, Image, LmRunner, Runner};

use crate::support::{data, drive};

/// Returns the prompt of a question about one picture, as the model's chat template writes it.
fn prompt(question: &str) -> String {
    format!("<|im_start|>user\n<__media__>{question}<|im_end|>\n<|im_start|>assistant\n")
}

#[test]
fn held_out_pictures_are_described_as_llama_cpp_and_transformers_do() {
    let expected: serde_json::Value = serde_json::from_slice(&fs::read(data("seer/expected.json")).unwrap()).unwrap();
    let pictures = expected["pictures"].as_array().unwrap();
    assert_eq!(pictures.len(), 50);
    let gpus = drive::gpus().into_iter().map(|gpu| gpu.device().name.parse().unwrap());
    for device in gpus.chain([Device::Cpu]) {
        let builder = Runner::builder().device(device).vision(data("seer/mmproj-seer.gguf"));
        let mut runner = builder.from_gguf(data("seer/seer.gguf")).unwrap();
        for picture in pictures {
            let file = picture["file"].as_str().unwrap();
            let image = Image::open(data("seer/held_out").join(file)).unwrap();
            let (rgb, width, height) = (image.rgb(), image.width(), image.height());
            let prompt = prompt("What is in the picture?");
            let ids = runner.generate_multimodal(&prompt, rgb, width, height, None, 64, &mut |_| true).unwrap();
            let text = runner.tokenizer().decode(&ids).unwrap();
            assert_eq!(text, picture["text"].as_str().unwrap(), "{file} on {}", runner.device().name);
        }
    }
}
