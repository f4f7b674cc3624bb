//! Chooses the format of each tensor by llama.cpp's rules (`llama-quant.cpp`): tensors that matter
//! more get more bits than the others.

use inkstone::{
    DType,
    gguf::{Array, Gguf, TensorInfo, Value},
};

use crate::{common::Failure, file_type::FileType};

/// Tensors that keep their type although they have the name of a matrix: gates of experts, norms,
/// and small or sensitive ones. Matched anywhere in a name.
const KEPT: [&str; 35] = [
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
];

/// The part of a model that a tensor belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Embedding,
    Queries,
    Keys,
    /// Values, or values together with keys or queries.
    Values,
    AttentionOutput,
    Up,
    Gate,
    Down,
    Output,
    Other,
}

impl Part {
    fn of(name: &str) -> Self {
        match name {
            "output.weight" => return Self::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => return Self::Embedding,
            _ => {}
        }
        let parts = [
            ("attn_qkv.weight", Self::Values),
            ("attn_kv_b.weight", Self::Values),
            ("attn_v.weight", Self::Values),
            ("attn_k.weight", Self::Keys),
            ("attn_q.weight", Self::Queries),
            ("attn_output.weight", Self::AttentionOutput),
            ("ffn_up", Self::Up),
            ("ffn_gate", Self::Gate),
            ("ffn_down", Self::Down),
        ];
        parts.into_iter().find(|(part, _)| name.contains(part)).map_or(Self::Other, |(_, part)| part)
    }
}

/// The choice of formats for a model's tensors, which are asked for in the order of the new file.
pub struct Mixture {
    file_type: FileType,
    /// Whether all matrices get the same format.
    pure: bool,
    has_importance: bool,
    architecture: String,
    layers: usize,
    /// The number of a layer's experts.
    experts: usize,
    /// The number of heads that share keys and values.
    group: usize,
    /// Whether eight heads share the values of a layer, which are small for the model's size.
    is_70b: bool,
    /// Whether the embedding is the output matrix, too.
    is_tied: bool,
    /// The number of tensors of values.
    values: usize,
    next_values: usize,
    next_down: usize,
}

impl Mixture {
    /// Reads what the rules need of a model.
    pub fn new(gguf: &Gguf, file_type: FileType, pure: bool, has_importance: bool) -> Result<Self, Failure> {
        let architecture = gguf.architecture()?.to_owned();
        if ["glm5-next", "bailingmoe3"].contains(&architecture.as_str()) {
            return Err(format!("architecture `{architecture}` has rules of its own, which are not supported").into());
        }
        let size = |key: &str| match gguf.get(&format!("{architecture}.{key}")) {
            Some(Value::Array(Array::U32(sizes))) => Ok(sizes.first().map(|size| *size as usize)),
            Some(Value::Array(Array::I32(sizes))) => Ok(sizes.first().and_then(|size| usize::try_from(*size).ok())),
            _ => gguf.usize(&format!("{architecture}.{key}")),
        };
        let layers = size("block_count")?.unwrap_or(0);
        let heads = size("attention.head_count")?.unwrap_or(1);
        let shared = size("attention.head_count_kv")?.unwrap_or(heads);
        let is_70b = match architecture.as_str() {
            "llama" => layers == 80 && heads != shared,
            "qwen2" | "deci" | "olmo" => layers == 80,
            "jais2" => layers == 68,
            _ => false,
        };
        let parts = || gguf.tensors().iter().map(|tensor| Part::of(&tensor.name));
        Ok(Self {
            file_type,
            pure,
            has_importance,
            layers,
            experts: size("expert_count")?.unwrap_or(0),
            group: heads.checked_div(shared).unwrap_or(0),
            is_70b,
            is_tied: parts().all(|part| part != Part::Output),
            values: parts().filter(|part| *part == Part::Values).count(),
            next_values: 0,
            next_down: 0,
            architecture,
        })
    }

