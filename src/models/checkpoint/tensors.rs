//! Translates the tensors of a checkpoint: their names, and some of their elements.

use std::collections::{BTreeMap, HashMap};

use half::{bf16, f16};

use super::{Checkpoint, TensorMapping, Transform, config::Settings};
use crate::{DType, Error, Result, gguf::TensorInfo};

/// Prefixes of the names of a decoder's tensors: none if it was saved without its head, longer ones
/// in multimodal models.
const PREFIXES: &[&str] = &["model.language_model.", "language_model.model.", "language_model.", "model.", ""];

/// Prefixes of the names of a multimodal model's other parts, which are not run.
const OTHER_MODALITIES: &[&str] = &[
    "vision_tower.",
    "multi_modal_projector.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
    "model.visual.",
    "model.audio_tower.",
    "model.embed_vision.",
    "model.embed_audio.",
];

/// The prefix of layers that predict further tokens, which the logits do not depend on.
const PREDICTION_LAYERS: &str = "mtp.";

/// The longest vector that is copied, in elements.
const MAX_VECTOR: usize = 1 << 24;

/// The GGUF name of the output matrix.
const OUTPUT: &str = "output.weight";

/// The GGUF tensor that a tensor of the checkpoint becomes, or becomes a part of.
struct Destination {
    name: String,
    mapping: &'static TensorMapping,
    /// The number of the expert, if the GGUF tensor is a stack of all experts.
    expert: Option<usize>,
}

/// Returns the tensors with their GGUF names. A tensor without one keeps its name, and the family
/// refuses it. Tied output matrices, and parts of the model other than its text decoder, are left
/// out.
pub(super) fn translate(
    tensors: &[TensorInfo],
    checkpoint: &Checkpoint,
    settings: &Settings,
) -> Result<Vec<TensorInfo>> {
    let tied = settings.tied(checkpoint.tied)?;
    let other_parts = if settings.is_multimodal() { OTHER_MODALITIES } else { &[] };
    let is_of_decoder = |tensor: &&TensorInfo| {
        let mut other_prefixes = other_parts.iter().copied().chain([PREDICTION_LAYERS]);
        !other_prefixes.any(|prefix| tensor.name.starts_with(prefix))
    };
    let mut translated = vec![];
    let mut stacks = Stacks::default();
    let mut sources: HashMap<String, &str> = HashMap::new();
    let mut has_output = false;
    for tensor in tensors.iter().filter(is_of_decoder) {
        let Some(destination) = checkpoint.destination(&tensor.name) else {
            translated.push(tensor.clone());
            continue;
        };
        has_output |= destination.name == OUTPUT;
        if destination.name == OUTPUT && tied {
            continue;
        }
        if let Some(expert) = destination.expert {
            stacks.add(destination.name, expert, tensor)?;
            continue;
        }
        if let Some(other) = sources.insert(destination.name.clone(), &tensor.name) {
            return Err(stored_twice(&tensor.name, other));
        }
        translated.push(destination.mapping.transform.apply(tensor, destination.name)?);
    }
    if !tied && !has_output {
        let what = "is missing, and `tie_word_embeddings` of config.json is not true";
        return Err(Error::tensor("lm_head.weight", what));
    }
    translated.extend(stacks.finish()?);
    Ok(translated)
}

fn stored_twice(name: &str, other: &str) -> Error {
    Error::tensor(name, format!("is the same part of the model as `{}`", other.escape_debug()))
}

/// The tensors of experts, by GGUF name and number of the expert.
#[derive(Default)]
struct Stacks<'a>(BTreeMap<String, BTreeMap<usize, &'a TensorInfo>>);

impl<'a> Stacks<'a> {
    fn add(&mut self, name: String, expert: usize, tensor: &'a TensorInfo) -> Result<()> {
        match self.0.entry(name).or_default().insert(expert, tensor) {
            Some(other) => Err(stored_twice(&tensor.name, &other.name)),
            None => Ok(()),
        }
    }

    fn finish(self) -> Result<Vec<TensorInfo>> {
        self.0.into_iter().map(|(name, tensors)| stack(name, tensors)).collect()
    }
}

/// Returns one tensor of the tensors of all experts, which stay where the files have them.
fn stack(name: String, tensors: BTreeMap<usize, &TensorInfo>) -> Result<TensorInfo> {
    // Numbers ascend from 0, so a number that is not its position follows a gap.
    if let Some((expected, (number, tensor))) =
        tensors.iter().enumerate().find(|(expected, (number, _))| expected != *number)
    {
        let what = format!("is number {number}, but number {expected} is missing");
        return Err(Error::tensor(&tensor.name, what));
    }
    let tensors: Vec<_> = tensors.into_values().collect();
    let shape = |tensor: &TensorInfo| format!("has shape {:?} as {}", tensor.shape, tensor.dtype);
    TensorInfo::stacked(name, &tensors).ok_or_else(|| {
        let other = tensors.iter().find(|tensor| shape(tensor) != shape(tensors[0])).unwrap_or(&tensors[0]);
        let what = format!("{}, but `{}` {}", shape(other), tensors[0].name.escape_debug(), shape(tensors[0]));
        Error::tensor(&other.name, what)
    })
}

