//! The parts of checkpoints that the encoders of all Qwen families share.

use crate::{
    Result,
    gguf::Value,
    models::checkpoint::{
        EncoderCheckpoint, EncoderSettings, KeyValues, Meaning, TensorMapping, Transform, one_of, setting, transformed,
    },
};

/// The number that norms add to the variance.
const EPS: f32 = 1e-6;

pub(super) const CHECKPOINT: EncoderCheckpoint = EncoderCheckpoint {
    processor: &[
        one_of("do_resize", &["true"]),
        one_of("do_rescale", &["true"]),
        one_of("resample", &["3"]),
        one_of("temporal_patch_size", &["2"]),
        setting("size.shortest_edge", Meaning::Derived(MIN_PIXELS)),
        setting("size.longest_edge", Meaning::Derived(MAX_PIXELS)),
    ],
    prefix: "visual.",
    layers: "blocks.",
    ..EncoderCheckpoint::ENCODER
};

/// The GGUF keys of the limits of a picture.
const MIN_PIXELS: &str = "image_min_pixels";
const MAX_PIXELS: &str = "image_max_pixels";

/// The kernels of two frames.
pub(super) const PATCHES: TensorMapping =
    transformed("patch_embed.proj.weight", "v.patch_embd.weight", Transform::SplitFrames);

/// Returns the keys of all encoders.
pub(super) fn keys(settings: &EncoderSettings) -> Result<KeyValues> {
    settings.check_processor("patch_size", "patch_size")?;
    settings.check_processor("merge_size", "spatial_merge_size")?;
    let size = settings.processor.nested("size")?;
    let pixels = |old: &str, name: &str, default: u32| {
        let in_size = size.as_ref().map(|size| size.size(name)).transpose()?.flatten();
        Ok::<_, crate::Error>(Value::U32(settings.processor.size(old)?.or(in_size).unwrap_or(default)))
    };
    Ok(vec![
        ("attention.layer_norm_epsilon", Value::F32(EPS)),
        (MIN_PIXELS, pixels("min_pixels", "shortest_edge", 56 * 56)?),
        (MAX_PIXELS, pixels("max_pixels", "longest_edge", 28 * 28 * 1280)?),
    ])
}

/// Returns the key for the side of a square picture, of which encoders without a table of positions
/// have none: the side of a block.
pub(super) fn block_side(settings: &EncoderSettings) -> (&'static str, Value) {
    ("image_size", Value::U64(settings.value("patch_size").saturating_mul(settings.value("spatial_merge_size"))))
}
