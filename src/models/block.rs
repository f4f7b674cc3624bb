//! Builds the layer that most families share: a norm, grouped-query attention and a residual, then
//! a norm, a gated feed-forward network and a residual. Biases are added if the file has them, and
//! a mixture of experts may replace the feed-forward network.

use super::{
    Config, LayerConfig, Model,
    model_builder::{FeedForward, ModelBuilder, Projection},
};
use crate::{
    Result,
    graph::{Activation, LayerCache, RopeStyle, ValueId},
};

/// The variant of the layer that a family has.
pub(super) struct Block {
    /// The elements of a head that are rotated together, in the layout of GGUF files.
    pub style: RopeStyle,
    /// Whether each head of queries and keys is normed before it is rotated.
    pub head_norms: bool,
    /// Whether the results of attention and feed-forward are normed before they are added to the
    /// residual stream.
    pub post_norms: bool,
    /// The function of the feed-forward network's gate.
    pub activation: Activation,
}

impl Block {
    /// Builds a model of such layers.
    pub fn model(&self, config: Config, mut graph: ModelBuilder) -> Result<Model> {
        let mut x = graph.embedding(&config)?;
        for (index, layer) in config.layers.iter().enumerate() {
            x = self.attention(&config, layer, &mut graph, x, index)?;
            x = self.feed_forward(&config, layer, &mut graph, x, index)?;
            x = graph.add_deepstack(x, config.hidden, index);
        }
        graph.finish(config, x)
    }

    /// Returns the residual stream `x` after the attention of layer `index`.
    fn attention(
        &self,
        config: &Config,
        layer: &LayerConfig,
        graph: &mut ModelBuilder,
        x: ValueId,
        index: usize,
    ) -> Result<ValueId> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let (q_width, kv_width) = (layer.heads * layer.head_dim, layer.kv_heads * layer.head_dim);
        let cache = LayerCache { kv_heads: layer.kv_heads, head_dim: layer.head_dim };

        let normed = graph.rms_norm(x, &name("attn_norm"), config.hidden, config.rms_eps)?;
        let projections = [
            Projection { name: &name("attn_q"), rows: q_width },
            Projection { name: &name("attn_k"), rows: kv_width },
            Projection { name: &name("attn_v"), rows: kv_width },
        ];
        let [mut q, mut k, v] = graph.linears(normed, &name("attn_qkv"), projections, config.hidden)?;
        if self.head_norms {
            q = graph.rms_norm(q, &name("attn_q_norm"), layer.head_dim, config.rms_eps)?;
            k = graph.rms_norm(k, &name("attn_k_norm"), layer.head_dim, config.rms_eps)?;
        }
        let style = if config.reference_layout { RopeStyle::Halves } else { self.style };
        let ([q, k], scores) = graph.rotate(layer, style, [q, k])?;
        let attended = graph.ops.attention([q, k, v], cache, layer.heads, scores);
        let output = graph.linear(attended, &name("attn_output"), config.hidden, q_width)?;
        self.add_residual(config, graph, x, output, &name("post_attention_norm"))
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
        let name = |part: &str| format!("blk.{index}.{part}");
        let normed = graph.rms_norm(x, &name("ffn_norm"), config.hidden, config.rms_eps)?;
        let output = match &layer.experts {
            Some(experts) => graph.mixture(normed, &name("ffn"), config.hidden, experts, self.activation)?,
            None => graph.feed_forward(normed, &name("ffn"), self.network(config, layer))?,
        };
        self.add_residual(config, graph, x, output, &name("post_ffw_norm"))
    }

    /// Returns the sizes of a layer's feed-forward network.
    pub fn network(&self, config: &Config, layer: &LayerConfig) -> FeedForward {
        FeedForward { hidden: config.hidden, ffn: layer.ffn, activation: self.activation }
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
        let output =
            if self.post_norms { graph.rms_norm(output, norm, config.hidden, config.rms_eps)? } else { output };
        let output = graph.scale(output, config.residual_scale);
        Ok(graph.ops.add(x, output))
    }
}