impl Checkpoint {
    fn mappings(&self) -> impl Iterator<Item = &'static TensorMapping> {
        self.tensors.iter().flat_map(|rows| rows.iter())
    }

    /// Returns the destination of the checkpoint's tensor `name`, or `None` if no row has it.
    fn destination(&self, name: &str) -> Option<Destination> {
        PREFIXES.iter().find_map(|prefix| {
            let within_model = name.strip_prefix(prefix)?;
            let layer_and_part = within_model.strip_prefix("layers.").and_then(|rest| rest.split_once('.'));
            let (layer, part) = match layer_and_part {
                Some((number, part)) => (Some(number), part),
                None => (None, within_model),
            };
            let (mapping, found) = self.mappings().find_map(|mapping| Some((mapping, mapping.matches(part)?)))?;
            let layer = match layer {
                Some(layer) => format!("blk.{}.", canonical_number(layer)?),
                None => String::new(),
            };
            let name = format!("{layer}{}{}", mapping.gguf, found.suffix);
            Some(Destination { name, mapping, expert: found.expert })
        })
    }

    /// Returns the checkpoint's name of a GGUF tensor, for messages.
    pub fn name_of(&self, gguf: &str) -> Option<String> {
        let (layer, part) = match gguf.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            Some((number, part)) => (format!("layers.{number}."), part),
            None => (String::new(), gguf),
        };
        let (row, suffix) = self.mappings().find_map(|row| Some((row, suffix_after(part, row.gguf)?)))?;
        let model = if row.name == "lm_head" { "" } else { "model." };
        Some(format!("{model}{layer}{}{suffix}", row.name))
    }
}

/// The parts of a tensor's name that a row of the table leaves open.
struct NameMatch<'a> {
    /// The number in the place of a `*`.
    expert: Option<usize>,
    /// `.weight`, `.bias` or nothing.
    suffix: &'a str,
}

impl TensorMapping {
    fn matches<'a>(&self, part: &'a str) -> Option<NameMatch<'a>> {
        let Some((before, after)) = self.name.split_once("*.") else {
            return Some(NameMatch { expert: None, suffix: suffix_after(part, self.name)? });
        };
        let (number, rest) = part.strip_prefix(before)?.split_once('.')?;
        Some(NameMatch { expert: Some(canonical_number(number)?), suffix: suffix_after(rest, after)? })
    }
}

/// Returns the suffix of a name, `.weight`, `.bias` or nothing, if the rest is `stem`.
fn suffix_after<'a>(name: &'a str, stem: &str) -> Option<&'a str> {
    name.strip_prefix(stem).filter(|suffix| ["", ".weight", ".bias"].contains(suffix))
}

/// Parses a number without leading zeros or a sign.
fn canonical_number(number: &str) -> Option<usize> {
    number.parse().ok().filter(|parsed: &usize| parsed.to_string() == number)
}

impl Transform {
    /// Returns the GGUF tensor `name`.
    fn apply(self, tensor: &TensorInfo, name: String) -> Result<TensorInfo> {
        match self {
            Self::None => Ok(tensor.renamed(name)),
            Self::AddOne => map_elements(tensor, name, |x| x + 1.0),
            Self::NegateExp => map_elements(tensor, name, |x| -x.exp()),
            Self::FlattenKernel => match tensor.shape[..] {
                [channels, 1, taps] => {
                    let mut kernel = tensor.renamed(name);
                    kernel.shape = vec![channels, taps];
                    Ok(kernel)
                }
                _ => {
                    let what = format!("has shape {:?}, but [channels, 1, taps] is expected", tensor.shape);
                    Err(Error::tensor(&tensor.name, what))
                }
            },
        }
    }
}

/// Returns an F32 copy of a vector with `f` of each element.
fn map_elements(tensor: &TensorInfo, name: String, f: fn(f32) -> f32) -> Result<TensorInfo> {
    if tensor.shape.len() != 1 || tensor.elements() > MAX_VECTOR {
        let what = format!("has shape {:?}, but a vector of at most {MAX_VECTOR} elements is expected", tensor.shape);
        return Err(Error::tensor(&tensor.name, what));
    }
    let bytes = tensor.read(0..tensor.byte_len())?;
    let widen = |to_f32: fn([u8; 2]) -> f32| bytes.as_chunks().0.iter().map(|&bytes| to_f32(bytes)).collect::<Vec<_>>();
    let mut elements = match tensor.dtype.dtype() {
        Some(DType::F16) => widen(|bytes| f16::from_le_bytes(bytes).to_f32()),
        Some(DType::BF16) => widen(|bytes| bf16::from_le_bytes(bytes).to_f32()),
        _ => bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
    };
    elements.iter_mut().for_each(|element| *element = f(*element));
    Ok(TensorInfo::in_memory(name, DType::F32, tensor.shape.clone(), bytemuck::cast_slice(&elements)))
}
