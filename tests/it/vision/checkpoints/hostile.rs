//! Mutated directories with encoders: any files are an error, or an encoder that runs.

use inkstone::{
    Image,
    internals::{
        image::Convention,
        models::{self, vision::VisionModel},
        vision::{ImagePictures, Picture, VisionEncoder},
        weights::Weights,
    },
};
use proptest::prelude::*;
use serde_json::Value;

use super::{Case, MODELS};
use crate::support::{
    checkpoint::{Checkpoint, file, setting},
    drive,
    gguf_file::Folder,
};

/// The largest picture that is encoded here, in pixels.
const MAX_PIXELS: usize = 1 << 16;

/// Opens the encoder and encodes an image. Returns whether both succeed.
fn exercise(files: &[(String, Vec<u8>)]) -> bool {
    let folder = Folder::new();
    for (name, bytes) in files {
        folder.write(name, bytes);
    }
    let Ok(Some(gguf)) = models::open_encoder(folder.path()) else { return false };
    let Ok(model) = VisionModel::from_gguf(&gguf, &Weights::from_gguf(&gguf), Convention::Transformers) else {
        return false;
    };
    let image = Image::from_rgb(vec![90; 3 * 30 * 20], 30, 20).unwrap();
    let Ok(image) = ImagePictures::new(&model.config, &image) else { return false };
    let pictures: Vec<_> = image.pictures.iter().map(Picture::from).collect();
    if pictures.iter().map(|picture| picture.width * picture.height).sum::<usize>() > MAX_PIXELS {
        return false;
    }
    let encoder = VisionEncoder::new(model, &drive::cpu(1, "portable"), 1 << 12);
    encoder.is_ok_and(|mut encoder| encoder.encode(&pictures, |_| true).is_ok())
}

fn files(checkpoint: &Checkpoint) -> Vec<(String, Vec<u8>)> {
    let mut files = checkpoint.files.clone();
    files.push(("model.safetensors".into(), file(&checkpoint.tensors)));
    files
}

#[test]
fn unmutated_directories_are_valid() {
    for name in MODELS {
        assert!(exercise(&files(&Case::new(name).checkpoint())), "{name}");
    }
}

/// Returns arbitrary values of a setting.
fn value() -> impl Strategy<Value = Value> {
    setting("gelu|silu|gelu_pytorch_tanh|x", "shortest_edge|longest_edge|height|width|rope_theta")
}

/// Returns the files of a directory with settings changed: of the encoder, of the whole model, or
/// of the image processor.
fn changed(name: &str, changes: Vec<(prop::sample::Index, usize, Value)>) -> Vec<(String, Vec<u8>)> {
    let mut checkpoint = Case::new(name).checkpoint();
    let own = |file: &str| file.contains("processor");
    let processor = checkpoint.files.iter().map(|(file, _)| file.clone()).find(|file| own(file)).unwrap();
    for (index, place, value) in changes {
        let (file, within) = match place {
            0 => ("config.json", Some("vision_config")),
            1 => ("config.json", None),
            _ => (processor.as_str(), Some("image_processor")),
        };
        let mut whole = Value::Object(checkpoint.json(file));
        let nested = within.filter(|name| whole[*name].is_object());
        let Some(object) = (match nested {
            Some(name) => whole[name].as_object_mut(),
            None => whole.as_object_mut(),
        }) else {
            continue;
        };
        let keys: Vec<_> = object.keys().cloned().collect();
        if !keys.is_empty() {
            object.insert(index.get(&keys).clone(), value);
        }
        checkpoint = checkpoint.with_file(file, whole.to_string());
    }
    files(&checkpoint)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_settings_are_handled(
        model in 0..MODELS.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..3_usize, value()), 1..4),
    ) {
        exercise(&changed(MODELS[model], changes));
    }

    #[test]
    fn mutated_files_are_handled(
        model in 0..MODELS.len(),
        file in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut files = files(&Case::new(MODELS[model]).checkpoint());
        files.retain(|(name, _)| !name.contains("token") && !name.contains("generation"));
        let (name, bytes) = &mut files[file.index(3)];
        // Of safetensors files, only the header.
        let header = name.ends_with(".safetensors").then(|| 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize);
        let end = header.unwrap_or(bytes.len());
        for (at, byte) in changes {
            bytes[at.index(end)] = b"0123456789{}[],:\"-e._abm"[usize::from(byte) % 24];
        }
        exercise(&files);
    }
}
