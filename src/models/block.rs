//! Builds the layer that most families share: attention and a feed-forward network, each with a
//! norm and a residual. Biases are added if the file has them, and a mixture of experts may replace
//! the feed-forward network.

use super::{
    Config, LayerConfig, Model,
    model_builder::{FeedForward, ModelBuilder, Projection},
    mtp,
};
use crate::{
    Result,
    graph::{Activation, LayerCache, RopeStyle, ValueId},
};

/// The variant of the layer that a family has.
pub(super) struct Block {
    /// The elements of a head that are rotated together, in the layout of GGUF files.
    pub style: RopeStyle,
    /// Whether attention reads the norm `attn_norm` of the residual stream, rather than the stream.
    pub attention_norm: bool,
    /// Whether each head's softmax has one more score, `attn_sinks`
    /// ([Xiao et al. 2023](https://arxiv.org/abs/2309.17453)).
    pub sinks: bool,
    /// The norms of queries and keys.
    pub head_norms: HeadNorms,
    /// What the feed-forward network reads.
    pub feed_forward_input: FeedForwardInput,
    /// Whether the result of attention, before its output matrix, is multiplied by the sigmoid of
    /// `attn_gate` times the rows that attention reads ([Qiu et al.
    /// 2025](https://arxiv.org/abs/2505.06708)).
    pub output_gate: bool,
    /// Whether the results of attention and feed-forward are normed before they are added to the
    /// residual stream.
    pub post_norms: bool,
    /// The number that these norms add to the mean square, if it is not the model's.
    pub post_norm_eps: Option<f32>,
    /// The function of the feed-forward network.
    pub activation: Activation,
    /// Whether the feed-forward network has a gate.
    pub gated: bool,
}

/// The norms of queries and keys, with the weights `attn_q_norm` and `attn_k_norm`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadNorms {
    /// No norms.
    None,
    /// RMS norms of each head, with one weight for all heads.
    Each,
    /// RMS norms of each head, if the file has them.
    IfThere,
    /// RMS norms of each head after it is rotated.
    Rotated,
    /// RMS norms without weights of each head after it is rotated, in layers that rotate heads.
    RotatedOnly,
    /// RMS norms of all heads together.
    Together,
    /// Layer norms of each head with a weight of its own, if the file has them.
    Own,
}

