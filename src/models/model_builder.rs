//! Builds a model's graph: the graph builder, with look-ups of the model's tensors by name.

use std::collections::HashMap;

use super::{Config, LayerConfig, Model, NormKind, RopeConfig, Temperature, vision::ImageInputs};
use crate::{
    DType, Error, Result,
    graph::{Activation, Builder, Graph, RopeSpec, RopeStyle, Scores, ValueId},
    weights::{TensorSlice, Weight, Weights},
};

/// A graph under construction over a model's tensors. Each tensor is checked against the shape
/// that the family expects when the family looks it up.
pub(super) struct ModelBuilder<'a> {
    /// The builder of single ops.
    pub ops: Builder,
    weights: &'a Weights,
    /// The value of each tensor that has been looked up, so that a tensor is one value.
    tensors: HashMap<TensorSlice, ValueId>,
    frequencies: Vec<(RopeConfig, ValueId)>,
    /// The rows of images that the model takes in the place of tokens.
    images: Option<ImageInputs>,
}

/// The matrix of a product.
#[derive(Clone, Copy)]
pub(super) struct Projection<'n> {
    /// The tensor's name without `.weight`.
    pub name: &'n str,
    /// The number of rows, which is the width of the result.
    pub rows: usize,
}

/// The sizes and the activation of a gated feed-forward network.
#[derive(Clone, Copy)]
pub(super) struct FeedForward {
    /// The width of the residual stream.
    pub hidden: usize,
    /// The width between the two halves of the network.
    pub ffn: usize,
    /// The function of the gate or, without a gate, between the two halves.
    pub activation: Activation,
    /// Whether there is a gate.
    pub gated: bool,
}

impl<'a> ModelBuilder<'a> {
    pub fn new(weights: &'a Weights, images: Option<ImageInputs>) -> Self {
        Self { ops: Builder::new(), weights, tensors: HashMap::new(), frequencies: vec![], images }
    }

    /// Returns the number of rows of the tensor of this name, or `None` if the file has none.
    pub fn rows(&self, name: &str) -> Option<usize> {
        self.weights.rows(name)
    }

    /// Returns the kernels of a convolution, a tensor of the shape `[rows, ..shape]`, as a matrix.
    pub fn kernel(&mut self, name: &str, rows: usize, shape: [usize; 3]) -> Result<ValueId> {
        let weight = self.weights.get(name, &[&[rows], shape.as_slice()].concat())?;
        Ok(self.value_of(weight, rows, shape.iter().product()))
    }

