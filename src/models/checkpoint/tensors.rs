//! Translates the tensors of a checkpoint: their names, and some of their elements.

use std::collections::{BTreeMap, HashMap};

use super::{Checkpoint, TensorMapping, config::Settings};
use crate::{Error, Result, gguf::TensorInfo};

/// Prefixes of the names of a decoder's tensors: none if it was saved without its head, longer ones
/// in multimodal models.
const PREFIXES: &[&str] =
    &["model.language_model.", "language_model.model.", "language_model.", "model.text_model.", "model.", ""];

/// Prefixes of the names of a multimodal model's other parts, which the text decoder does not read.
const OTHER_MODALITIES: &[&str] = &[
    "visual.",
    "vision_tower.",
    "multi_modal_projector.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
    "model.visual.",
    "model.vision_model.",
    "model.connector.",
    "model.audio_tower.",
    "model.embed_vision.",
    "model.embed_audio.",
];

/// The prefix of heads for multi-token prediction, which the logits do not depend on.
const HEADS: &str = "mtp.";
/// The projection of such a head, by the name in the table.
const HEAD_PROJECTION: &str = "mtp.fc";

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
///
/// `head` is the number of the layer that the head for multi-token prediction becomes; without it,
/// its tensors are left out.
pub(super) fn translate(
    tensors: &[TensorInfo],
    checkpoint: &Checkpoint,
    settings: &Settings,
    head: Option<u32>,
) -> Result<Vec<TensorInfo>> {
    let tied = settings.tied(checkpoint.tied)?;
    let width = settings.size("hidden_size")?.unwrap_or(0) as usize;
    let other_parts = if settings.is_multimodal() { OTHER_MODALITIES } else { &[] };
    let is_of_decoder = |tensor: &&TensorInfo| {
        let mut other_prefixes = other_parts.iter().copied().chain(head.is_none().then_some(HEADS));
        !other_prefixes.any(|prefix| tensor.name.starts_with(prefix))
    };
    let mut translated = vec![];
    let mut stacks = Stacks::default();
    let mut sources: HashMap<String, &str> = HashMap::new();
    let mut has_output = false;
    for tensor in tensors.iter().filter(is_of_decoder) {
        let in_head = head.and_then(|layer| name_in_layer(&tensor.name, layer));
        let Some(destination) = checkpoint.destination(in_head.as_deref().unwrap_or(&tensor.name)) else {
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
        translated.extend(destination.mapping.transform.apply(tensor, destination.name, width)?);
    }
    if !tied && !has_output {
        let what = "is missing, and `tie_word_embeddings` of config.json is not true";
        return Err(Error::tensor("lm_head.weight", what));
    }
    translated.extend(stacks.finish()?);
    Ok(translated)
}

/// Returns the number of the layer that the head for multi-token prediction becomes: the one after
/// the model's layers. Returns `None` if the checkpoint has no head, or one of several layers or
/// with further tensors, which this crate does not run.
pub(super) fn head_layer(tensors: &[TensorInfo], checkpoint: &Checkpoint, settings: &Settings) -> Result<Option<u32>> {
    let Some(layers) = settings.size("num_hidden_layers")? else { return Ok(None) };
    let mut of_head = tensors.iter().map(|tensor| tensor.name.as_str()).filter(|name| name.starts_with(HEADS));
    let is_known = |name: &str| {
        let in_layer = name_in_layer(name, layers);
        in_layer.is_some_and(|name| checkpoint.destination(&name).is_some())
    };
    let has_projection = of_head.clone().any(|name| suffix_after(name, HEAD_PROJECTION).is_some());
    Ok((has_projection && of_head.all(is_known)).then_some(layers))
}

/// Returns the name that a tensor of a head for multi-token prediction would have in a layer of
/// this number, or `None` for a tensor of another part, or of a further layer of the head.
fn name_in_layer(name: &str, layer: u32) -> Option<String> {
    let part = name.strip_prefix(HEADS)?;
    match part.strip_prefix("layers.") {
        Some(numbered) => numbered.strip_prefix("0.").map(|part| format!("layers.{layer}.{part}")),
        None => Some(format!("layers.{layer}.{name}")),
    }
}

pub(super) fn stored_twice(name: &str, other: &str) -> Error {
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

    /// Returns the checkpoint's name of a GGUF tensor, for messages. `head` is the number of the
    /// layer that the head for multi-token prediction has become.
    pub fn name_of(&self, gguf: &str, head: Option<u64>) -> Option<String> {
        let (place, part) = match gguf.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            Some((number, part)) if head.is_some_and(|head| head.to_string() == number) => {
                (format!("{HEADS}layers.0."), part)
            }
            Some((number, part)) => (format!("model.layers.{number}."), part),
            None => ("model.".to_owned(), gguf),
        };
        let (row, suffix) = self.mappings().find_map(|row| Some((row, suffix_after(part, row.gguf)?)))?;
        if row.name.starts_with(HEADS) {
            return Some(format!("{}{suffix}", row.name));
        }
        let place = if row.name == "lm_head" { "" } else { &place };
        Some(format!("{place}{}{suffix}", row.name))
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
pub(super) fn suffix_after<'a>(name: &'a str, stem: &str) -> Option<&'a str> {
    name.strip_prefix(stem).filter(|suffix| ["", ".weight", ".bias"].contains(suffix))
}

/// Parses a number without leading zeros or a sign.
pub(super) fn canonical_number(number: &str) -> Option<usize> {
    number.parse().ok().filter(|parsed: &usize| parsed.to_string() == number)
}
