//! Builds graphs, for models and for passes.

use std::sync::Arc;

use super::{
    Activation, AttentionSpec, ConvSpec, DeltaSpec, ExpertsSpec, Graph, LayerCache, LayerState, Node, Op, RopeSpec,
    RouteSpec, Rows, ScanSpec, Scores, Shape, Source, Value, ValueId,
};
use crate::{DType, Error, Result, weights::TensorSlice};

/// Builds a [`Graph`], one node per call, in the order of computation.
///
/// Shapes are inferred as nodes are added. The methods return values instead of `Result`s, so that
/// a layer reads like its formula: the first error is kept, and [`Builder::finish`] returns it.
#[derive(Debug, Default)]
pub struct Builder {
    values: Vec<Value>,
    nodes: Vec<Node>,
    caches: Vec<LayerCache>,
    states: Vec<LayerState>,
    error: Option<String>,
}

impl Builder {
    /// Returns a builder of an empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the step's token ids, `[Tokens, 1]`.
    pub fn tokens(&mut self) -> ValueId {
        self.source(Shape::new(Rows::Tokens, 1), Source::Tokens)
    }

    /// Returns a tensor of the model, or some of its rows: a matrix `[rows, columns]`, or a vector
    /// as one row.
    pub fn weight(&mut self, slice: impl Into<TensorSlice>, dtype: DType, rows: usize, columns: usize) -> ValueId {
        self.source(Shape::new(Rows::Fixed(rows), columns), Source::Weight { slice: slice.into(), dtype })
    }

    /// Returns a constant row.
    pub fn constant(&mut self, row: impl Into<Arc<[f32]>>) -> ValueId {
        let row = row.into();
        self.source(Shape::new(Rows::Fixed(1), row.len()), Source::Constant(row))
    }

    /// Returns the rows of `table` for `tokens`.
    pub fn embed(&mut self, table: ValueId, tokens: ValueId) -> ValueId {
        self.push(Op::Embed, &[table, tokens])
    }

    /// Returns `x w^T`.
    pub fn matmul(&mut self, x: ValueId, w: ValueId) -> ValueId {
        self.push(Op::MatMul, &[x, w])
    }

    /// Returns `x w^T` of each of `heads` heads.
    pub fn matmul_heads(&mut self, x: ValueId, w: ValueId, heads: usize) -> ValueId {
        self.push(Op::MatMulHeads { heads }, &[x, w])
    }

