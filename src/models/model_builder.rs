//! What a family's `build` writes its graph with: the graph builder, and the model's tensors to name in it.

use std::collections::HashMap;

use super::{Config, Experts, LayerConfig, Model, RopeConfig};
use crate::{
    Error, Result,
    graph::{Activation, Builder, ExpertsSpec, RopeSpec, RopeStyle, Scores, ValueId},
    weights::{TensorSlice, Weight, Weights},
};

/// A graph in the making over a model's tensors, each of which is held to its shape where it is named.
pub(super) struct Wiring<'a> {
    /// The ops.
    pub builder: Builder,
    weights: &'a Weights,
    named: HashMap<TensorSlice, ValueId>,
    frequencies: Vec<(RopeConfig, ValueId)>,
}

impl<'a> Wiring<'a> {
    pub fn new(weights: &'a Weights) -> Self {
        Self { builder: Builder::new(), weights, named: HashMap::new(), frequencies: vec![] }
    }

    /// The tensor of this name, of the shape `[rows, columns]`; a vector is one row.
    pub fn weight(&mut self, slice: impl Into<TensorSlice>, rows: usize, columns: usize) -> Result<ValueId> {
        let weight = self.weights.get(slice, &[rows, columns])?;
        Ok(self.name(weight, rows, columns))
    }

    /// As [`weight`](Self::weight), for a tensor that the file may lack.
    pub fn optional_weight(
        &mut self,
        slice: impl Into<TensorSlice>,
        rows: usize,
        columns: usize,
    ) -> Result<Option<ValueId>> {
        let found = self.weights.find(slice, &[rows, columns])?;
        Ok(found.map(|weight| self.name(weight, rows, columns)))
    }

    /// `x w^T` with `NAME.weight`, `[rows, columns]`; plus `NAME.bias` where the file has it.
    pub fn linear(&mut self, x: ValueId, name: &str, rows: usize, columns: usize) -> Result<ValueId> {
        let w = self.weight(&format!("{name}.weight"), rows, columns)?;
        let y = self.builder.matmul(x, w);
        let bias = self.optional_weight(&format!("{name}.bias"), 1, rows)?;
        Ok(bias.map_or(y, |bias| self.builder.add(y, bias)))
    }

    /// As [`linear`](Self::linear) for several, of so many rows each; or for the rows of `joined`, where the file has them
    /// in one matrix.
    pub fn linears<const N: usize>(
        &mut self,
        x: ValueId,
        joined: &str,
        parts: [(&str, usize); N],
        columns: usize,
    ) -> Result<[ValueId; N]> {
        let all = parts.iter().map(|(_, rows)| rows).sum();
        let own = self.weights.rows(&format!("{}.weight", parts[0].0)).is_some()
            || self.weights.rows(&format!("{joined}.weight")) != Some(all);
        let mut first = 0;
        let mut results = [x; N];
        for (result, (name, rows)) in results.iter_mut().zip(parts) {
            let slice = |suffix: &str| match own {
                true => TensorSlice::from(&format!("{name}.{suffix}")),
                false => TensorSlice::rows(format!("{joined}.{suffix}"), first..first + rows),
            };
            let weight = self.weight(slice("weight"), rows, columns)?;
            *result = self.builder.matmul(x, weight);
            let bias = self.optional_weight(slice("bias"), 1, rows)?;
            first += rows;
            if let Some(bias) = bias {
                *result = self.builder.add(*result, bias);
            }
        }
        Ok(results)
    }

    /// A feed-forward of three matrices: `down(f(gate x) * up x)`, with `NAME_gate`, `NAME_up` and `NAME_down`
    /// ([Shazeer 2020](https://arxiv.org/abs/2002.05202)). Where there is no `NAME_gate` it is the first half of `NAME_up`.
    pub fn feed_forward(
        &mut self,
        x: ValueId,
        name: &str,
        [hidden, ffn]: [usize; 2],
        f: Activation,
    ) -> Result<ValueId> {
        let [gate, up] = [format!("{name}_gate"), format!("{name}_up")];
        let [gate, up] = self.linears(x, &up, [(&gate, ffn), (&up, ffn)], hidden)?;
        let gate = self.builder.activate(f, gate);
        let h = self.builder.mul(gate, up);
        self.linear(h, &format!("{name}_down"), hidden, ffn)
    }

    /// A mixture of experts: the `NAME_gate_inp` matrix chooses, and the chosen are added up by the softmax of what it
    /// says of them ([Jiang et al. 2024](https://arxiv.org/abs/2401.04088)).
    pub fn mixture(&mut self, x: ValueId, name: &str, hidden: usize, e: &Experts, f: Activation) -> Result<ValueId> {
        let logits = self.linear(x, &format!("{name}_gate_inp"), e.count, hidden)?;
        let weights = self.builder.route(logits, e.used);
        self.experts([x, weights], name, hidden, e, f)
    }

