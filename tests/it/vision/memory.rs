//! The memory and the progress of loading a model with its vision encoder.

use std::sync::{Arc, Mutex};

use inkstone::{Error, GenerateOptions, Image, Message, gguf::Gguf};

use crate::support::{data, on_cpu};

fn bytes_of_tensors(file: &str) -> u64 {
    Gguf::open(data(file)).unwrap().tensors().iter().map(|tensor| tensor.byte_len() as u64).sum()
}

#[test]
fn memory_plans_limits_and_progress_count_the_encoder() {
    let model = data("seer/seer.gguf");
    let blind = on_cpu().without_vision().context_length(512);
    let seeing = on_cpu().vision(data("seer/mmproj-seer.gguf")).context_length(512);
    let [without, with] = [&blind, &seeing].map(|builder| builder.plan(&model).unwrap());

    assert_eq!((without.weights, without.vision_scratch), (bytes_of_tensors("seer/seer.gguf"), 0));
    assert_eq!(with.weights - without.weights, bytes_of_tensors("seer/mmproj-seer.gguf"));
    // The pixels of a step's 4096 patches, of which each has two frames of 16 x 16 x 3.
    assert!(with.vision_scratch >= 4096 * 2 * 16 * 16 * 3 * 4);
    assert_eq!(with.total(), with.weights + with.scratch + with.vision_scratch + with.cache());

    let calls = Arc::new(Mutex::new(vec![]));
    let seen = calls.clone();
    let counted = seeing.clone().on_progress(move |ready, total| {
        seen.lock().unwrap().push((ready, total));
        true
    });
    let mut runner = counted.memory_limit(with.total()).from_gguf(&model).unwrap();
    assert_eq!(*runner.memory(), with);
    let calls = calls.lock().unwrap();
    assert_eq!((calls[0], calls[calls.len() - 1]), ((0, with.weights), (with.weights, with.weights)));
    let image = Image::open(data("seer/held_out/00.png")).unwrap();
    let messages = [Message::user("What is in the picture?").image(image)];
    assert!(!runner.chat(&messages, &GenerateOptions::default()).unwrap().into_text().unwrap().is_empty());

    let error = seeing.memory_limit(with.total() - 1).from_gguf(&model).unwrap_err();
    assert!(matches!(error, Error::Memory { needed, .. } if needed == with.total()), "{error}");
}
