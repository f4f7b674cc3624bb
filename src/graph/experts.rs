//! Defines the attributes of routers and of layers of experts, and infers the shapes of their
//! results.

use super::{Activation, Rows, Shape, infer::mismatch};

/// The attributes of a layer of experts ([Shazeer et al. 2017](https://arxiv.org/abs/1701.06538)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertsSpec {
    /// The number of experts.
    pub experts: usize,
    /// The largest number of experts that a row is computed with.
    pub top_k: usize,
    /// The gated linear unit of an expert.
    pub glu: Glu,
    /// Whether gate, up and down have biases.
    pub biased: bool,
}

/// A gated linear unit of two rows, `gate` and `up` ([Shazeer
/// 2020](https://arxiv.org/abs/2002.05202)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Glu {
    /// `f(gate) * up`.
    Plain(Activation),
    /// `g / (1 + exp(-1.702 g)) * (u + 1)` with `g = min(gate, 7)` and `u` the number of `up`
    /// limited to -7 to 7 ([OpenAI 2025](https://arxiv.org/abs/2508.10925)).
    Clamped,
}

impl From<Activation> for Glu {
    fn from(activation: Activation) -> Self {
        Self::Plain(activation)
    }
}

impl Glu {
    /// Returns the name in dumps.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain(activation) => activation.name(),
            Self::Clamped => "clamped",
        }
    }
}

/// The attributes of a router: how it selects and weighs experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteSpec {
    /// The number of experts that are selected, from 1 to the number of logits.
    pub top_k: usize,
    /// The probabilities of experts. A selected expert's weight is its probability, without the
    /// bias that it may be selected by.
    pub score: ExpertScore,
    /// Whether the weights are divided by their sum.
    pub normalized: bool,
    /// The groups that the experts are selected from; `None` for one group of all.
    pub groups: Option<ExpertGroups>,
    /// The factor of the weights.
    pub scale: f32,
}

/// The function that turns the logits of a router into probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpertScore {
    /// The softmax over all experts.
    Softmax,
    /// The sigmoid of each expert's logit
    /// ([DeepSeek-AI 2024](https://arxiv.org/abs/2412.19437)).
    Sigmoid,
}

/// Groups of neighboring experts, of which some are selected before the experts are. A group's
/// score is the sum of its two largest probabilities, with the bias
/// ([DeepSeek-AI 2024](https://arxiv.org/abs/2412.19437)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertGroups {
    /// The number of groups, a divisor of the number of experts, which leaves at least two in each.
    pub count: usize,
    /// The number of groups that are selected.
    pub top_k: usize,
}

/// A router whose weights are a softmax over the selected experts.
impl From<usize> for RouteSpec {
    fn from(top_k: usize) -> Self {
        Self { top_k, score: ExpertScore::Softmax, normalized: true, groups: None, scale: 1.0 }
    }
}

impl RouteSpec {
    pub(super) fn infer(&self, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
        let ([logits] | [logits, _]) = inputs else { return Err(mismatch("logits, and a bias or none", inputs)) };
        let experts = logits.width;
        if inputs.get(1).is_some_and(|bias| *bias != Shape::new(Rows::Fixed(1), experts)) {
            return Err(mismatch("logits and a bias for each expert", inputs));
        }
        let groups = self.groups.unwrap_or(ExpertGroups { count: 1, top_k: 1 });
        let size = experts.checked_div(groups.count).filter(|size| size * groups.count == experts).unwrap_or(0);
        if size == 0 || self.groups.is_some() && size < 2 || !(1..=groups.count).contains(&groups.top_k) {
            return Err(format!("selects {} of {} groups of {experts} experts", groups.top_k, groups.count));
        }
        match self.top_k {
            0 => Err("selects no expert, but needs at least 1".into()),
            top_k if top_k > size * groups.top_k => {
                Err(format!("selects {top_k} experts, but only {} can be selected", size * groups.top_k))
            }
            _ => Ok(vec![*logits]),
        }
    }
}

impl ExpertsSpec {
    pub(super) fn infer(&self, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
        let Self { experts, top_k, biased, .. } = *self;
        if top_k == 0 || top_k > experts {
            return Err(format!("selects {top_k} of {experts} experts, but needs from 1 to {experts}"));
        }
        let error = || Err(mismatch("x, a weight for each expert, and the experts' matrices", inputs));
        let ([x, weights, rest @ ..], Some(down)) = (inputs, inputs.last()) else { return error() };
        let (biases, matrices) = match rest {
            [biases, matrices @ ..] if biased => (Some(biases), matrices),
            matrices => (None, matrices),
        };
        let stacked = |rows: usize, width| Shape::new(Rows::Fixed(experts.saturating_mul(rows)), width);
        let (n, m) = (x.width, down.width);
        let matrices_fit = match matrices {
            [gate_up, _] => *gate_up == stacked(2 * m, n),
            [gate, up, _] => gate == up && *gate == stacked(m, n),
            _ => false,
        };
        let expert_biases = m.saturating_mul(2).saturating_add(n);
        let row = Shape::new(Rows::Fixed(1), experts.saturating_mul(expert_biases));
        let matrices_fit = matrices_fit && biases.is_none_or(|biases| *biases == row);
        if matrices_fit && *weights == Shape::new(x.rows, experts) && *down == stacked(n, m) {
            Ok(vec![*x])
        } else {
            error()
        }
    }
}
