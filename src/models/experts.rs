//! Reads the sizes and the router of a mixture of experts, and refuses settings that are not
//! supported.

use super::{
    Config,
    keys::{Keys, MAX_WIDTH},
};
use crate::{
    Result,
    graph::{ExpertGroups, ExpertScore, RouteSpec},
};

/// The largest number of experts that is accepted.
const MAX_EXPERTS: usize = 1 << 12;
/// llama.cpp's numbers of a router's functions: the softmax over all experts, the sigmoid, and the
/// softmax over the selected experts.
const SOFTMAX: u64 = 1;
const SIGMOID: u64 = 2;
const SOFTMAX_OF_SELECTED: u64 = 3;

const COUNT: &str = "expert_count";
const GATING: &str = "expert_gating_func";
const NORMALIZED: &str = "expert_weights_norm";
const GROUPS: &str = "expert_group_count";
const SCALE: &str = "expert_weights_scale";
/// The key of the width of experts that all tokens share.
pub(super) const SHARED_WIDTH: &str = "expert_shared_feed_forward_length";

/// The sizes of a mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Experts {
    /// The number of experts.
    pub count: usize,
    /// The number of experts that each token is computed with.
    pub top_k: usize,
    /// The width between the two halves of an expert's feed-forward network.
    pub ffn: usize,
    /// The selection of a token's experts, and their weights.
    pub router: RouteSpec,
    /// Whether a bias is added to the probabilities that experts are selected by, if the file has
    /// it.
    pub biased: bool,
    /// Whether the experts have biases and clamped gated linear units
    /// ([OpenAI 2025](https://arxiv.org/abs/2508.10925)).
    pub clamped: bool,
    /// Whether the weight of a token's one expert multiplies the input of the expert, rather than
    /// its result.
    pub scales_input: bool,
    /// The expert that all tokens share, if there is one.
    pub shared: Option<SharedExpert>,
}

/// The expert that all tokens share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedExpert {
    /// The width between the two halves of its feed-forward network.
    pub ffn: usize,
    /// Whether its result is multiplied by the sigmoid of a product of its input.
    pub gated: bool,
}

/// A family's mixture of experts: what its files may say, and the defaults.
pub(super) struct Mixture {
    /// Returns the width of an expert from `feed_forward_length` and `top_k`, if the file has no
    /// `expert_feed_forward_length`.
    pub width: fn(usize, usize) -> usize,
    /// Whether files may have an `expert_feed_forward_length`, rather than only a
    /// `feed_forward_length`.
    pub has_width: bool,
    /// The probabilities of experts, and whether a file may say others.
    pub score: Choice<ExpertScore>,
    /// Whether the weights are divided by their sum, and whether a file may say otherwise.
    pub normalized: Choice<bool>,
    /// Whether files may select groups of experts first, and scale the weights.
    pub grouped: bool,
    /// Whether the experts have biases and clamped gated linear units.
    pub clamped: bool,
    /// Whether the weight of a token's one expert multiplies its input.
    pub scales_input: bool,
    /// Whether files may have a bias that experts are selected by.
    pub biased: bool,
    /// Returns the width of the shared expert from `feed_forward_length` and the width of an
    /// expert, or `None` if there is no shared expert.
    pub shared: fn(&Keys, usize, usize) -> Result<Option<usize>>,
    /// Whether the shared expert has a gate.
    pub shared_gate: bool,
}

/// A property of a family.
#[derive(Clone, Copy)]
pub(super) enum Choice<T> {
    /// The value for all files.
    Always(T),
    /// The value for files without the key.
    Unless(T),
}

impl Mixture {
    /// Experts as those of Mixtral: weights are a softmax over the selected experts.
    pub const SOFTMAX: Self = Self {
        width: |ffn, _| ffn,
        has_width: true,
        score: Choice::Always(ExpertScore::Softmax),
        normalized: Choice::Always(true),
        grouped: false,
        clamped: false,
        scales_input: false,
        biased: false,
        shared: |_, _, _| Ok(None),
        shared_gate: false,
    };

    /// Experts whose weights are sigmoids, divided by their sum.
    pub const SIGMOID: Self = Self { score: Choice::Unless(ExpertScore::Sigmoid), biased: true, ..Self::SOFTMAX };

