//! Builds the parts that several vision encoders share.

use super::{PositionTable, VisionConfig};
use crate::{
    Result,
    graph::{Activation, Graph, LayerCache, RopeAxes, RopeSpec, RopeStyle, Scores, Sees, ValueId},
    models::model_builder::{ModelBuilder, Projection},
};

/// The number of the set of taps for learned positions.
pub const POSITION_TAPS: usize = 0;
/// The number of the set of taps that names the class token.
pub const CLASS_TAPS: usize = 1;
/// The number of the set of taps that names all patches.
pub const PATCH_TAPS: usize = 2;

/// The graph of a vision encoder under construction.
pub(super) struct Encoder<'a> {
    pub config: &'a VisionConfig,
    pub graph: ModelBuilder<'a>,
}

/// The norm of an encoder's layers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Norm {
    Layer,
    Rms,
}

impl<'a> Encoder<'a> {
    pub fn new(config: &'a VisionConfig, graph: ModelBuilder<'a>) -> Self {
        Self { config, graph }
    }

    /// Returns the product of the patches' pixels and the kernels of this name.
    pub fn patches(&mut self, kernels: &[&str]) -> Result<ValueId> {
        let VisionConfig { hidden, patch, .. } = *self.config;
        let width = 3 * patch * patch;
        let pixels = self.graph.ops.input_rows(width);
        let mut sum = None;
        for kernel in kernels {
            let kernel = self.graph.kernel(kernel, hidden, [3, patch, patch])?;
            let product = self.graph.ops.matmul(pixels, kernel);
            sum = Some(sum.map_or(product, |sum| self.graph.ops.add(sum, product)));
        }
        Ok(sum.unwrap_or(pixels))
    }

    /// Returns `x` plus the vector of this name.
    pub fn add_vector(&mut self, x: ValueId, name: &str, width: usize) -> Result<ValueId> {
        let vector = self.graph.weight(name, 1, width)?;
        Ok(self.graph.ops.add(x, vector))
    }

    /// Returns `x` plus the learned position of each patch.
    pub fn add_positions(&mut self, x: ValueId) -> Result<ValueId> {
        const NAME: &str = "v.position_embd.weight";
        let hidden = self.config.hidden;
        let table = match self.config.positions {
            PositionTable::None => return Ok(x),
            PositionTable::Square { side } => self.graph.weight(NAME, side * side, hidden)?,
            PositionTable::WithClass { side } => self.graph.weight(NAME, side * side + 1, hidden)?,
            PositionTable::Axes { len } => self.graph.stack(NAME, 2, len, hidden)?,
        };
        let positions = self.graph.ops.interpolate(table, POSITION_TAPS);
        Ok(self.graph.ops.add(x, positions))
    }

    /// Returns the norm of rows of `width` elements, with the weight and the bias of this name.
    pub fn norm(&mut self, norm: Norm, x: ValueId, name: &str, width: usize, eps: f32) -> Result<ValueId> {
        match norm {
            Norm::Rms => self.graph.rms_norm(x, name, width, eps),
            Norm::Layer => {
                let weight = self.graph.weight(&format!("{name}.weight"), 1, width)?;
                let bias = self.graph.weight(&format!("{name}.bias"), 1, width)?;
                Ok(self.graph.ops.layer_norm(x, [weight, bias], eps))
            }
        }
    }

    /// Returns the queries, keys and values of layer `index` for the normed rows `x`.
    pub fn queries_keys_values(&mut self, x: ValueId, index: usize) -> Result<[ValueId; 3]> {
        let hidden = self.config.hidden;
        let name = |part: &str| format!("v.blk.{index}.attn_{part}");
        let [q, k, v] = ["q", "k", "v"].map(name);
        let projections = [&q, &k, &v].map(|name| Projection { name, rows: hidden });
        self.graph.linears(x, &name("qkv"), projections, hidden)
    }

