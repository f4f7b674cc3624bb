//! Makes vision encoders with the sizes of published models and random weights.

use inkstone::{
    DType, Result,
    internals::{
        graph::Activation,
        models::vision::{Convention, Pictures, PositionTable, Projector, VisionConfig, VisionModel},
        weights::Weights,
    },
};

/// The sizes of a vision encoder.
pub struct Shape {
    pub name: &'static str,
    pub max_patches: usize,
    projector: Projector,
    layers: usize,
    hidden: usize,
    ffn: usize,
    patch: usize,
    block: usize,
    image_size: usize,
    text_width: usize,
    /// The layers whose result is projected for a layer of the text model.
    deepstack: &'static [usize],
}

/// The name, format and shape of a tensor.
type Tensor = (String, DType, Vec<usize>);

impl Shape {
    pub const ALL: [Self; 2] = [
        Self {
            name: "qwen3-vl-2b",
            max_patches: 16_384,
            projector: Projector::Qwen3Vl,
            layers: 24,
            hidden: 1024,
            ffn: 4096,
            patch: 16,
            block: 2,
            image_size: 768,
            text_width: 2048,
            deepstack: &[5, 11, 17],
        },
        Self {
            name: "gemma-3",
            max_patches: 4096,
            projector: Projector::Gemma3,
            layers: 27,
            hidden: 1152,
            ffn: 4304,
            patch: 14,
            block: 4,
            image_size: 896,
            text_width: 2560,
            deepstack: &[],
        },
    ];

    /// Returns the encoder with all matrices in `dtype`, except where published files have them in
    /// another format.
    pub fn model(&self, dtype: DType) -> Result<VisionModel> {
        let mut random = Random(1);
        let tensors = self.tensors(dtype).into_iter().map(|(name, dtype, shape)| {
            let bytes = random.tensor(dtype, shape.iter().product());
            (name, dtype, shape, bytes)
        });
        VisionModel::new(self.config(), &Weights::from_memory(tensors)?)
    }

    /// Returns the number of floating-point operations for a picture: of products with weights, and
    /// of attention.
    pub fn operations(&self, patches: usize) -> f64 {
        let Self { layers, hidden, ffn, patch, block, text_width, .. } = *self;
        let of_patch = 3 * patch * patch * hidden * (1 + usize::from(self.is_qwen()))
            + layers * (4 * hidden * hidden + 2 * hidden * ffn + 2 * patches * hidden);
        let merged = hidden * block * block;
        let of_row = match self.is_qwen() {
            true => (1 + self.deepstack.len()) * (merged * merged + merged * text_width),
            false => hidden * text_width,
        };
        2.0 * (patches as f64 * of_patch as f64 + (patches / block / block) as f64 * of_row as f64)
    }

    fn is_qwen(&self) -> bool {
        self.projector == Projector::Qwen3Vl
    }

    fn config(&self) -> VisionConfig {
        let pictures = match self.is_qwen() {
            true => Pictures::Dynamic { min_pixels: 1 << 16, max_pixels: 1 << 24 },
            false => Pictures::Square,
        };
        VisionConfig {
            projector: self.projector,
            convention: Convention::Transformers,
            hidden: self.hidden,
            ffn: self.ffn,
            layers: self.layers,
            heads: 16,
            eps: 1e-6,
            activation: Activation::Gelu,
            text_width: self.text_width,
            row_width: self.text_width * (1 + self.deepstack.len()),
            patch: self.patch,
            block: self.block,
            image_size: self.image_size,
            mean: [0.5; 3],
            std: [0.5; 3],
            pictures,
            positions: PositionTable::Square { side: self.image_size / self.patch },
            rope_base: self.is_qwen().then_some(10_000.0),
            windows: None,
            deepstack: self.deepstack.to_vec(),
        }
    }

