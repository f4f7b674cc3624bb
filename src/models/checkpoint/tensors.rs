//! The tensors of a checkpoint under GGUF's names.

use std::collections::HashMap;

use half::{bf16, f16};

use super::{Checkpoint, Tensor, config::Settings};
use crate::{DType, Error, Result, gguf::TensorInfo};

/// What comes before the names of a decoder's tensors: nothing where it was saved without its head, more where it is a part
/// of a model that also sees.
const PREFIXES: &[&str] = &["model.language_model.", "language_model.model.", "language_model.", "model.", ""];

/// Parts of models that also see, which are not run.
const OTHER_PARTS: &[&str] =
    &["vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."];

/// The longest vector that is copied.
const MAX_VECTOR: usize = 1 << 24;

/// The tensors with GGUF's names; those that have none keep theirs, for the family to refuse. A tied head is left out, and
/// so is what the `settings` say is no part of the text.
pub(super) fn translate(
    tensors: &[TensorInfo],
    checkpoint: &Checkpoint,
    settings: &Settings,
) -> Result<Vec<TensorInfo>> {
    let tied = settings.tied(checkpoint.tied)?;
    let is_of_text =
        |tensor: &&TensorInfo| !settings.are_a_part() || !OTHER_PARTS.iter().any(|part| tensor.name.starts_with(part));
    let mut translated = vec![];
    let mut sources: HashMap<String, &str> = HashMap::new();
    let mut has_head = false;
    for tensor in tensors.iter().filter(is_of_text) {
        let (name, plus_one) = match checkpoint.gguf_name(&tensor.name) {
            Some((name, row)) => (name, row.plus_one),
            None => (tensor.name.clone(), false),
        };
        if name == HEAD {
            has_head = true;
            if tied {
                continue;
            }
        }
        if let Some(other) = sources.insert(name.clone(), &tensor.name) {
            return Err(Error::tensor(
                &tensor.name,
                format!("is the same part of the model as `{}`", other.escape_debug()),
            ));
        }
        translated.push(if plus_one { with_one(tensor, name)? } else { tensor.renamed(name) });
    }
    if !tied && !has_head {
        return Err(Error::tensor(
            "lm_head.weight",
            "is missing, and `tie_word_embeddings` of config.json is not true",
        ));
    }
    Ok(translated)
}

const HEAD: &str = "output.weight";

impl Checkpoint {
    /// What GGUF calls a tensor, with its row of the table.
    fn gguf_name(&self, name: &str) -> Option<(String, &'static Tensor)> {
        PREFIXES.iter().find_map(|prefix| {
            let (stem, suffix) = name.strip_prefix(prefix)?.rsplit_once('.')?;
            let (layer, part) = match stem.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) {
                Some((number, part)) => (Some(number), part),
                None => (None, stem),
            };
            let row = self.tensors.iter().flat_map(|rows| rows.iter()).find(|row| row.name == part)?;
            match layer {
                Some(layer) => is_canonical(layer).then(|| (format!("blk.{layer}.{}.{suffix}", row.gguf), row)),
                None => Some((format!("{}.{suffix}", row.gguf), row)),
            }
        })
    }
}

impl Checkpoint {
    /// What a checkpoint calls a tensor of GGUF.
    pub fn name_of(&self, gguf: &str) -> Option<String> {
        let (stem, suffix) = gguf.rsplit_once('.')?;
        let (layer, part) = match stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            Some((number, part)) => (format!("layers.{number}."), part),
            None => (String::new(), stem),
        };
        let row = self.tensors.iter().flat_map(|rows| rows.iter()).find(|row| row.gguf == part)?;
        let model = if row.name == "lm_head" { "" } else { "model." };
        Some(format!("{model}{layer}{}.{suffix}", row.name))
    }
}

/// Whether a layer's number is written as numbers are.
fn is_canonical(number: &str) -> bool {
    number.parse::<usize>().is_ok_and(|parsed| parsed.to_string() == number)
}

/// The vector with one added to each element, in single precision.
fn with_one(tensor: &TensorInfo, name: String) -> Result<TensorInfo> {
    if tensor.shape.len() != 1 || tensor.elements() > MAX_VECTOR {
        return Err(Error::tensor(
            &tensor.name,
            format!("has the shape {:?}, but a norm's weights are a vector", tensor.shape),
        ));
    }
    let bytes = tensor.bytes();
    let halves = |one: fn([u8; 2]) -> f32| bytes.as_chunks().0.iter().map(|&bytes| one(bytes)).collect::<Vec<_>>();
    let mut elements = match tensor.dtype.dtype() {
        Some(DType::F16) => halves(|bytes| f16::from_le_bytes(bytes).to_f32()),
        Some(DType::BF16) => halves(|bytes| bf16::from_le_bytes(bytes).to_f32()),
        _ => bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
    };
    elements.iter_mut().for_each(|element| *element += 1.0);
    Ok(TensorInfo::in_memory(name, DType::F32, tensor.shape.clone(), bytemuck::cast_slice(&elements)))
}
