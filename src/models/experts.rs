//! A mixture of experts: its sizes, and what of its keys is not built.

use super::{Config, keys::Keys};
use crate::Result;

/// The most experts that are believed.
const MAX_EXPERTS: usize = 1 << 12;
/// llama.cpp's number for a router whose logits go through a softmax.
const SOFTMAX: u64 = 1;

/// Feed-forward blocks of which each token goes through few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Experts {
    /// How many there are.
    pub count: usize,
    /// How many a token goes through.
    pub used: usize,
    /// Elements between the two halves of one.
    pub ffn: usize,
}

impl Config {
    /// Gives every layer experts where the file has a count of them. Where it does not say how wide one is, `width` knows
    /// that from `feed_forward_length` and from how many a token goes through.
    pub(super) fn mix(&mut self, keys: &Keys, width: fn(usize, usize) -> usize) -> Result<()> {
        const COUNT: &str = "expert_count";
        if keys.is_zero(COUNT) {
            return Ok(());
        }
        let count = keys.size(COUNT, MAX_EXPERTS)?;
        let used = keys.size("expert_used_count", count)?;
        keys.expect("expert_gating_func", SOFTMAX)?;
        keys.expect("expert_group_count", 1)?;
        keys.expect("expert_weights_scale", 1)?;
        if keys.bool("expert_weights_norm")? == Some(false) {
            return Err(keys.error("expert_weights_norm", "is false, which is not built yet: true is"));
        }
        let ffn = keys.expert_width()?;
        for layer in &mut self.layers {
            layer.experts = Some(Experts { count, used, ffn: ffn.unwrap_or_else(|| width(layer.ffn, used)) });
        }
        Ok(())
    }

    /// As [`mix`](Self::mix), for a family that has nothing else.
    pub(super) fn must_mix(&mut self, keys: &Keys, width: fn(usize, usize) -> usize) -> Result<()> {
        self.mix(keys, width)?;
        match self.layers.iter().all(|layer| layer.experts.is_some()) {
            true => Ok(()),
            false => {
                Err(keys.error("expert_count", "is missing or 0, but this architecture has experts in every layer"))
            }
        }
    }
}