    fn tensors(&self, dtype: DType) -> Vec<Tensor> {
        let Self { hidden, ffn, patch, text_width, .. } = *self;
        let mut tensors = List { dtype, tensors: vec![] };
        let side = self.image_size / patch;
        let kernels: &[_] = if self.is_qwen() { &["weight", "weight.1"] } else { &["weight"] };
        for kernel in kernels {
            tensors.push(&format!("v.patch_embd.{kernel}"), DType::F32, &[hidden, 3, patch, patch]);
        }
        tensors.push("v.patch_embd.bias", DType::F32, &[hidden]);
        tensors.push("v.position_embd.weight", DType::F32, &[side * side, hidden]);
        for layer in 0..self.layers {
            let name = |part: &str| format!("v.blk.{layer}.{part}");
            tensors.norm(&name("ln1"), hidden);
            if self.is_qwen() {
                tensors.linear(&name("attn_qkv"), 3 * hidden, hidden);
            } else {
                for part in ["attn_q", "attn_k", "attn_v"] {
                    tensors.linear(&name(part), hidden, hidden);
                }
            }
            tensors.linear(&name("attn_out"), hidden, hidden);
            tensors.norm(&name("ln2"), hidden);
            tensors.linear(&name("ffn_up"), ffn, hidden);
            tensors.linear(&name("ffn_down"), hidden, ffn);
        }
        tensors.norm("v.post_ln", hidden);
        let merged = hidden * self.block.pow(2);
        for layer in self.deepstack {
            tensors.norm(&format!("v.deepstack.{layer}.norm"), merged);
            tensors.linear(&format!("v.deepstack.{layer}.fc1"), merged, merged);
            tensors.linear(&format!("v.deepstack.{layer}.fc2"), text_width, merged);
        }
        if self.is_qwen() {
            tensors.linear("mm.0", merged, merged);
            tensors.linear("mm.2", text_width, merged);
        } else {
            tensors.push("mm.soft_emb_norm.weight", DType::F32, &[hidden]);
            // Published files have this matrix in f16, whatever the others are in.
            tensors.push("mm.input_projection.weight", DType::F16, &[hidden, text_width]);
        }
        tensors.tensors
    }
}

/// The tensors of an encoder.
struct List {
    dtype: DType,
    tensors: Vec<Tensor>,
}

impl List {
    fn push(&mut self, name: &str, dtype: DType, shape: &[usize]) {
        self.tensors.push((name.into(), dtype, shape.to_vec()));
    }

    /// Adds a matrix, in f16 if its rows are not whole blocks of the format, and its bias.
    fn linear(&mut self, name: &str, rows: usize, columns: usize) {
        let dtype = if self.dtype.row_bytes(columns).is_some() { self.dtype } else { DType::F16 };
        self.push(&format!("{name}.weight"), dtype, &[rows, columns]);
        self.push(&format!("{name}.bias"), DType::F32, &[rows]);
    }

    fn norm(&mut self, name: &str, width: usize) {
        self.push(&format!("{name}.weight"), DType::F32, &[width]);
        self.push(&format!("{name}.bias"), DType::F32, &[width]);
    }
}

/// A linear congruential generator.
struct Random(u32);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    /// Returns the bytes of a tensor of weights from -1/16 to 1/16.
    fn tensor(&mut self, dtype: DType, elements: usize) -> Vec<u8> {
        /// 2^-11 in f16.
        const Q8_SCALE: [u8; 2] = 0x1000_u16.to_le_bytes();
        match dtype {
            DType::Q8_0 => (0..elements / 32)
                .flat_map(|_| Q8_SCALE.into_iter().chain((0..32).map(|_| self.next() as u8)).collect::<Vec<_>>())
                .collect(),
            // A sign, an exponent from 2^-12 to 2^-5, and a mantissa of ten bits.
            DType::F16 => (0..elements)
                .flat_map(|_| {
                    let bits = self.next();
                    let exponent = 3 + (bits >> 11 & 7);
                    ((bits & 0x8000) | exponent << 10 | bits & 0x3FF)
                        .to_le_bytes()
                        .into_iter()
                        .take(2)
                        .collect::<Vec<_>>()
                })
                .collect(),
            _ => (0..elements)
                .flat_map(|_| (((self.next() & 0xFFFF) as f32 / 32_768.0 - 1.0) / 16.0).to_le_bytes())
                .collect(),
        }
    }
}