/// What a feed-forward network reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FeedForwardInput {
    /// The norm with this name of the residual stream after attention.
    Norm(&'static str),
    /// The residual stream after attention.
    Stream,
    /// The rows that attention reads too ([Wang and Komatsuzaki
    /// 2021](https://github.com/kingoflolz/mesh-transformer-jax)).
    Shared,
    /// The norm with this name if the file has it, and otherwise the rows that attention reads.
    NormOrShared(&'static str),
}

impl Block {
    /// A layer with a norm before attention and one before the feed-forward network, which SiLU
    /// gates.
    pub const DECODER: Self = Self {
        style: RopeStyle::Halves,
        attention_norm: true,
        sinks: false,
        head_norms: HeadNorms::None,
        feed_forward_input: FeedForwardInput::Norm("ffn_norm"),
        output_gate: false,
        post_norms: false,
        post_norm_eps: None,
        activation: Activation::Silu,
        gated: true,
    };

    /// Builds a model of such layers, with its head for multi-token prediction if the config has
    /// one.
    pub fn model(&self, config: Config, mut graph: ModelBuilder) -> Result<Model> {
        mtp::refuse_alone(&graph, &config)?;
        let x = graph.embedding(&config)?;
        let x = self.layers(&mut graph, &config, x)?;
        let add_layer = |graph: &mut ModelBuilder, config: &Config, layer: &LayerConfig, x, index| {
            self.layer(graph, config, layer, x, index)
        };
        mtp::finish(graph, config, x, &add_layer)
    }

    /// Returns the residual stream `x` after all layers.
    pub fn layers(&self, graph: &mut ModelBuilder, config: &Config, mut x: ValueId) -> Result<ValueId> {
        for (index, layer) in config.layers.iter().enumerate() {
            x = self.layer(graph, config, layer, x, index)?;
            x = graph.add_deepstack(x, config.hidden, index);
        }
        Ok(x)
    }

    /// Returns the residual stream `x` after layer `index`.
    fn layer(
        &self,
        graph: &mut ModelBuilder,
        config: &Config,
        layer: &LayerConfig,
        x: ValueId,
        index: usize,
    ) -> Result<ValueId> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let input = if self.attention_norm { graph.norm(x, &name("attn_norm"), config)? } else { x };
        let output = self.attention(config, layer, graph, input, index)?;
        let after = self.add_residual(config, graph, x, output, &name("post_attention_norm"))?;
        match self.feed_forward_input {
            FeedForwardInput::NormOrShared(norm) if graph.has(&name(&format!("{norm}.weight"))) => {
                self.normed_feed_forward(config, layer, graph, after, norm, index)
            }
            FeedForwardInput::Norm(norm) => self.normed_feed_forward(config, layer, graph, after, norm, index),
            FeedForwardInput::Stream => self.feed_forward_of(config, layer, graph, [after, after], index),
            FeedForwardInput::Shared | FeedForwardInput::NormOrShared(_) => {
                self.feed_forward_of(config, layer, graph, [after, input], index)
            }
        }
    }

    /// Returns the result of the attention of layer `index` over the normed rows `x`.
    pub fn attention(
        &self,
        config: &Config,
        layer: &LayerConfig,
        graph: &mut ModelBuilder,
        x: ValueId,
        index: usize,
    ) -> Result<ValueId> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let (q_width, kv_width) = (layer.heads * layer.head_dim, layer.kv_heads * layer.head_dim);
        let cache = LayerCache { kv_heads: layer.kv_heads, head_dim: layer.head_dim, keys_only: false };

        let projections = [
            Projection { name: &name("attn_q"), rows: q_width },
            Projection { name: &name("attn_k"), rows: kv_width },
            Projection { name: &name("attn_v"), rows: kv_width },
        ];
        let [mut q, mut k, v] = graph.linears(x, &name("attn_qkv"), projections, config.hidden)?;
        let rotates_first = matches!(self.head_norms, HeadNorms::Rotated | HeadNorms::RotatedOnly);
        if !rotates_first {
            [q, k] = self.norm_heads(config, layer, graph, [q, k], index)?;
        }
        let style = if config.reference_layout { RopeStyle::Halves } else { self.style };
        let (rotated, scores) = graph.rotate(layer, style, [q, k])?;
        [q, k] = rotated;
        if rotates_first {
            [q, k] = self.norm_heads(config, layer, graph, [q, k], index)?;
        }
        let q = graph.temper(layer, q);
        let mut attended = if self.sinks {
            let sinks = graph.weight(&name("attn_sinks.weight"), 1, layer.heads)?;
            graph.ops.attention_with_sinks([q, k, v], sinks, cache, layer.heads, scores)
        } else {
            graph.ops.attention([q, k, v], cache, layer.heads, scores)
        };
        if self.output_gate {
            let gate = graph.linear(x, &name("attn_gate"), q_width, config.hidden)?;
            let gate = graph.ops.activate(Activation::Sigmoid, gate);
            attended = graph.ops.mul(attended, gate);
        }
        graph.linear(attended, &name("attn_output"), config.hidden, q_width)
    }

    /// Returns the normed queries and keys of layer `index`.
    fn norm_heads(
        &self,
        config: &Config,
        layer: &LayerConfig,
        graph: &mut ModelBuilder,
        [q, k]: [ValueId; 2],
        index: usize,
    ) -> Result<[ValueId; 2]> {
        let names = ["q", "k"].map(|part| format!("blk.{index}.attn_{part}_norm"));
        let is_there = graph.has(&format!("{}.weight", names[0]));
        let mut norm = |x: ValueId, name: &str, heads: usize| match self.head_norms {
            HeadNorms::None => Ok(x),
            HeadNorms::RotatedOnly if layer.rope.is_none() => Ok(x),
            HeadNorms::RotatedOnly => Ok(graph.unweighted_norm(x, layer.head_dim, config.rms_eps)),
            HeadNorms::IfThere | HeadNorms::Own if !is_there => Ok(x),
            HeadNorms::Each | HeadNorms::IfThere | HeadNorms::Rotated => {
                graph.rms_norm(x, name, layer.head_dim, config.rms_eps)
            }
            HeadNorms::Together => graph.rms_norm(x, name, heads * layer.head_dim, config.rms_eps),
            HeadNorms::Own => graph.layer_norms(x, name, [heads, layer.head_dim], config.rms_eps),
        };
        Ok([norm(q, &names[0], layer.heads)?, norm(k, &names[1], layer.kv_heads)?])
    }

    /// Returns the residual stream `x` after the feed-forward network, or the experts, of layer
    /// `index`.
    pub fn feed_forward(
        &self,
        config: &Config,
        layer: &LayerConfig,
        graph: &mut ModelBuilder,
        x: ValueId,
        index: usize,
    ) -> Result<ValueId> {
        self.normed_feed_forward(config, layer, graph, x, "ffn_norm", index)
    }

    fn normed_feed_forward(
        &self,
        config: &Config,
        layer: &LayerConfig,
        graph: &mut ModelBuilder,
        x: ValueId,
        norm: &str,
        index: usize,
    ) -> Result<ValueId> {
        let normed = graph.norm(x, &format!("blk.{index}.{norm}"), config)?;
        self.feed_forward_of(config, layer, graph, [x, normed], index)
    }

    /// Returns the residual stream `x` after the feed-forward network, or the experts, of layer
    /// `index` over the rows `input`.
    fn feed_forward_of(
        &self,
        config: &Config,
        layer: &LayerConfig,
        graph: &mut ModelBuilder,
        [x, input]: [ValueId; 2],
        index: usize,
    ) -> Result<ValueId> {
        let name = format!("blk.{index}");
        let output = match &layer.experts {
            Some(experts) => graph.mixture(input, &name, config.hidden, experts, self.activation)?,
            None => graph.feed_forward(input, &format!("{name}.ffn"), self.network(config, layer))?,
        };
        self.add_residual(config, graph, x, output, &format!("{name}.post_ffw_norm"))
    }

    /// Returns the sizes of a layer's feed-forward network.
    pub fn network(&self, config: &Config, layer: &LayerConfig) -> FeedForward {
        let &Self { activation, gated, .. } = self;
        FeedForward { hidden: config.hidden, ffn: layer.ffn, activation, gated }
    }

    /// Returns the residual stream `x` plus the `output` of a part of the layer, normed by `norm`
    /// if the block has post-norms.
    pub fn add_residual(
        &self,
        config: &Config,
        graph: &mut ModelBuilder,
        x: ValueId,
        output: ValueId,
        norm: &str,
    ) -> Result<ValueId> {
        let output = match self.post_norm_eps {
            _ if !self.post_norms => output,
            Some(eps) => graph.rms_norm(output, norm, config.hidden, eps)?,
            None => graph.norm(output, norm, config)?,
        };
        let output = graph.scale(output, config.residual_scale);
        Ok(graph.ops.add(x, output))
    }
}