    fn router(&self, keys: &Keys, experts: usize, top_k: usize) -> Result<RouteSpec> {
        let mut router = RouteSpec { score: self.score(keys)?, ..top_k.into() };
        router.normalized = match (self.normalized, keys.bool(NORMALIZED)?) {
            (Choice::Always(value), Some(other)) if other != value => {
                let what = format!("is {other}, but only {value} is supported for this architecture");
                return Err(keys.error(NORMALIZED, what));
            }
            (Choice::Always(value), _) | (Choice::Unless(value), None) => value,
            (Choice::Unless(_), Some(value)) => value,
        };
        if keys.get(GATING).and_then(|value| value.to_u64()) == Some(SOFTMAX_OF_SELECTED) {
            router.normalized = true;
        }
        if !self.grouped {
            keys.expect(GROUPS, 1)?;
            keys.expect(SCALE, 1)?;
            return Ok(router);
        }
        router.scale = keys.factor(SCALE, None)?.unwrap_or(1.0);
        let groups = keys.count(GROUPS, MAX_EXPERTS)?;
        if groups > 1 {
            if !experts.is_multiple_of(groups) || experts / groups < 2 {
                let what = format!("is {groups}, which does not divide {experts} experts into groups of two or more");
                return Err(keys.error(GROUPS, what));
            }
            let selected = keys.size("expert_group_used_count", groups)?;
            if top_k > experts / groups * selected {
                let what = format!("is {top_k}, but {selected} of {groups} groups do not have that many experts");
                return Err(keys.error("expert_used_count", what));
            }
            router.groups = Some(ExpertGroups { count: groups, top_k: selected });
        }
        Ok(router)
    }

    fn score(&self, keys: &Keys) -> Result<ExpertScore> {
        let default = match self.score {
            Choice::Always(ExpertScore::Softmax) => {
                keys.expect(GATING, SOFTMAX)?;
                return Ok(ExpertScore::Softmax);
            }
            Choice::Always(ExpertScore::Sigmoid) => {
                keys.expect(GATING, SIGMOID)?;
                return Ok(ExpertScore::Sigmoid);
            }
            Choice::Unless(score) => score,
        };
        match keys.get(GATING).map(|value| value.to_u64()) {
            None | Some(Some(0)) => Ok(default),
            Some(Some(SOFTMAX | SOFTMAX_OF_SELECTED)) => Ok(ExpertScore::Softmax),
            Some(Some(SIGMOID)) => Ok(ExpertScore::Sigmoid),
            Some(_) => Err(keys.error(GATING, "must be 1 (softmax), 2 (sigmoid) or 3 (softmax of the selected)")),
        }
    }
}

/// Reads the width of a shared expert, which a file need not have.
pub(super) fn shared_width(keys: &Keys) -> Result<Option<usize>> {
    Ok(Some(keys.count(SHARED_WIDTH, MAX_WIDTH)?).filter(|width| *width > 0))
}

/// Returns the width of shared experts from their number.
pub(super) fn shared_count(keys: &Keys, ffn: usize) -> Result<Option<usize>> {
    let count = keys.count("expert_shared_count", MAX_EXPERTS)?;
    Ok(Some(count * ffn).filter(|width| (1..=MAX_WIDTH).contains(width)))
}

impl Config {
    /// Gives every layer experts if the file has a count of them. If the family has leading layers
    /// without experts, [`leave_dense`](Self::leave_dense) takes theirs away.
    pub(super) fn read_experts(&mut self, keys: &Keys, mixture: &Mixture) -> Result<()> {
        if keys.is_zero(COUNT) {
            return Ok(());
        }
        let count = keys.size(COUNT, MAX_EXPERTS)?;
        let top_k = keys.size("expert_used_count", if mixture.scales_input { 1 } else { count })?;
        let router = mixture.router(keys, count, top_k)?;
        let width = keys.expert_width()?.filter(|_| mixture.has_width);
        for layer in self.layers.iter_mut().chain(&mut self.mtp) {
            let ffn = width.unwrap_or_else(|| (mixture.width)(layer.ffn, top_k));
            let shared = (mixture.shared)(keys, layer.ffn, ffn)?;
            let shared = shared.map(|ffn| SharedExpert { ffn, gated: mixture.shared_gate });
            let &Mixture { biased, clamped, scales_input, .. } = mixture;
            layer.experts = Some(Experts { count, top_k, ffn, router, biased, clamped, scales_input, shared });
        }
        Ok(())
    }

    /// Gives every layer experts, for a family without other feed-forward networks.
    pub(super) fn require_experts(&mut self, keys: &Keys, mixture: &Mixture) -> Result<()> {
        self.read_experts(keys, mixture)?;
        if self.layers.iter().any(|layer| layer.experts.is_none()) {
            let what = "is missing or 0, but layers of this architecture have experts";
            return Err(keys.error(COUNT, what));
        }
        Ok(())
    }

    /// Leaves all layers without experts but the last of each few, `interleave_moe_layer_step`.
    pub(super) fn interleave_dense(&mut self, keys: &Keys) -> Result<()> {
        let step = keys.optional_size("interleave_moe_layer_step", self.layers.len())?.unwrap_or(1);
        let layers = self.layers.iter_mut().enumerate();
        let dense = layers.filter(|(index, _)| !(index + 1).is_multiple_of(step));
        dense.for_each(|(_, layer)| layer.experts = None);
        Ok(())
    }

    /// Leaves the first layers, `leading_dense_block_count`, without experts.
    pub(super) fn leave_dense(&mut self, keys: &Keys) -> Result<()> {
        let dense = keys.count("leading_dense_block_count", self.layers.len())?;
        self.layers.iter_mut().take(dense).for_each(|layer| layer.experts = None);
        Ok(())
    }
}
