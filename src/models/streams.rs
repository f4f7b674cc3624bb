//! Builds several residual streams of which each layer computes the first, and predicts and
//! corrects the others ([Baykal et al. 2023](https://arxiv.org/abs/2301.13310)).

use super::{Config, keys::Keys, model_builder::ModelBuilder};
use crate::{
    Result,
    graph::{HEAD_UNIT, ValueId},
};

/// The largest number of streams that is accepted.
const MAX_STREAMS: usize = 64;
/// The number of streams in files that do not say it.
const STREAMS: usize = 4;
/// The number added to mean squares, which is only to be finite where all elements are 0.
const LEAST_SQUARE: f32 = 1e-20;

/// The residual streams of a model, which follow one another in a row `[count * hidden]`.
pub(super) struct Streams {
    count: usize,
    hidden: usize,
    rms_eps: f32,
}

impl Streams {
    /// Reads the number of streams.
    pub fn read(keys: &Keys, config: &Config) -> Result<Self> {
        const COUNT: &str = "altup.num_inputs";
        let count = keys.optional_size(COUNT, MAX_STREAMS)?.unwrap_or(STREAMS);
        if count == 1 {
            return Err(keys.error(COUNT, "is 1, but must be at least 2"));
        }
        keys.expect("altup.active_idx", 0)?;
        let &Config { hidden, rms_eps, .. } = config;
        if !hidden.is_multiple_of(HEAD_UNIT) {
            let what = format!("is {hidden}, but must be a multiple of {HEAD_UNIT} for this architecture");
            return Err(keys.error("embedding_length", what));
        }
        Ok(Self { count, hidden, rms_eps })
    }

    /// Returns the streams: `x`, and products of it with the magnitude of `x`.
    pub fn spread(&self, graph: &mut ModelBuilder, x: ValueId) -> Result<ValueId> {
        let &Self { count, hidden, .. } = self;
        let matrices = graph.stack("altup_proj.weight", count - 1, hidden, hidden)?;
        let others = graph.ops.matmul(x, matrices);
        let others = self.with_magnitude(graph, others, x);
        Ok(graph.ops.concat(&[x, others]))
    }

    /// Returns the mean of the first stream, and of products of the others with its magnitude.
    pub fn join(&self, graph: &mut ModelBuilder, rows: ValueId) -> Result<ValueId> {
        let &Self { count, hidden, .. } = self;
        let (mut sum, others) = (self.active(graph, rows), self.others(graph, rows));
        let matrices = graph.stack("altup_unembd_proj.weight", count - 1, hidden, hidden)?;
        let others = graph.ops.matmul_heads(others, matrices, count - 1);
        let others = self.with_magnitude(graph, others, sum);
        for stream in 0..count - 1 {
            let other = graph.ops.slice(others, stream * hidden, hidden, (count - 1) * hidden);
            sum = graph.ops.add(sum, other);
        }
        Ok(graph.scale(sum, (count as f32).recip()))
    }

    /// Returns the first stream.
    pub fn active(&self, graph: &mut ModelBuilder, rows: ValueId) -> ValueId {
        graph.ops.slice(rows, 0, self.hidden, self.count * self.hidden)
    }

    fn others(&self, graph: &mut ModelBuilder, rows: ValueId) -> ValueId {
        let &Self { count, hidden, .. } = self;
        graph.ops.slice(rows, hidden, (count - 1) * hidden, count * hidden)
    }

    /// Returns the streams that layer `index` predicts: each plus a mixture of all.
    pub fn predict(&self, graph: &mut ModelBuilder, rows: ValueId, index: usize) -> Result<ValueId> {
        let active = self.active(graph, rows);
        let modalities = self.modalities(graph, active, index)?;
        let name = format!("blk.{index}.altup_predict_coef");
        let weights = graph.linear(modalities, &name, self.count * self.count, self.count)?;
        let mixed = graph.ops.mix_streams(rows, weights, self.count);
        Ok(graph.ops.add(rows, mixed))
    }

    /// Returns the `predicted` streams, corrected by how far the first stream that layer `index`
    /// has computed is from its prediction.
    pub fn correct(
        &self,
        graph: &mut ModelBuilder,
        predicted: ValueId,
        computed: ValueId,
        index: usize,
    ) -> Result<ValueId> {
        let active = self.active(graph, predicted);
        let active = graph.scale(active, -1.0);
        let innovation = graph.ops.add(computed, active);
        let modalities = self.modalities(graph, computed, index)?;
        let name = format!("blk.{index}.altup_correct_coef");
        let weights = graph.linear(modalities, &name, self.count, self.count)?;
        let one = graph.ops.constant([1.0]);
        let weights = graph.ops.add(weights, one);
        let correction = graph.ops.mix_streams(innovation, weights, self.count);
        Ok(graph.ops.add(predicted, correction))
    }

    /// Returns the streams with `x` added to all but the first.
    pub fn add_to_others(&self, graph: &mut ModelBuilder, rows: ValueId, x: ValueId) -> ValueId {
        let (active, others) = (self.active(graph, rows), self.others(graph, rows));
        let each = graph.ops.concat(&vec![x; self.count - 1]);
        let others = graph.ops.add(others, each);
        graph.ops.concat(&[active, others])
    }

    /// Returns a number for each stream that layer `index` computes of the first stream.
    fn modalities(&self, graph: &mut ModelBuilder, x: ValueId, index: usize) -> Result<ValueId> {
        let normed = graph.rms_norm(x, &format!("blk.{index}.altup_router_norm"), self.hidden, self.rms_eps)?;
        let logits = graph.linear(normed, &format!("blk.{index}.altup_router"), self.count, self.hidden)?;
        let logits = graph.scale(logits, (self.hidden as f32).recip());
        Ok(graph.ops.soft_cap(logits, 1.0))
    }

    /// Returns streams with the root mean square of the rows of `x`.
    fn with_magnitude(&self, graph: &mut ModelBuilder, streams: ValueId, x: ValueId) -> ValueId {
        let normed = graph.unweighted_norm(streams, self.hidden, LEAST_SQUARE);
        let magnitude = graph.ops.deviation(x, false);
        graph.ops.mix_streams(normed, magnitude, 1)
    }
}