    /// Returns queries and keys that are rotated by the rows and columns of their patches.
    pub fn rotate(&mut self, heads: [ValueId; 2], style: RopeStyle) -> [ValueId; 2] {
        let Some(base) = self.config.rope_base else { return heads };
        let head_dim = self.config.head_dim();
        let quarter = head_dim / 4;
        let frequency = |pair: usize| f64::from(base).powf(-4.0 * (pair % quarter) as f64 / head_dim as f64);
        let frequencies: Vec<_> = (0..2 * quarter).map(|pair| frequency(pair) as f32).collect();
        let frequencies = self.graph.ops.constant(frequencies);
        let spec = RopeSpec { style, head_dim, axes: RopeAxes::Sections([0, quarter as u16, quarter as u16]) };
        heads.map(|x| self.graph.ops.rope(x, frequencies, spec))
    }

    /// Returns attention among the patches of a picture or, in a layer with windows, of a window.
    pub fn attend(&mut self, [q, k, v]: [ValueId; 3], index: usize, scale: f32) -> ValueId {
        let (heads, head_dim) = (self.config.heads, self.config.head_dim());
        let sees = if self.config.has_windows(index) { Sees::Span } else { Sees::Run };
        let scores = Scores { sees, ..scale.into() };
        self.graph.ops.step_attention(
            [q, k, v],
            LayerCache { kv_heads: heads, head_dim, keys_only: false },
            heads,
            scores,
        )
    }

    /// Returns the result of attention after the output matrix of layer `index`.
    pub fn attention_output(&mut self, attended: ValueId, index: usize) -> Result<ValueId> {
        let hidden = self.config.hidden;
        self.graph.linear(attended, &format!("v.blk.{index}.attn_out"), hidden, hidden)
    }

    /// Returns the feed-forward network of layer `index`: two matrices with an activation between.
    /// Old files have the names of the two exchanged.
    pub fn feed_forward(&mut self, x: ValueId, index: usize) -> Result<ValueId> {
        let VisionConfig { hidden, ffn, activation, .. } = *self.config;
        let [up, down] = ["up", "down"].map(|part| format!("v.blk.{index}.ffn_{part}"));
        let exchanged = hidden != ffn && self.graph.rows(&format!("{up}.weight")) == Some(hidden);
        let [first, second] = if exchanged { [down, up] } else { [up, down] };
        let x = self.graph.linear(x, &first, ffn, hidden)?;
        let x = self.graph.ops.activate(activation, x);
        self.graph.linear(x, &second, hidden, ffn)
    }

    /// Returns the perceptron `NAMES[1](f(NAMES[0] x))` from `width` elements over `inner` to the
    /// width of the text model.
    pub fn perceptron(
        &mut self,
        x: ValueId,
        names: [&str; 2],
        [width, inner]: [usize; 2],
        activation: Activation,
    ) -> Result<ValueId> {
        let x = self.graph.linear(x, names[0], inner, width)?;
        let x = self.graph.ops.activate(activation, x);
        self.graph.linear(x, names[1], self.config.text_width, inner)
    }

    /// Returns the rows of each block's patches, joined.
    pub fn join_blocks(&mut self, x: ValueId) -> ValueId {
        self.graph.ops.join_rows(x, self.config.block.pow(2))
    }

    /// Returns the mean of each block's patches.
    pub fn mean_of_blocks(&mut self, x: ValueId) -> ValueId {
        let (patches, hidden) = (self.config.block.pow(2), self.config.hidden);
        let joined = self.join_blocks(x);
        let rows: Vec<_> =
            (0..patches).map(|patch| self.graph.ops.slice(joined, patch * hidden, hidden, patches * hidden)).collect();
        let sum = rows.into_iter().reduce(|sum, row| self.graph.ops.add(sum, row)).unwrap_or(joined);
        self.graph.scale(sum, 1.0 / patches as f32)
    }

    pub fn finish(self, rows: ValueId) -> Result<Graph> {
        self.graph.ops.finish(rows)
    }
}
