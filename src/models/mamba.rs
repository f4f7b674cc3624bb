//! Builds Mamba-2 layers ([Dao and Gu 2024](https://arxiv.org/abs/2405.21060)): a short
//! convolution, a state-space scan, a gate and, in some models, a norm of each group.

use super::{Config, keys::Keys, model_builder::ModelBuilder};
use crate::{
    Result,
    graph::{RECURRENT_UNIT, ScanSpec, ValueId},
};

/// The largest sizes that are accepted.
const MAX_HEADS: usize = 1 << 12;
const MAX_INNER: usize = 1 << 20;
const MAX_STATE: usize = 1 << 12;
const MAX_KERNEL: usize = 1 << 6;

const KERNEL: &str = "ssm.conv_kernel";
const INNER: &str = "ssm.inner_size";
const STATE: &str = "ssm.state_size";
const HEADS: &str = "ssm.time_step_rank";
const GROUPS: &str = "ssm.group_count";

/// The sizes of a model's Mamba-2 layers.
pub(super) struct Mamba {
    /// The number of tokens that a result of the convolution depends on.
    kernel: usize,
    /// The width of all heads together.
    inner: usize,
    scan: ScanSpec,
    /// Whether files may lack the norms of groups.
    norm_is_optional: bool,
}

impl Mamba {
    /// Reads the sizes.
    pub fn read(keys: &Keys) -> Result<Self> {
        let (kernel, inner) = (keys.size(KERNEL, MAX_KERNEL)?, keys.size(INNER, MAX_INNER)?);
        let (size, heads) = (keys.size(STATE, MAX_STATE)?, keys.size(HEADS, MAX_HEADS)?);
        let groups = keys.size(GROUPS, MAX_HEADS)?;
        if kernel == 1 {
            return Err(keys.error(KERNEL, "is 1, but must be at least 2"));
        }
        for (key, elements) in [(INNER, inner), (STATE, size)] {
            if !elements.is_multiple_of(RECURRENT_UNIT) {
                return Err(keys.error(key, format!("is {elements}, but must be a multiple of {RECURRENT_UNIT}")));
            }
        }
        if !inner.is_multiple_of(heads) {
            return Err(keys.error(HEADS, format!("is {heads}, which does not divide the {inner} of `{INNER}`")));
        }
        if !heads.is_multiple_of(groups) {
            return Err(keys.error(GROUPS, format!("is {groups}, which does not divide the {heads} of `{HEADS}`")));
        }
        let scan = ScanSpec { state: 0, heads, groups, head_dim: inner / heads, size };
        Ok(Self { kernel, inner, scan, norm_is_optional: false })
    }

    /// Returns the sizes for files that may lack the norms of groups.
    pub fn with_optional_norm(self) -> Self {
        Self { norm_is_optional: true, ..self }
    }

    /// Returns the result of the Mamba-2 of layer `index` over the normed rows `x`.
    pub fn layer(&self, graph: &mut ModelBuilder, config: &Config, x: ValueId, index: usize) -> Result<ValueId> {
        let name = |part: &str| format!("blk.{index}.ssm_{part}");
        let &Self { kernel, inner, scan, .. } = self;
        let ScanSpec { heads, groups, size, .. } = scan;
        let channels = inner + 2 * groups * size;
        let width = inner + channels + heads;

        let all = graph.linear(x, &name("in"), width, config.hidden)?;
        let parts = [(0, inner), (inner, channels), (inner + channels, heads)];
        let [gate, x, dt] = parts.map(|(first, len)| graph.ops.slice(all, first, len, width));
        let taps = graph.weight(&name("conv1d.weight"), channels, kernel)?;
        let bias = graph.optional_weight(&name("conv1d.bias"), 1, channels)?;
        let x = match bias {
            Some(bias) => graph.ops.biased_conv(x, taps, bias),
            None => graph.ops.short_conv(x, taps),
        };
        let [a, d] = [graph.row(&name("a"), [heads, 1])?, graph.row(&name("d"), [heads, 1])?];
        let bias = graph.weight(&name("dt.bias"), 1, heads)?;
        let y = graph.ops.state_scan([x, dt, a, bias, d], scan);
        let gate = graph.ops.silu(gate);
        let y = graph.ops.mul(y, gate);
        let y = self.norm_groups(graph, config, y, &name("norm.weight"))?;
        graph.linear(y, &name("out"), config.hidden, inner)
    }

    /// Returns the RMS norm of each group with weights of its own, if the file must or does have
    /// them.
    fn norm_groups(&self, graph: &mut ModelBuilder, config: &Config, y: ValueId, name: &str) -> Result<ValueId> {
        if self.norm_is_optional && !graph.has(name) {
            return Ok(y);
        }
        let groups = self.scan.groups;
        let weights = graph.row(name, [groups, self.inner / groups])?;
        if groups == 1 {
            return Ok(graph.ops.rms_norm(y, weights, config.rms_eps));
        }
        let ones = graph.ops.constant(vec![1.0; self.inner / groups]);
        let normed = graph.ops.rms_norm(y, ones, config.rms_eps);
        Ok(graph.ops.mul(normed, weights))
    }
}
