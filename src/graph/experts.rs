//! Defines the attributes of a layer of experts, and infers the shape of its result.

use super::{Activation, Rows, Shape, infer::mismatch};

/// The attributes of a layer of experts ([Shazeer et al. 2017](https://arxiv.org/abs/1701.06538)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertsSpec {
    /// The number of experts.
    pub experts: usize,
    /// The largest number of experts that a row is computed with.
    pub top_k: usize,
    /// The function of an expert's gate.
    pub activation: Activation,
}

impl ExpertsSpec {
    pub(super) fn infer(&self, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
        let Self { experts, top_k, .. } = *self;
        if top_k == 0 || top_k > experts {
            return Err(format!("selects {top_k} of {experts} experts, but needs from 1 to {experts}"));
        }
        let error = || Err(mismatch("x, a weight for each expert, and the experts' matrices", inputs));
        let ([x, weights, matrices @ ..], Some(down)) = (inputs, inputs.last()) else { return error() };
        let stacked = |rows: usize, width| Shape::new(Rows::Fixed(experts.saturating_mul(rows)), width);
        let (n, m) = (x.width, down.width);
        let matrices_fit = match matrices {
            [gate_up, _] => *gate_up == stacked(2 * m, n),
            [gate, up, _] => gate == up && *gate == stacked(m, n),
            _ => false,
        };
        if matrices_fit && *weights == Shape::new(x.rows, experts) && *down == stacked(n, m) {
            Ok(vec![*x])
        } else {
            error()
        }
    }
}