    /// Returns whether the file has a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.weights.rows(name).is_some()
    }

    /// Returns a tensor of the shape `[rows, columns]`; a vector has one row.
    pub fn weight(&mut self, slice: impl Into<TensorSlice>, rows: usize, columns: usize) -> Result<ValueId> {
        let weight = self.weights.get(slice, &[rows, columns])?;
        Ok(self.value_of(weight, rows, columns))
    }

    /// Returns an optional tensor like [`weight`](Self::weight), or `None` if the file has none.
    pub fn optional_weight(
        &mut self,
        slice: impl Into<TensorSlice>,
        rows: usize,
        columns: usize,
    ) -> Result<Option<ValueId>> {
        let found = self.weights.find(slice, &[rows, columns])?;
        Ok(found.map(|weight| self.value_of(weight, rows, columns)))
    }

    /// Returns `x w^T` for the matrix `NAME.weight` `[rows, columns]`, plus `NAME.bias` if the file
    /// has it.
    pub fn linear(&mut self, x: ValueId, name: &str, rows: usize, columns: usize) -> Result<ValueId> {
        let product = self.product(x, &format!("{name}.weight").as_str().into(), rows, columns)?;
        let bias = self.optional_weight(&format!("{name}.bias"), 1, rows)?;
        Ok(bias.map_or(product, |bias| self.ops.add(product, bias)))
    }

    /// Returns `x w^T`, times the scale that the file may have for a matrix in `NVFP4`.
    fn product(&mut self, x: ValueId, slice: &TensorSlice, rows: usize, columns: usize) -> Result<ValueId> {
        let weight = self.weight(slice, rows, columns)?;
        let product = self.ops.matmul(x, weight);
        self.scaled(product, &slice.name, 1)
    }

    /// Returns `x` times the tensor `NAME.scale`, a factor for each of `count` matrices that are
    /// stacked in the tensor `NAME.weight`, if these are in `NVFP4` and the file has it.
    pub fn scaled(&mut self, x: ValueId, weight: &str, count: usize) -> Result<ValueId> {
        let Some(name) = weight.strip_suffix(".weight").filter(|_| self.weights.dtype(weight) == Some(DType::NVFP4))
        else {
            return Ok(x);
        };
        let scales = self.optional_weight(&format!("{name}.scale"), 1, count)?;
        Ok(scales.map_or(x, |scales| self.ops.mul(x, scales)))
    }

    /// Returns [`linear`](Self::linear) for each of several matrices, which the file may also have
    /// joined, one after the other, in the tensor `joined`.
    pub fn linears<const N: usize>(
        &mut self,
        x: ValueId,
        joined: &str,
        projections: [Projection<'_>; N],
        columns: usize,
    ) -> Result<[ValueId; N]> {
        let all_rows = projections.iter().map(|projection| projection.rows).sum();
        let are_joined = !self.has(&format!("{}.weight", projections[0].name))
            && self.weights.rows(&format!("{joined}.weight")) == Some(all_rows);
        let mut first = 0;
        let mut results = [x; N];
        for (result, Projection { name, rows }) in results.iter_mut().zip(projections) {
            let slice = |suffix: &str| {
                if are_joined {
                    TensorSlice::rows(format!("{joined}.{suffix}"), first..first + rows)
                } else {
                    TensorSlice::from(&format!("{name}.{suffix}"))
                }
            };
            let product = self.product(x, &slice("weight"), rows, columns)?;
            let bias = self.optional_weight(slice("bias"), 1, rows)?;
            *result = bias.map_or(product, |bias| self.ops.add(product, bias));
            first += rows;
        }
        Ok(results)
    }

    /// Returns the feed-forward network `down(f(gate x) * up x)` of the matrices `NAME_gate`,
    /// `NAME_up` and `NAME_down` ([Shazeer 2020](https://arxiv.org/abs/2002.05202)). If the file
    /// has no `NAME_gate`, the gate is the first half of `NAME_up`. A network without a gate is
    /// `down f(up x)`.
    pub fn feed_forward(&mut self, x: ValueId, name: &str, network: FeedForward) -> Result<ValueId> {
        let FeedForward { hidden, ffn, activation, gated } = network;
        let [gate, up] = [format!("{name}_gate"), format!("{name}_up")];
        if !gated {
            let up = self.linear(x, &up, ffn, hidden)?;
            let up = self.ops.activate(activation, up);
            return self.linear(up, &format!("{name}_down"), hidden, ffn);
        }
        let projections = [&gate, &up].map(|name| Projection { name, rows: ffn });
        let [gate, up] = self.linears(x, &up, projections, hidden)?;
        let gate = self.ops.activate(activation, gate);
        let product = self.ops.mul(gate, up);
        self.linear(product, &format!("{name}_down"), hidden, ffn)
    }

    /// Returns a tensor of `count` matrices `[rows, columns]`, as one matrix.
    pub fn stack(&mut self, name: &str, count: usize, rows: usize, columns: usize) -> Result<ValueId> {
        let stack = self.optional_stack(name, count, rows, columns)?;
        stack.ok_or_else(|| Error::tensor(name, "is missing from the file"))
    }

    /// Returns an optional tensor like [`stack`](Self::stack), or `None` if the file has none.
    pub fn optional_stack(&mut self, name: &str, count: usize, rows: usize, columns: usize) -> Result<Option<ValueId>> {
        let found = self.weights.find(name, &[count, rows, columns])?;
        Ok(found.map(|weight| self.value_of(weight, count * rows, columns)))
    }

    /// Returns the RMS norm of each group of `width` elements, with the weights `NAME.weight`.
    pub fn rms_norm(&mut self, x: ValueId, name: &str, width: usize, eps: f32) -> Result<ValueId> {
        let weight = self.weight(&format!("{name}.weight"), 1, width)?;
        Ok(self.ops.rms_norm(x, weight, eps))
    }

    /// Returns the RMS norm of each group of `width` elements, without weights.
    pub fn unweighted_norm(&mut self, x: ValueId, width: usize, eps: f32) -> ValueId {
        let ones = self.ops.constant(vec![1.0; width]);
        self.ops.rms_norm(x, ones, eps)
    }

    /// Returns the norm `NAME` of rows of the residual stream, of the model's kind.
    pub fn norm(&mut self, x: ValueId, name: &str, config: &Config) -> Result<ValueId> {
        match config.norm {
            NormKind::Rms => self.rms_norm(x, name, config.hidden, config.rms_eps),
            NormKind::Layer => self.layer_norms(x, name, [1, config.hidden], config.rms_eps),
        }
    }

    /// Returns the layer norm of each of `groups` groups of `width` elements, with the weights
    /// `NAME.weight`, and the biases `NAME.bias` if the file has them. Several groups have a row of
    /// weights each.
    pub fn layer_norms(&mut self, x: ValueId, name: &str, [groups, width]: [usize; 2], eps: f32) -> Result<ValueId> {
        let weight = self.weights.get(&format!("{name}.weight"), &[groups, width])?;
        let weight = self.value_of(weight, 1, groups * width);
        let bias = self.weights.find(&format!("{name}.bias"), &[groups, width])?;
        let bias = match bias {
            Some(bias) => self.value_of(bias, 1, groups * width),
            None => self.ops.constant(vec![0.0; groups * width]),
        };
        Ok(self.ops.layer_norms(x, [weight, bias], eps, groups))
    }

    /// Returns the frequency of each pair of a head's elements, in radians per position.
    pub fn frequencies(&mut self, rope: &RopeConfig) -> Result<ValueId> {
        if let Some((_, known)) = self.frequencies.iter().find(|(known, _)| known == rope) {
            return Ok(*known);
        }
        let mut frequencies = self.ops.constant(rope.frequencies(self.images));
        if let Some(name) = rope.divisors {
            let divisors = self.optional_weight(name, 1, rope.dim / 2)?;
            frequencies = divisors.map_or(frequencies, |divisors| self.ops.div(frequencies, divisors));
        }
        self.frequencies.push((*rope, frequencies));
        Ok(frequencies)
    }

    /// Returns a layer's queries, or queries and keys, rotated, and the layer's [`Scores`] with
    /// YaRN's and LongRoPE's attention factor included.
    pub fn rotate<const N: usize>(
        &mut self,
        layer: &LayerConfig,
        style: RopeStyle,
        mut heads: [ValueId; N],
    ) -> Result<([ValueId; N], Scores)> {
        let Some(rope) = &layer.rope else { return Ok((heads, layer.scores)) };
        let frequencies = self.frequencies(rope)?;
        let mut scores = layer.scores;
        let factor = rope.score_factor();
        if rope.dim == layer.head_dim {
            // A part of the scale, the factor costs nothing.
            scores.scale *= factor;
        } else if factor != 1.0 {
            heads[0] = self.scale_rotated(layer, rope, heads[0]);
        }
        let spec = RopeSpec { style, head_dim: layer.head_dim, axes: rope.axes };
        Ok((heads.map(|x| self.ops.rope(x, frequencies, spec)), scores))
    }

    /// Scales the rotated part of each query head by the factor of the scores.
    fn scale_rotated(&mut self, layer: &LayerConfig, rope: &RopeConfig, queries: ValueId) -> ValueId {
        let head = (0..layer.head_dim).map(|i| if i < rope.dim { rope.score_factor() } else { 1.0 });
        let row: Vec<f32> = head.cycle().take(layer.heads * layer.head_dim).collect();
        let row = self.ops.constant(row);
        self.ops.mul(queries, row)
    }

    /// Returns a layer's queries, which grow with their position if the layer says so.
    pub fn temper(&mut self, layer: &LayerConfig, queries: ValueId) -> ValueId {
        let Some(Temperature { scale, interval, offset }) = layer.temperature else { return queries };
        self.ops.temper(queries, scale, interval, offset)
    }

    /// Returns every element times `factor`.
    pub fn scale(&mut self, x: ValueId, factor: f32) -> ValueId {
        if factor == 1.0 {
            return x;
        }
        let factor = self.ops.constant([factor]);
        self.ops.mul(x, factor)
    }

    /// Returns the embeddings of the step's tokens, with the rows of images in the place of
    /// their tokens' embeddings.
    pub fn embedding(&mut self, config: &Config) -> Result<ValueId> {
        let tokens = self.ops.tokens();
        let table = self.weight("token_embd.weight", config.vocab_size, config.hidden)?;
        let x = self.ops.embed(table, tokens);
        let x = self.scale(x, config.embedding_scale);
        Ok(if self.images.is_some() { self.ops.place_rows(x, 0) } else { x })
    }

    /// Returns the embeddings `x` of the tokens of a head for multi-token prediction, with the rows
    /// of images in the place of their tokens' embeddings. The head's step gives, for each token, a
    /// hidden row of width `hidden`, a mark that is not 0 for a token of an image, and the row.
    pub fn place_images_of_head(&mut self, x: ValueId, hidden: usize) -> ValueId {
        if self.images.is_some() { self.ops.place_marked_rows(x, hidden + 1) } else { x }
    }

    /// Returns the residual stream `x` after layer `index` of width `hidden`. To the first layers
    /// the rows of images add their further parts ([Meng et al.
    /// 2024](https://arxiv.org/abs/2406.04334)).
    pub fn add_deepstack(&mut self, x: ValueId, hidden: usize, index: usize) -> ValueId {
        let parts = self.images.map_or(1, |images| images.row_width / hidden);
        if index + 1 < parts { self.ops.add_rows(x, (index + 1) * hidden) } else { x }
    }

    /// Returns the model whose output head reads `x`: a norm, then the matrix `output.weight` or,
    /// if the file has none, the embedding.
    pub fn finish(self, config: Config, x: ValueId) -> Result<Model> {
        self.finish_with(config, x, None)
    }

    /// Returns the model like [`finish`](Self::finish), with its head for multi-token prediction.
    pub fn finish_with(mut self, config: Config, x: ValueId, mtp: Option<Graph>) -> Result<Model> {
        const NORM: &str = "output_norm";
        // Files of LFM2 name it as if it followed the embedding.
        let other = ["token_embd_norm"].into_iter().find(|name| self.has(&format!("{name}.weight")));
        let is_there = self.has(&format!("{NORM}.weight"));
        let x = self.norm(x, other.filter(|_| !is_there).unwrap_or(NORM), &config)?;
        let logits = self.logits(&config, x, &[])?;
        let hidden = mtp.is_some().then_some(x);
        Ok(Model { graph: self.ops.finish_with(logits, hidden)?, config, mtp })
    }

    /// Returns the logits of normed rows, with the first of the matrices `names` that the file has,
    /// else with `output.weight` or the embedding.
    pub fn logits(&mut self, config: &Config, x: ValueId, names: &[&str]) -> Result<ValueId> {
        // A row of `x` is shorter than a row of logits.
        let x = self.scale(x, config.logit_scale);
        let has = |name: &&str| self.has(&format!("{name}.weight"));
        let head = names.iter().copied().chain(["output"]).find(has).unwrap_or("token_embd");
        let logits = self.linear(x, head, config.vocab_size, config.hidden)?;
        Ok(config.logit_softcap.map_or(logits, |cap| self.ops.soft_cap(logits, cap)))
    }

    /// Returns a builder of another graph over the same tensors.
    pub fn another(&self) -> Self {
        Self::new(self.weights, self.images)
    }

    /// Returns a tensor of the shape `[rows, columns]` as one row.
    pub fn row(&mut self, name: &str, [rows, columns]: [usize; 2]) -> Result<ValueId> {
        let weight = self.weights.get(name, &[rows, columns])?;
        Ok(self.value_of(weight, 1, rows * columns))
    }

    fn value_of(&mut self, weight: Weight<'_>, rows: usize, columns: usize) -> ValueId {
        let Weight { slice, dtype, .. } = weight;
        let ops = &mut self.ops;
        *self.tensors.entry(slice).or_insert_with_key(|slice| ops.weight(slice, dtype, rows, columns))
    }
}
