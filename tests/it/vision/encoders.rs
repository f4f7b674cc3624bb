//! Encoders with random weights on every backend, against plain loops in f64, and files that are
//! not as they should be.

use inkstone::{
    Image,
    gguf::Gguf,
    internals::{
        image::Convention,
        models::vision::{PositionTable, Projector, VisionModel},
        vision::{ImagePictures, Patches, Picture, VisionEncoder},
        weights::Weights,
    },
};
use proptest::prelude::*;

use crate::support::{
    drive,
    gguf_file::{Folder, GgufFile},
    graphs::Random,
    interpret::{self, Interpreter, Run, Step},
    mmproj::{HIDDEN, PROJECTORS, TEXT, mmproj},
};

fn open(folder: &Folder, file: &GgufFile) -> inkstone::Result<VisionModel> {
    let gguf = Gguf::open(folder.write("mmproj.gguf", file.bytes()))?;
    VisionModel::from_gguf(&gguf, &Weights::from_gguf(&gguf), Convention::Transformers)
}

fn noise(width: usize, height: usize) -> Image {
    let mut random = Random::new(3);
    let bytes: Vec<u8> = (0..3 * width * height).map(|_| random.below(256) as u8).collect();
    Image::from_rgb(bytes, width, height).unwrap()
}

/// The weights that the graph names, in f64.
fn dense(file: &GgufFile, model: &VisionModel) -> interpret::Weights {
    let tensors = file.tensors.iter().map(|tensor| {
        let elements = tensor.data.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        (tensor.name.clone(), elements.collect::<Vec<_>>())
    });
    let mut weights: interpret::Weights = tensors.collect();
    // Gemma 3's matrix lies transposed in the file.
    if model.config.projector == Projector::Gemma3 {
        let (rows, columns) = (HIDDEN, TEXT);
        let stored = weights["mm.input_projection.weight"].clone();
        let transposed = (0..columns).flat_map(|column| (0..rows).map(move |row| (row, column)));
        let transposed = transposed.map(|(row, column)| stored[row * columns + column]).collect();
        weights.insert("mm.input_projection.weight".into(), transposed);
    }
    weights
}

/// The rows of pictures, computed by the interpreter.
fn expected(file: &GgufFile, model: &VisionModel, picture: &Picture<'_>) -> Vec<f64> {
    let patches = Patches::new(&model.config, picture).unwrap();
    let width = 3 * model.config.patch.pow(2);
    let in_block = model.config.block.pow(2);
    let run = Run { rotary: patches.rotary.clone(), spans: patches.windows.clone(), ..Run::new(0, 0, patches.len) };
    let step = Step {
        tokens: vec![0; patches.len],
        runs: vec![run],
        outputs: (0..patches.blocks.len()).map(|block| block * in_block).collect(),
        rows: patches.pixels.chunks_exact(width).map(<[f32]>::to_vec).enumerate().collect(),
        taps: patches.taps.clone(),
    };
    let weights = dense(file, model);
    let rows = Interpreter::new(&weights).run(&model.graph, &step);
    let mut ordered = vec![0.0; rows.data.len()];
    for (row, block) in patches.blocks.iter().enumerate() {
        ordered[block * rows.width..][..rows.width].copy_from_slice(rows.row(row));
    }
    ordered
}

#[test]
fn encoders_match_plain_loops_on_every_backend() {
    let folder = Folder::new();
    for projector in PROJECTORS {
        let file = mmproj(projector);
        let model = open(&folder, &file).unwrap_or_else(|error| panic!("{projector}: {error}"));
        // Tables of positions fit a square of 24 pixels, except for tables that are stretched.
        let sizes: &[_] = match model.config.positions {
            PositionTable::Square { .. } if projector != "qwen3vl_merger" => &[(24, 24); 2],
            PositionTable::WithClass { .. } => &[(24, 24); 2],
            _ => &[(48, 24), (24, 24), (72, 96)],
        };
        let images: Vec<_> = sizes.iter().map(|(width, height)| noise(*width, *height)).collect();
        let pictures: Vec<_> = images.iter().map(Picture::from).collect();
        let expected: Vec<_> = pictures.iter().flat_map(|picture| expected(&file, &model, picture)).collect();
        let power: f64 = expected.iter().map(|x| x * x).sum();
        for backend in drive::backends() {
            let name = format!("{projector} on {}", drive::label(&*backend));
            let mut encoder = VisionEncoder::new(model.clone(), &*backend, 4096).unwrap();
            let encoded = encoder.encode(&pictures, |_| true).unwrap().unwrap();
            let rows: Vec<_> = encoded.into_iter().flat_map(|picture| picture.rows).collect();
            assert_eq!(rows.len(), expected.len(), "{name}");
            let error: f64 = rows.iter().zip(&expected).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum();
            let limit = if drive::has_halves(&*backend) { 1e-4 } else { 1e-10 };
            assert!(error / power < limit, "{name}: off by {:e}", error / power);
        }
    }
}