    /// Returns the format of the next tensor, or `None` if it keeps its type.
    pub fn format(&mut self, tensor: &TensorInfo) -> Result<Option<DType>, Failure> {
        if !is_quantized(tensor) {
            return Ok(None);
        }
        let dtype = self.file_type.dtype();
        if dtype.is_float() {
            return Ok(Some(dtype));
        }
        let dtype = if self.pure { dtype } else { self.by_part(tensor)? };
        fallback(dtype, tensor).map(Some)
    }

    fn by_part(&mut self, tensor: &TensorInfo) -> Result<DType, Failure> {
        use FileType as File;
        let (part, dtype) = (Part::of(&tensor.name), self.file_type.dtype());
        let is_output = part == Part::Output || (self.is_tied && part == Part::Embedding);
        if self.file_type == File::MXFP4_MOE {
            let is_stack = tensor.shape.len() > 2 && tensor.shape[tensor.shape.len() - 3] > 1;
            return Ok(if is_stack && !is_output { DType::MXFP4 } else { DType::Q8_0 });
        }
        if is_output {
            let is_odd = self.architecture == "falcon" || !columns(tensor).is_multiple_of(dtype.block_weights());
            return Ok(if is_odd || dtype == DType::Q8_0 { DType::Q8_0 } else { DType::Q6_K });
        }
        Ok(match (part, self.file_type) {
            (Part::Embedding, File::TQ1_0 | File::TQ2_0 | File::Q2_0) => DType::Q4_K,
            (Part::Values, _) => self.of_values(),
            (Part::Keys, _) if self.experts == 8 => DType::Q8_0,
            (Part::Down, _) => self.of_down(tensor)?,
            (Part::AttentionOutput, _) => self.of_attention_output(),
            _ => dtype,
        })
    }

    fn of_values(&mut self) -> DType {
        use FileType as File;
        let index = self.next_values;
        self.next_values += 1;
        if self.experts == 8 {
            return DType::Q8_0;
        }
        let is_grouped = self.group >= 4;
        let dtype = match self.file_type {
            File::Q2_K if !is_grouped => DType::Q3_K,
            File::Q2_K => DType::Q4_K,
            File::Q2_K_S if is_grouped => DType::Q4_K,
            File::Q3_K_M if index >= 2 => DType::Q4_K,
            File::Q3_K_M | File::Q3_K_L => DType::Q5_K,
            File::IQ4_NL | File::IQ4_XS if is_grouped => DType::Q5_K,
            File::Q4_K_M | File::Q5_K_M if matters_more(index, self.values) => DType::Q6_K,
            File::Q4_K_S if index < 4 => DType::Q5_K,
            other => other.dtype(),
        };
        if self.is_70b && matches!(dtype, DType::Q3_K | DType::Q4_K) { DType::Q5_K } else { dtype }
    }

    fn of_down(&mut self, tensor: &TensorInfo) -> Result<DType, Failure> {
        use FileType as File;
        let (layers, is_falcon) = (self.layers, self.architecture == "falcon");
        let layer = if self.experts > 1 { layer(&tensor.name, layers)? } else { self.next_down };
        self.next_down += 1;
        let is_early = layer < layers / 8;
        Ok(match self.file_type {
            File::Q2_K => DType::Q3_K,
            File::Q2_K_S if is_early => DType::Q4_K,
            File::Q3_K_M if layer < layers / 16 => DType::Q5_K,
            File::Q3_K_M if !is_falcon || matters_more(layer, layers) => DType::Q4_K,
            File::Q3_K_L if is_falcon => DType::Q4_K,
            File::Q3_K_L => DType::Q5_K,
            File::Q4_K_M if is_falcon && layer < layers / 16 => DType::Q6_K,
            File::Q4_K_M if matters_more(layer, layers) => {
                if is_falcon {
                    DType::Q5_K
                } else {
                    DType::Q6_K
                }
            }
            File::IQ4_NL | File::IQ4_XS if is_early && !self.has_importance => DType::Q5_K,
            File::Q5_K_M if matters_more(layer, layers) => DType::Q6_K,
            File::Q4_K_S if is_early && !is_falcon => DType::Q5_K,
            File::Q4_0 if is_early && self.has_importance => DType::Q4_1,
            File::Q5_0 if is_early && self.has_importance => DType::Q5_1,
            other => other.dtype(),
        })
    }