    /// The sum of what `NAME_gate_exps`, `NAME_up_exps` and `NAME_down_exps` (the first two perhaps in one,
    /// `NAME_gate_up_exps`) make of a row, by a weight for each expert.
    pub fn experts(
        &mut self,
        [x, weights]: [ValueId; 2],
        name: &str,
        hidden: usize,
        e: &Experts,
        activation: Activation,
    ) -> Result<ValueId> {
        let of = |part: &str| format!("{name}_{part}_exps.weight");
        let mut matrices = match self.optional_stack(&of("gate_up"), [e.count, 2 * e.ffn, hidden])? {
            Some(both) => vec![both],
            None => vec![
                self.stack(&of("gate"), [e.count, e.ffn, hidden])?,
                self.stack(&of("up"), [e.count, e.ffn, hidden])?,
            ],
        };
        matrices.push(self.stack(&of("down"), [e.count, hidden, e.ffn])?);
        let spec = ExpertsSpec { experts: e.count, used: e.used, activation };
        Ok(self.builder.experts(x, weights, &matrices, spec))
    }

    /// The tensor of this name, of `count` matrices `[rows, columns]`.
    fn stack(&mut self, name: &str, shape: [usize; 3]) -> Result<ValueId> {
        self.optional_stack(name, shape)?.ok_or_else(|| Error::tensor(name, "is missing from the file"))
    }

    fn optional_stack(&mut self, name: &str, [count, rows, columns]: [usize; 3]) -> Result<Option<ValueId>> {
        let found = self.weights.find(name, &[count, rows, columns])?;
        Ok(found.map(|weight| self.name(weight, count * rows, columns)))
    }

    /// RMS norm by `NAME.weight` of each `n` elements.
    pub fn rms_norm(&mut self, x: ValueId, name: &str, n: usize, eps: f32) -> Result<ValueId> {
        let w = self.weight(&format!("{name}.weight"), 1, n)?;
        Ok(self.builder.rms_norm(x, w, eps))
    }

    /// The radians that each pair of a head's elements turns a position.
    pub fn frequencies(&mut self, rope: &RopeConfig) -> Result<ValueId> {
        if let Some((_, known)) = self.frequencies.iter().find(|(known, _)| known == rope) {
            return Ok(*known);
        }
        let mut frequencies = self.builder.constant(rope.frequencies());
        if let Some(name) = rope.divisors {
            let divisors = self.optional_weight(name, 1, rope.dim / 2)?;
            frequencies = divisors.map_or(frequencies, |divisors| self.builder.div(frequencies, divisors));
        }
        self.frequencies.push((*rope, frequencies));
        Ok(frequencies)
    }

    /// Queries, or queries and keys, of a layer as its heads are rotated, and what then becomes of their scores.
    pub fn rotated<const N: usize>(
        &mut self,
        layer: &LayerConfig,
        style: RopeStyle,
        mut rows: [ValueId; N],
    ) -> Result<([ValueId; N], Scores)> {
        let Some(rope) = &layer.rope else { return Ok((rows, layer.scores)) };
        let frequencies = self.frequencies(rope)?;
        let mut scores = layer.scores;
        if rope.dim == layer.head_dim {
            // Put here, growth costs nothing.
            scores.scale *= rope.growth();
        } else if rope.growth() != 1.0 {
            rows[0] = self.grown(layer, rope, rows[0]);
        }
        let spec = RopeSpec { style, head_dim: layer.head_dim };
        Ok((rows.map(|x| self.builder.rope(x, frequencies, spec)), scores))
    }

    /// Queries, what of their heads is rotated larger by what their products with keys grow by.
    fn grown(&mut self, layer: &LayerConfig, rope: &RopeConfig, queries: ValueId) -> ValueId {
        let head = (0..layer.head_dim).map(|i| if i < rope.dim { rope.growth() } else { 1.0 });
        let row: Vec<f32> = head.cycle().take(layer.heads * layer.head_dim).collect();
        let row = self.builder.constant(row);
        self.builder.mul(queries, row)
    }

    /// Whether the file has a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.weights.rows(name).is_some()
    }

    /// Every element times `factor`.
    pub fn scale(&mut self, x: ValueId, factor: f32) -> ValueId {
        if factor == 1.0 {
            return x;
        }
        let factor = self.builder.constant([factor]);
        self.builder.mul(x, factor)
    }

    /// The step's tokens as rows of the embedding.
    pub fn embedding(&mut self, config: &Config) -> Result<ValueId> {
        let tokens = self.builder.tokens();
        let table = self.weight("token_embd.weight", config.vocab_size, config.hidden)?;
        let x = self.builder.embed(table, tokens);
        Ok(self.scale(x, config.embedding_scale))
    }

    /// The model whose logits are `x`, normed, times `output.weight` or, where the file has none, the embedding.
    pub fn finish(mut self, config: Config, x: ValueId) -> Result<Model> {
        let x = self.rms_norm(x, "output_norm", config.hidden, config.rms_eps)?;
        // Fewer products than on the logits themselves.
        let x = self.scale(x, config.logit_scale);
        let own = self.weights.find("output.weight", &[config.vocab_size, config.hidden])?;
        let head = if own.is_some() { "output" } else { "token_embd" };
        let logits = self.linear(x, head, config.vocab_size, config.hidden)?;
        let logits = config.logit_softcap.map_or(logits, |cap| self.builder.soft_cap(logits, cap));
        Ok(Model { graph: self.builder.finish(logits)?, config })
    }

    fn name(&mut self, weight: Weight<'_>, rows: usize, columns: usize) -> ValueId {
        let Weight { slice, dtype, .. } = weight;
        let builder = &mut self.builder;
        *self.named.entry(slice).or_insert_with_key(|slice| builder.weight(slice, dtype, rows, columns))
    }
}
