//! What a layer of experts is made of, and the operands that it takes.

use super::{Activation, Rows, Shape, infer::mismatch};

/// The sizes of a layer of experts ([Shazeer et al. 2017](https://arxiv.org/abs/1701.06538)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertsSpec {
    /// How many there are.
    pub experts: usize,
    /// The most that a row goes through.
    pub used: usize,
    /// What an expert's gate goes through.
    pub activation: Activation,
}

impl ExpertsSpec {
    pub(super) fn infer(&self, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
        let Self { experts, used, .. } = *self;
        if used == 0 || used > experts {
            return Err(format!("uses {used} of {experts} experts"));
        }
        let wrong = || Err(mismatch("x, a weight for each expert, and the experts' matrices", inputs));
        let ([x, weights, matrices @ ..], Some(down)) = (inputs, inputs.last()) else { return wrong() };
        let stacked = |rows: usize, width| Shape::new(Rows::Fixed(experts.saturating_mul(rows)), width);
        let [n, m] = [x.width, down.width];
        let sound = match matrices {
            [gate_up, _] => *gate_up == stacked(2 * m, n),
            [gate, up, _] => gate == up && *gate == stacked(m, n),
            _ => false,
        };
        if sound && *weights == Shape::new(x.rows, experts) && *down == stacked(n, m) { Ok(vec![*x]) } else { wrong() }
    }
}