    fn of_attention_output(&self) -> DType {
        use FileType as File;
        match self.file_type {
            File::Q3_K_L if self.architecture == "falcon" => DType::Q4_K,
            other if self.architecture == "falcon" => other.dtype(),
            File::Q2_K | File::Q3_K_S | File::Q3_K_M | File::Q4_K_S | File::Q4_K_M | File::IQ4_NL | File::IQ4_XS
                if self.experts == 8 =>
            {
                DType::Q5_K
            }
            other if self.experts == 8 => other.dtype(),
            File::Q2_K => DType::Q3_K,
            File::Q3_K_M => DType::Q4_K,
            File::Q3_K_L => DType::Q5_K,
            other => other.dtype(),
        }
    }

    /// Returns whether a tensor in this format is of no use without an importance matrix.
    pub fn needs_importance(&self, tensor: &TensorInfo, dtype: DType) -> bool {
        let is_table = matches!(Part::of(&tensor.name), Part::Output | Part::Embedding);
        self.file_type == FileType::Q2_K_S && dtype == DType::Q2_K && !is_table
    }
}

/// Returns the number of weights in a row.
pub fn columns(tensor: &TensorInfo) -> usize {
    tensor.shape.last().copied().unwrap_or(1)
}

/// Returns whether a tensor is a matrix, or a stack of matrices, whose type may change.
fn is_quantized(tensor: &TensorInfo) -> bool {
    let name = tensor.name.as_str();
    let is_table = ["position_embd.weight", "token_types.weight"].contains(&name);
    let is_matrix = tensor.shape.iter().skip_while(|length| **length == 1).count() > 1;
    is_matrix && name.ends_with("weight") && !is_table && !KEPT.iter().any(|kept| name.contains(kept))
}

/// Returns whether a layer is one of the first, of the last, or every third between.
fn matters_more(layer: usize, layers: usize) -> bool {
    let first = layers / 8;
    layer < first || layer >= 7 * layers / 8 || (layer - first) % 3 == 2
}

/// Returns the layer in a tensor's name, `blk.LAYER.`.
fn layer(name: &str, layers: usize) -> Result<usize, Failure> {
    let number = name.strip_prefix("blk.").and_then(|name| name.split('.').next()?.parse().ok());
    let number = number.filter(|layer| *layer < layers);
    number.ok_or_else(|| format!("tensor `{name}` does not name one of the {layers} layers").into())
}

/// Returns a format with smaller blocks if rows are not whole blocks of `dtype`.
fn fallback(dtype: DType, tensor: &TensorInfo) -> Result<DType, Failure> {
    let fits = |dtype: DType| columns(tensor).is_multiple_of(dtype.block_weights());
    if fits(dtype) {
        return Ok(dtype);
    }
    let smaller = match dtype {
        DType::IQ4_XS => DType::IQ4_NL,
        DType::Q2_0 | DType::Q2_K | DType::Q3_K | DType::TQ1_0 | DType::TQ2_0 => DType::Q4_0,
        DType::Q4_K => DType::Q5_0,
        DType::Q5_K => DType::Q5_1,
        DType::Q6_K => DType::Q8_0,
        DType::Q1_0 => {
            let what = format!(
                "tensor `{}`: rows of {} weights are not whole blocks of {dtype}",
                tensor.name,
                columns(tensor)
            );
            return Err(what.into());
        }
        other => other,
    };
    Ok(if fits(smaller) { smaller } else { DType::F16 })
}
