//! The tensors of a checkpoint under GGUF's names.

use std::collections::{BTreeMap, HashMap};

use half::{bf16, f16};

use super::{Checkpoint, Made, Tensor, config::Settings};
use crate::{DType, Error, Result, gguf::TensorInfo};

/// What comes before the names of a decoder's tensors: nothing where it was saved without its head, more where it is a part
/// of a model that also sees.
const PREFIXES: &[&str] = &["model.language_model.", "language_model.model.", "language_model.", "model.", ""];

/// Parts of models that also see or hear, which are not run.
const OTHER_PARTS: &[&str] = &[
    "vision_tower.",
    "multi_modal_projector.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
    "model.visual.",
    "model.audio_tower.",
    "model.embed_vision.",
    "model.embed_audio.",
];

/// What predicts tokens further ahead, which changes none of the logits.
const AHEAD: &str = "mtp.";

/// The longest vector that is copied.
const MAX_VECTOR: usize = 1 << 24;

const HEAD: &str = "output.weight";

/// What a tensor of the checkpoint becomes.
struct Place {
    /// GGUF's name.
    name: String,
    row: &'static Tensor,
    /// Which one of a stack it is.
    number: Option<usize>,
}

/// The tensors with GGUF's names; those that have none keep theirs, for the family to refuse. A tied head is left out, and
/// so is what the `settings` say is no part of the text.
pub(super) fn translate(
    tensors: &[TensorInfo],
    checkpoint: &Checkpoint,
    settings: &Settings,
) -> Result<Vec<TensorInfo>> {
    let tied = settings.tied(checkpoint.tied)?;
    let others = if settings.are_a_part() { OTHER_PARTS } else { &[] };
    let is_of_text = |tensor: &&TensorInfo| {
        !tensor.name.starts_with(AHEAD) && !others.iter().any(|part| tensor.name.starts_with(part))
    };
    let mut translated = vec![];
    let mut stacks = Stacks::default();
    let mut sources: HashMap<String, &str> = HashMap::new();
    let mut has_head = false;
    for tensor in tensors.iter().filter(is_of_text) {
        let Some(place) = checkpoint.place_of(&tensor.name) else {
            translated.push(tensor.clone());
            continue;
        };
        has_head |= place.name == HEAD;
        if place.name == HEAD && tied {
            continue;
        }
        if let Some(number) = place.number {
            stacks.add(place.name, number, tensor)?;
            continue;
        }
        if let Some(other) = sources.insert(place.name.clone(), &tensor.name) {
            return Err(twice(&tensor.name, other));
        }
        translated.push(place.row.made.from(tensor, place.name)?);
    }
    if !tied && !has_head {
        return Err(Error::tensor(
            "lm_head.weight",
            "is missing, and `tie_word_embeddings` of config.json is not true",
        ));
    }
    translated.extend(stacks.finish()?);
    Ok(translated)
}

fn twice(name: &str, other: &str) -> Error {
    Error::tensor(name, format!("is the same part of the model as `{}`", other.escape_debug()))
}

/// Tensors by number that are one in GGUF, by its name.
#[derive(Default)]
struct Stacks<'a>(BTreeMap<String, BTreeMap<usize, &'a TensorInfo>>);

impl<'a> Stacks<'a> {
    fn add(&mut self, name: String, number: usize, tensor: &'a TensorInfo) -> Result<()> {
        match self.0.entry(name).or_default().insert(number, tensor) {
            Some(other) => Err(twice(&tensor.name, &other.name)),
            None => Ok(()),
        }
    }

    fn finish(self) -> Result<Vec<TensorInfo>> {
        self.0.into_iter().map(|(name, tensors)| stacked(name, tensors)).collect()
    }
}

fn stacked(name: String, tensors: BTreeMap<usize, &TensorInfo>) -> Result<TensorInfo> {
    // Numbers ascend from 0, so one that is too large follows a gap.
    if let Some((place, (number, tensor))) = tensors.iter().enumerate().find(|(place, (number, _))| place != *number) {
        return Err(Error::tensor(&tensor.name, format!("is number {number}, but number {place} is missing")));
    }
    let tensors: Vec<_> = tensors.into_values().collect();
    let kind = |tensor: &TensorInfo| format!("has the shape {:?} as {}", tensor.shape, tensor.dtype);
    TensorInfo::stacked(name, &tensors).ok_or_else(|| {
        let other = tensors.iter().find(|tensor| kind(tensor) != kind(tensors[0])).unwrap_or(&tensors[0]);
        let what = format!("{}, but `{}` {}", kind(other), tensors[0].name.escape_debug(), kind(tensors[0]));
        Error::tensor(&other.name, what)
    })
}