#[test]
fn encoding_stops_between_steps() {
    let folder = Folder::new();
    let model = open(&folder, &mmproj("gemma3")).unwrap();
    let mut encoder = VisionEncoder::new(model, &drive::cpu(1, "portable"), 64).unwrap();
    let image = noise(24, 24);
    assert!(encoder.encode(&[Picture::from(&image)], |_| false).unwrap().is_none());
}

#[test]
fn wrong_files_name_the_key_or_the_tensor() {
    let folder = Folder::new();
    let without = |part: &str| {
        let mut file = mmproj("qwen3vl_merger");
        file.keys.retain(|(key, ..)| key != part.as_bytes());
        file.tensors.retain(|tensor| tensor.name != part);
        file
    };
    let with = |key: &str, value: u32| {
        let mut file = without(key);
        file = file.u32(key, value);
        file
    };
    let cases = [
        (without("clip.projector_type"), "`clip.projector_type`"),
        (without("clip.vision.patch_size"), "`clip.vision.patch_size`"),
        (without("clip.vision.image_mean"), "`clip.vision.image_mean`"),
        (without("v.blk.1.ln1.bias"), "`v.blk.1.ln1.bias`"),
        (without("v.deepstack.0.fc2.weight"), "`v.deepstack.0.fc2.weight`"),
        (with("clip.vision.attention.head_count", 3), "`clip.vision.attention.head_count`"),
        (with("clip.vision.attention.head_count", 0), "`clip.vision.attention.head_count`"),
        (with("clip.vision.patch_size", 200), "`clip.vision.image_size`"),
        (with("clip.vision.spatial_merge_size", 17), "`clip.vision.spatial_merge_size`"),
        (with("clip.vision.image_size", 96), "`v.position_embd.weight`"),
        (mmproj("qwen3vl_merger").tensor("v.extra", &[2], 0, [0; 8]), "`v.extra`"),
        (mmproj("llava"), "llava"),
        (GgufFile::new().string("general.architecture", "llama"), "llama"),
    ];
    for (file, named) in cases {
        let error = open(&folder, &file).err().unwrap_or_else(|| panic!("{named} was accepted")).to_string();
        assert!(error.contains(named), "{named}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Any bytes are an error or a model that runs.
    #[test]
    fn mutated_files_never_panic(
        projector in 0..PROJECTORS.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let folder = Folder::new();
        let file = mmproj(PROJECTORS[projector]);
        let (mut bytes, header) = (file.bytes(), file.header().len());
        for (place, value) in changes {
            bytes[place.index(header)] = value;
        }
        let Ok(gguf) = Gguf::open(folder.write("mmproj.gguf", bytes)) else { return Ok(()) };
        let Ok(model) = VisionModel::from_gguf(&gguf, &Weights::from_gguf(&gguf), Convention::Transformers) else {
            return Ok(());
        };
        let Ok(image) = ImagePictures::new(&model.config, &noise(30, 20)) else { return Ok(()) };
        let pictures: Vec<_> = image.pictures.iter().map(Picture::from).collect();
        if pictures.iter().map(|picture| picture.rgb.len()).sum::<usize>() > 1 << 20 {
            return Ok(());
        }
        if let Ok(mut encoder) = VisionEncoder::new(model, &drive::cpu(1, "portable"), 1 << 12) {
            let _ = encoder.encode(&pictures, |_| true);
        }
    }
}
