//! Translates the names of a vision encoder's tensors.

use std::collections::HashMap;

use super::{
    super::tensors::{canonical_number, stored_twice, suffix_after},
    EncoderCheckpoint, EncoderSettings, TensorMapping,
};
use crate::{Result, gguf::TensorInfo};

/// Prefixes of an encoder's tensors. The longest that fits is left out.
const ENCODERS: [&str; 4] = ["vision_tower.vision_model.", "vision_tower.", "vision_model.", "visual."];

/// Prefixes of a projector's tensors outside of the encoder.
const PROJECTORS: [&str; 3] = ["multi_modal_projector.", "connector.", "embed_vision."];

/// Suffixes of the limits of a matrix's inputs and outputs.
const LIMITS: [&str; 4] = [".input_min", ".input_max", ".output_min", ".output_max"];

/// The end of a matrix's name if it has limits.
const LIMITED: &str = ".linear";

/// Returns the layers whose result is projected for a layer of the text model.
pub(super) fn deepstack_layers(settings: &EncoderSettings) -> Result<Vec<u64>> {
    const NAME: &str = "deepstack_visual_indexes";
    let Some(value) = settings.encoder.get(NAME) else { return Ok(vec![]) };
    let layers = value.as_array().and_then(|all| all.iter().map(|layer| layer.as_u64()).collect());
    layers.ok_or_else(|| settings.encoder.type_error(NAME, value, "a list of numbers of layers"))
}

/// Returns the encoder's tensors with their GGUF names. A tensor without one keeps its name, and
/// the encoder refuses it.
pub(super) fn translate(
    tensors: &[TensorInfo],
    checkpoint: &EncoderCheckpoint,
    deepstack: &[u64],
) -> Result<Vec<TensorInfo>> {
    let mut translated = vec![];
    let mut sources: HashMap<String, &str> = HashMap::new();
    for tensor in tensors {
        let Some(part) = part_of_encoder(&tensor.name) else { continue };
        let Some((name, mapping)) = checkpoint.destination(part, deepstack) else {
            translated.push(tensor.clone());
            continue;
        };
        if let Some(other) = sources.insert(name.clone(), &tensor.name) {
            return Err(stored_twice(&tensor.name, other));
        }
        let mut tensor = tensor.clone();
        if tensor.shape.is_empty() {
            tensor.shape = vec![1];
        }
        translated.extend(mapping.transform.apply(&tensor, name, 0)?);
    }
    Ok(translated)
}

/// Returns the name without the prefix of the model and the encoder, or `None` for a tensor of
/// another part.
fn part_of_encoder(name: &str) -> Option<&str> {
    let name = name.strip_prefix("model.").unwrap_or(name);
    let of_encoder = ENCODERS.iter().find_map(|prefix| name.strip_prefix(prefix));
    of_encoder.or_else(|| PROJECTORS.iter().any(|prefix| name.starts_with(prefix)).then_some(name))
}

impl EncoderCheckpoint {
    fn rows(&self) -> impl Iterator<Item = &'static TensorMapping> {
        self.tensors.iter().flat_map(|rows| rows.iter())
    }

    /// Returns the GGUF name of the checkpoint's tensor `part` and the row of the table.
    fn destination(&self, part: &str, deepstack: &[u64]) -> Option<(String, &'static TensorMapping)> {
        let (layer, part) = match part.strip_prefix(self.layers).and_then(|rest| rest.split_once('.')) {
            Some((number, part)) => (Some(canonical_number(number)?), part),
            None => (None, part),
        };
        self.rows().find_map(|row| {
            let (gguf, suffix) = match row.name.split_once("*.") {
                Some((before, after)) => {
                    let (number, rest) = part.strip_prefix(before)?.split_once('.')?;
                    let layer = deepstack.get(canonical_number(number)?)?;
                    (row.gguf.replace('*', &layer.to_string()), suffix_of(rest, after, after)?)
                }
                None => (row.gguf.to_owned(), suffix_of(part, row.name, row.name)?),
            };
            let name = match layer {
                Some(layer) => format!("v.blk.{layer}.{gguf}{suffix}"),
                None => format!("{gguf}{suffix}"),
            };
            Some((name, row))
        })
    }

    /// Returns the checkpoint's name of a GGUF tensor, for messages. `is_deepstack` says of each
    /// layer whether its result is projected for a layer of the text model.
    pub fn name_of(&self, gguf: &str, is_deepstack: &[bool]) -> Option<String> {
        let number_and_part = |prefix: &str| gguf.strip_prefix(prefix).and_then(|rest| rest.split_once('.'));
        let (layer, number, part) = if let Some((layer, part)) = number_and_part("v.blk.") {
            (format!("{}{layer}.", self.layers), None, part.to_owned())
        } else if let Some((layer, part)) = number_and_part("v.deepstack.") {
            let before = is_deepstack.get(..canonical_number(layer)?)?;
            let number = before.iter().filter(|is_deepstack| **is_deepstack).count();
            (String::new(), Some(number), format!("v.deepstack.*.{part}"))
        } else {
            (String::new(), None, gguf.to_owned())
        };
        let (row, suffix) = self.rows().find_map(|row| Some((row, suffix_of(&part, row.gguf, row.name)?)))?;
        let name = number.map_or(row.name.to_owned(), |number| row.name.replace('*', &number.to_string()));
        let of_projector = PROJECTORS.iter().any(|prefix| name.starts_with(prefix));
        let prefix = if of_projector { "" } else { self.prefix };
        Some(format!("{prefix}{layer}{name}{suffix}"))
    }
}

/// Returns the suffix of a name if the rest is `stem`. `row` is the checkpoint's name: limits are
/// beside a matrix with [`LIMITED`] at its end.
fn suffix_of<'a>(name: &'a str, stem: &str, row: &str) -> Option<&'a str> {
    let limit = || name.strip_prefix(stem).filter(|suffix| LIMITS.contains(suffix) && !row.ends_with(LIMITED));
    suffix_after(name, stem).or_else(limit)
}