impl Checkpoint {
    fn rows(&self) -> impl Iterator<Item = &'static Tensor> {
        self.tensors.iter().flat_map(|rows| rows.iter())
    }

    /// What becomes of the tensor of this name.
    fn place_of(&self, name: &str) -> Option<Place> {
        PREFIXES.iter().find_map(|prefix| {
            let within = name.strip_prefix(prefix)?;
            let (layer, part) = match within.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) {
                Some((number, part)) => (Some(number), part),
                None => (None, within),
            };
            let (row, number, suffix) = self.rows().find_map(|row| {
                let (number, suffix) = row.matches(part)?;
                Some((row, number, suffix))
            })?;
            let layer = match layer {
                Some(layer) => format!("blk.{}.", canonical(layer)?),
                None => String::new(),
            };
            Some(Place { name: format!("{layer}{}{suffix}", row.gguf), row, number })
        })
    }

    /// What a checkpoint calls a tensor of GGUF.
    pub fn name_of(&self, gguf: &str) -> Option<String> {
        let (layer, part) = match gguf.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            Some((number, part)) => (format!("layers.{number}."), part),
            None => (String::new(), gguf),
        };
        let (row, suffix) = self.rows().find_map(|row| Some((row, suffix_after(part, row.gguf)?)))?;
        let model = if row.name == "lm_head" { "" } else { "model." };
        Some(format!("{model}{layer}{}{suffix}", row.name))
    }
}

impl Tensor {
    /// Where the row is of `part`: the number that a `*` stands for, and the suffix.
    fn matches<'a>(&self, part: &'a str) -> Option<(Option<usize>, &'a str)> {
        let Some((before, after)) = self.name.split_once("*.") else {
            return Some((None, suffix_after(part, self.name)?));
        };
        let (number, rest) = part.strip_prefix(before)?.split_once('.')?;
        Some((Some(canonical(number)?), suffix_after(rest, after)?))
    }
}

/// What follows the `stem` in a name, where no more than a suffix does.
fn suffix_after<'a>(name: &'a str, stem: &str) -> Option<&'a str> {
    name.strip_prefix(stem).filter(|suffix| ["", ".weight", ".bias"].contains(suffix))
}

/// A number that is written as numbers are.
fn canonical(number: &str) -> Option<usize> {
    number.parse().ok().filter(|parsed: &usize| parsed.to_string() == number)
}

impl Made {
    /// The tensor of GGUF's.
    fn from(self, tensor: &TensorInfo, name: String) -> Result<TensorInfo> {
        match self {
            Self::AsIs => Ok(tensor.renamed(name)),
            Self::PlusOne => mapped(tensor, name, |x| x + 1.0),
            Self::MinusExp => mapped(tensor, name, |x| -x.exp()),
            Self::Kernel => match tensor.shape[..] {
                [channels, 1, taps] => {
                    let mut kernel = tensor.renamed(name);
                    kernel.shape = vec![channels, taps];
                    Ok(kernel)
                }
                _ => Err(Error::tensor(
                    &tensor.name,
                    format!("has the shape {:?}, but [channels, 1, taps] is wanted", tensor.shape),
                )),
            },
        }
    }
}

/// The vector with each element put through `f`, in single precision.
fn mapped(tensor: &TensorInfo, name: String, f: fn(f32) -> f32) -> Result<TensorInfo> {
    if tensor.shape.len() != 1 || tensor.elements() > MAX_VECTOR {
        return Err(Error::tensor(&tensor.name, format!("has the shape {:?}, but must be a vector", tensor.shape)));
    }
    let bytes = tensor.read(0..tensor.byte_len())?;
    let halves = |one: fn([u8; 2]) -> f32| bytes.as_chunks().0.iter().map(|&bytes| one(bytes)).collect::<Vec<_>>();
    let mut elements = match tensor.dtype.dtype() {
        Some(DType::F16) => halves(|bytes| f16::from_le_bytes(bytes).to_f32()),
        Some(DType::BF16) => halves(|bytes| bf16::from_le_bytes(bytes).to_f32()),
        _ => bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
    };
    elements.iter_mut().for_each(|element| *element = f(*element));
    Ok(TensorInfo::in_memory(name, DType::F32, tensor.shape.clone(), bytemuck::cast_slice(&elements)))
}
