//! Reads the sizes of a mixture of experts, and refuses router settings that are not supported.

use super::{Config, keys::Keys};
use crate::Result;

/// The largest number of experts that is accepted.
const MAX_EXPERTS: usize = 1 << 12;
/// llama.cpp's number of a router that takes the softmax of its logits.
const SOFTMAX: u64 = 1;

/// The sizes of a mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Experts {
    /// The number of experts.
    pub count: usize,
    /// The number of experts that each token is computed with.
    pub top_k: usize,
    /// The width between the two halves of an expert's feed-forward network.
    pub ffn: usize,
}

impl Config {
    /// Gives every layer experts if the file has a count of them. If the file has no width of an
    /// expert, `width` computes it from `feed_forward_length` and `top_k`.
    pub(super) fn read_experts(&mut self, keys: &Keys, width: fn(usize, usize) -> usize) -> Result<()> {
        const COUNT: &str = "expert_count";
        if keys.is_zero(COUNT) {
            return Ok(());
        }
        let count = keys.size(COUNT, MAX_EXPERTS)?;
        let top_k = keys.size("expert_used_count", count)?;
        keys.expect("expert_gating_func", SOFTMAX)?;
        keys.expect("expert_group_count", 1)?;
        keys.expect("expert_weights_scale", 1)?;
        if keys.bool("expert_weights_norm")? == Some(false) {
            let what = "is false, but this crate only supports experts whose weights are normalized (true)";
            return Err(keys.error("expert_weights_norm", what));
        }
        let ffn = keys.expert_width()?;
        for layer in self.layers.iter_mut().chain(&mut self.mtp) {
            layer.experts = Some(Experts { count, top_k, ffn: ffn.unwrap_or_else(|| width(layer.ffn, top_k)) });
        }
        Ok(())
    }

    /// Gives every layer experts, for a family without other feed-forward networks.
    pub(super) fn require_experts(&mut self, keys: &Keys, width: fn(usize, usize) -> usize) -> Result<()> {
        self.read_experts(keys, width)?;
        if self.layers.iter().any(|layer| layer.experts.is_none()) {
            let what = "is missing or 0, but every layer of this architecture has experts";
            return Err(keys.error("expert_count", what));
        }
        Ok(())
    }
}