    /// Returns `a + b`; `b` may be one row or one number.
    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.push(Op::Add, &[a, b])
    }

    /// Returns `a * b` element by element; `b` may be one row or one number.
    pub fn mul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.push(Op::Mul, &[a, b])
    }

    /// Returns `a / b` element by element; `b` may be one row or one number.
    pub fn div(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.push(Op::Div, &[a, b])
    }

    /// Returns the activation of each element.
    pub fn activate(&mut self, activation: Activation, x: ValueId) -> ValueId {
        self.push(Op::Activate(activation), &[x])
    }

    /// Returns `x / (1 + exp(-x))`.
    pub fn silu(&mut self, x: ValueId) -> ValueId {
        self.activate(Activation::Silu, x)
    }

    /// Returns each element, limited to the numbers `lower` and `upper`.
    pub fn clamp(&mut self, x: ValueId, [lower, upper]: [ValueId; 2]) -> ValueId {
        self.push(Op::Clamp, &[x, lower, upper])
    }

    /// Returns the rows of all operands, joined.
    pub fn concat(&mut self, operands: &[ValueId]) -> ValueId {
        self.concat_groups(operands, 1)
    }

    /// Returns each of `groups` groups of the rows of all operands, joined.
    pub fn concat_groups(&mut self, operands: &[ValueId], groups: usize) -> ValueId {
        self.push(Op::Concat { groups }, operands)
    }

    /// Returns `len` elements, from `first` on, of each group of `every` elements.
    pub fn slice(&mut self, x: ValueId, first: usize, len: usize, every: usize) -> ValueId {
        self.push(Op::Slice { first, len, every }, &[x])
    }

    /// Returns `cap tanh(x / cap)`.
    pub fn soft_cap(&mut self, x: ValueId, cap: f32) -> ValueId {
        self.push(Op::SoftCap { cap }, &[x])
    }

    /// Returns the RMS norm of each group of elements as wide as `w`.
    pub fn rms_norm(&mut self, x: ValueId, w: ValueId, eps: f32) -> ValueId {
        self.push(Op::RmsNorm { eps }, &[x, w])
    }

    /// Returns the layer norm of each row, with weight `w` and bias `b`.
    pub fn layer_norm(&mut self, x: ValueId, [w, b]: [ValueId; 2], eps: f32) -> ValueId {
        self.layer_norms(x, [w, b], eps, 1)
    }

    /// Returns the layer norm of each of `groups` groups of elements of a row.
    pub fn layer_norms(&mut self, x: ValueId, [w, b]: [ValueId; 2], eps: f32, groups: usize) -> ValueId {
        self.push(Op::LayerNorm { eps, groups }, &[x, w, b])
    }

    /// Returns `x` with rotary position embedding.
    pub fn rope(&mut self, x: ValueId, frequencies: ValueId, spec: RopeSpec) -> ValueId {
        self.push(Op::Rope(spec), &[x, frequencies])
    }

    /// Returns causal attention of `heads` query heads over a new cache layer. A number for
    /// `scores` is their scale.
    pub fn attention(
        &mut self,
        [q, k, v]: [ValueId; 3],
        cache: LayerCache,
        heads: usize,
        scores: impl Into<Scores>,
    ) -> ValueId {
        self.attention_over(&[q, k, v], cache, heads, scores.into())
    }

    /// Returns causal attention like [`attention`](Self::attention), whose values are the keys,
    /// over a new cache layer of keys only.
    pub fn attention_to_keys(
        &mut self,
        [q, k]: [ValueId; 2],
        cache: LayerCache,
        heads: usize,
        scores: impl Into<Scores>,
    ) -> ValueId {
        self.attention_over(&[q, k], cache, heads, scores.into())
    }

    fn attention_over(&mut self, operands: &[ValueId], cache: LayerCache, heads: usize, scores: Scores) -> ValueId {
        let LayerCache { kv_heads, head_dim, keys_only } = cache;
        let spec = AttentionSpec { layer: self.caches.len(), heads, kv_heads, head_dim, keys_only, scores };
        self.caches.push(cache);
        self.push(Op::Attention(spec), operands)
    }

    /// Returns causal attention like [`attention`](Self::attention), whose softmax has one more
    /// score for each head, `sinks` `[1, heads]`.
    pub fn attention_with_sinks(
        &mut self,
        [q, k, v]: [ValueId; 3],
        sinks: ValueId,
        cache: LayerCache,
        heads: usize,
        scores: impl Into<Scores>,
    ) -> ValueId {
        self.attention_over(&[q, k, v, sinks], cache, heads, scores.into())
    }

    /// Returns causal attention like [`attention`](Self::attention), over the keys and values that
    /// an earlier attention has appended to cache layer `layer`.
    pub fn shared_attention(&mut self, q: ValueId, layer: usize, heads: usize, scores: impl Into<Scores>) -> ValueId {
        let LayerCache { kv_heads, head_dim, keys_only } = self.caches.get(layer).copied().unwrap_or_else(|| {
            self.error.get_or_insert_with(|| format!("cache layer {layer} is read before an attention fills it"));
            LayerCache { kv_heads: 1, head_dim: 1, keys_only: false }
        });
        let spec = AttentionSpec { layer, heads, kv_heads, head_dim, keys_only, scores: scores.into() };
        self.push(Op::Attention(spec), &[q])
    }

    /// Returns attention over keys and values of the same step alone, as `scores.sees` says. All
    /// such attentions share a cache layer, which is free again after each.
    pub fn step_attention(
        &mut self,
        [q, k, v]: [ValueId; 3],
        cache: LayerCache,
        heads: usize,
        scores: Scores,
    ) -> ValueId {
        let LayerCache { kv_heads, head_dim, keys_only } = cache;
        let layer = self.caches.iter().position(|known| *known == cache).unwrap_or_else(|| {
            self.caches.push(cache);
            self.caches.len() - 1
        });
        self.push(Op::Attention(AttentionSpec { layer, heads, kv_heads, head_dim, keys_only, scores }), &[q, k, v])
    }

    /// Returns the rows of each output's token and of the tokens after it, `count` in all, joined.
    pub fn join_rows(&mut self, x: ValueId, count: usize) -> ValueId {
        self.push(Op::JoinRows { count }, &[x])
    }

    /// Returns the rows that the step gives for tokens, and 0 for all other tokens.
    pub fn input_rows(&mut self, width: usize) -> ValueId {
        self.push(Op::InputRows { width }, &[])
    }

    /// Returns `x` with elements of the step's rows, from `first` on, in the place of its rows.
    pub fn place_rows(&mut self, x: ValueId, first: usize) -> ValueId {
        self.push(Op::PlaceRows { first, marked: false }, &[x])
    }

    /// Appends an [`Op::PlaceRows`] of the rows whose element before `first` is not 0.
    pub fn place_marked_rows(&mut self, x: ValueId, first: usize) -> ValueId {
        self.push(Op::PlaceRows { first, marked: true }, &[x])
    }

    /// Returns `x` plus elements of the step's rows, from `first` on.
    pub fn add_rows(&mut self, x: ValueId, first: usize) -> ValueId {
        self.push(Op::AddRows { first }, &[x])
    }

    /// Returns each row times `1 + scale ln(1 + floor((position + offset) / interval))`.
    pub fn temper(&mut self, x: ValueId, scale: f32, interval: usize, offset: usize) -> ValueId {
        self.push(Op::Temper { scale, interval, offset }, &[x])
    }

    /// Returns `outputs` sums of the parts of each row, weighted with the row's `weights`.
    pub fn mix_streams(&mut self, x: ValueId, weights: ValueId, outputs: usize) -> ValueId {
        self.push(Op::MixStreams { outputs }, &[x, weights])
    }

    /// Returns the root mean square of each row or, if `centered`, its standard deviation.
    pub fn deviation(&mut self, x: ValueId, centered: bool) -> ValueId {
        self.push(Op::Deviation { centered }, &[x])
    }

    /// Returns the weighted sum of rows of `table` that set number `taps` of the step names for
    /// each token.
    pub fn interpolate(&mut self, table: ValueId, taps: usize) -> ValueId {
        self.push(Op::Interpolate { taps }, &[table])
    }

    /// Returns the softmax over the `top_k` largest elements of each row, and 0 for all other
    /// elements.
    pub fn route(&mut self, logits: ValueId, top_k: usize) -> ValueId {
        self.push(Op::Route(top_k.into()), &[logits])
    }

    /// Returns the weights of the experts that are selected by their probabilities plus `bias`.
    pub fn route_with(&mut self, logits: ValueId, bias: Option<ValueId>, spec: RouteSpec) -> ValueId {
        self.push(Op::Route(spec), &[Some(logits), bias].into_iter().flatten().collect::<Vec<_>>())
    }

    /// Returns the weighted sum of the experts' results for each row. [`Op::Experts`] describes the
    /// two forms of `matrices`, before which biases come if `spec` has them.
    pub fn experts(&mut self, x: ValueId, weights: ValueId, matrices: &[ValueId], spec: ExpertsSpec) -> ValueId {
        self.push(Op::Experts(spec), &[&[x, weights], matrices].concat())
    }

    /// Returns a causal convolution of each channel with its row of `w`, then SiLU, with a new
    /// state.
    pub fn short_conv(&mut self, x: ValueId, w: ValueId) -> ValueId {
        self.short_conv_with(x, w, None, true)
    }

    /// Returns a causal convolution like [`short_conv`](Self::short_conv), plus `bias` before SiLU.
    pub fn biased_conv(&mut self, x: ValueId, w: ValueId, bias: ValueId) -> ValueId {
        self.short_conv_with(x, w, Some(bias), true)
    }

    /// Returns a causal convolution like [`short_conv`](Self::short_conv), without SiLU.
    pub fn linear_conv(&mut self, x: ValueId, w: ValueId) -> ValueId {
        self.short_conv_with(x, w, None, false)
    }

    fn short_conv_with(&mut self, x: ValueId, w: ValueId, bias: Option<ValueId>, silu: bool) -> ValueId {
        let (channels, kernel) = (self.values[x.index()].shape.width, self.values[w.index()].shape.width);
        let spec = ConvSpec { state: self.states.len(), channels, kernel, silu };
        self.states.push(spec.layer_state());
        self.push(Op::ShortConv(spec), &[Some(x), Some(w), bias].into_iter().flatten().collect::<Vec<_>>())
    }

    /// Returns the gated delta rule over `[q|k|v, alpha, beta, a, dt]`, with a new state, whose
    /// number replaces `spec.state`.
    pub fn gated_delta(&mut self, inputs: [ValueId; 5], spec: DeltaSpec) -> ValueId {
        let spec = DeltaSpec { state: self.states.len(), ..spec };
        self.states.push(spec.layer_state());
        self.push(Op::GatedDelta(spec), &inputs)
    }

    /// Returns the state-space scan over `[x|B|C, dt, a, bias, d]`, with a new state, whose number
    /// replaces `spec.state`.
    pub fn state_scan(&mut self, inputs: [ValueId; 5], spec: ScanSpec) -> ValueId {
        let spec = ScanSpec { state: self.states.len(), ..spec };
        self.states.push(spec.layer_state());
        self.push(Op::StateScan(spec), &inputs)
    }

    /// Adds a layer to the cache, for a fused op that attends.
    #[must_use]
    pub fn with_cache(mut self, layer: LayerCache) -> Self {
        self.caches.push(layer);
        self
    }

    /// Adds a node and returns its first result.
    pub fn push(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        self.push_all(op, inputs)[0]
    }

    /// Adds a node and returns all its results.
    pub fn push_all(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Vec<ValueId> {
        let op = op.into();
        let shapes: Vec<Shape> = inputs.iter().map(|id| self.values[id.index()].shape).collect();
        let results = op.infer(&shapes).unwrap_or_else(|error| {
            self.error.get_or_insert_with(|| format!("node {} ({}): {error}", self.nodes.len(), op.name()));
            vec![Shape::new(Rows::Tokens, 0); op.properties().result_count(inputs.len()).max(1)]
        });
        let node = self.nodes.len();
        let outputs: Vec<_> = results
            .into_iter()
            .enumerate()
            .map(|(output, shape)| self.source(shape, Source::Node { node, output }))
            .collect();
        self.nodes.push(Node { op, inputs: inputs.to_vec(), outputs: outputs.clone() });
        outputs
    }

    /// Returns the rows of `x` for the tokens whose logits the step returns.
    pub fn select_outputs(&mut self, x: ValueId) -> ValueId {
        match self.values[x.index()].shape.rows {
            Rows::Outputs => x,
            Rows::Tokens | Rows::Fixed(_) => self.push(Op::SelectOutputs, &[x]),
        }
    }

    /// Returns the graph. Its result is `logits`, for the rows whose logits the step returns.
    ///
    /// # Errors
    /// [`Error::Internal`] that names the first op with operands that do not fit.
    pub fn finish(self, logits: ValueId) -> Result<Graph> {
        self.finish_with(logits, None)
    }

    /// Returns the graph like [`finish`](Self::finish), with a second result, [`Graph::hidden`].
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn finish_with(mut self, logits: ValueId, hidden: Option<ValueId>) -> Result<Graph> {
        let logits = self.select_outputs(logits);
        if let Some(error) = self.error {
            return Err(Error::internal(error));
        }
        let Self { values, nodes, caches, states, .. } = self;
        let graph = Graph { values, nodes, caches, states, logits, hidden };
        graph.verify()?;
        Ok(graph)
    }

    /// Returns a builder of a graph with the cache layers and states of `graph`, for passes.
    pub(crate) fn with_caches_of(graph: &Graph) -> Self {
        Self { caches: graph.caches.clone(), states: graph.states.clone(), ..Self::default() }
    }

    /// Adds a value: a source, or a result of the node that is added next.
    pub(crate) fn source(&mut self, shape: Shape, source: Source) -> ValueId {
        self.values.push(Value { shape, source });
        ValueId(self.values.len() as u32 - 1)
    }
}
