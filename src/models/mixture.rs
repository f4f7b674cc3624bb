//! Builds mixtures of experts, and the expert that all tokens share.

use super::{
    experts::Experts,
    model_builder::{FeedForward, ModelBuilder, Projection},
};
use crate::{
    Result,
    graph::{Activation, ExpertsSpec, Glu, ValueId},
};

impl ModelBuilder<'_> {
    /// Returns the mixture of experts of the layer `NAME`: the matrix `NAME.ffn_gate_inp` scores
    /// the experts, and the results of the best are added up, weighted by their scores ([Jiang et
    /// al. 2024](https://arxiv.org/abs/2401.04088)). Experts are selected with the bias
    /// `NAME.exp_probs_b`, if the file has it. The expert that all tokens share is added.
    pub fn mixture(
        &mut self,
        x: ValueId,
        name: &str,
        hidden: usize,
        experts: &Experts,
        activation: Activation,
    ) -> Result<ValueId> {
        let logits = self.linear(x, &format!("{name}.ffn_gate_inp"), experts.count, hidden)?;
        let bias = match experts.biased {
            true => self.optional_weight(&format!("{name}.exp_probs_b.bias"), 1, experts.count)?,
            false => None,
        };
        let (input, mut weights) = match experts.scales_input {
            true => self.scaled_input(x, logits),
            false => (x, self.ops.route_with(logits, bias, experts.router)),
        };
        // The results are linear in these two scales, but not in that of the gate.
        for part in ["up", "down"] {
            weights = self.scaled(weights, &format!("{name}.ffn_{part}_exps.weight"), experts.count)?;
        }
        let routed = self.experts(input, weights, &format!("{name}.ffn"), hidden, experts, activation)?;
        let Some(shared) = experts.shared else { return Ok(routed) };
        let network = FeedForward { hidden, ffn: shared.ffn, activation, gated: true };
        let shared = self.shared_expert(x, name, network, shared.gated)?;
        Ok(self.ops.add(routed, shared))
    }

    /// Returns each row of `x` times the sigmoid of the largest of its `logits`, and the weights of
    /// the experts, of which one is 1.
    fn scaled_input(&mut self, x: ValueId, logits: ValueId) -> (ValueId, ValueId) {
        // The softmax over one expert is 1.
        let selected = self.ops.route(logits, 1);
        let scores = self.ops.activate(Activation::Sigmoid, logits);
        let score = self.ops.mix_streams(scores, selected, 1);
        (self.ops.mix_streams(x, score, 1), selected)
    }

    /// Returns the result of the expert of the layer `NAME` that all tokens share. With a gate it
    /// is a mixture of one expert, whose weight is the sigmoid of the gate.
    fn shared_expert(&mut self, x: ValueId, name: &str, network: FeedForward, gated: bool) -> Result<ValueId> {
        let FeedForward { hidden, ffn, activation, .. } = network;
        if !gated {
            let names = ["gate", "up", "down"].map(|part| format!("{name}.ffn_{part}_shexp"));
            let [gate, up] = [&names[0], &names[1]].map(|name| Projection { name, rows: ffn });
            let [gate, up] = self.linears(x, &names[1], [gate, up], hidden)?;
            let gate = self.ops.activate(activation, gate);
            let product = self.ops.mul(gate, up);
            return self.linear(product, &names[2], hidden, ffn);
        }
        let weight = self.linear(x, &format!("{name}.ffn_gate_inp_shexp"), 1, hidden)?;
        let weight = self.ops.activate(Activation::Sigmoid, weight);
        let mut matrix =
            |part: &str, rows, columns| self.weight(&format!("{name}.ffn_{part}_shexp.weight"), rows, columns);
        let matrices = [matrix("gate", ffn, hidden)?, matrix("up", ffn, hidden)?, matrix("down", hidden, ffn)?];
        Ok(self.ops.experts(
            x,
            weight,
            &matrices,
            ExpertsSpec { experts: 1, top_k: 1, glu: activation.into(), biased: false },
        ))
    }

    /// Returns the sum of the experts' results, weighted with `weights` `[rows, experts]`. The
    /// matrices are `NAME_gate_exps`, `NAME_up_exps` and `NAME_down_exps`, or the first two joined
    /// in `NAME_gate_up_exps`.
    pub fn experts(
        &mut self,
        x: ValueId,
        weights: ValueId,
        name: &str,
        hidden: usize,
        experts: &Experts,
        activation: Activation,
    ) -> Result<ValueId> {
        let &Experts { count, top_k, ffn, .. } = experts;
        let stack_name = |part: &str| format!("{name}_{part}_exps.weight");
        let mut biases = vec![];
        if experts.clamped {
            let parts = [("gate", ffn), ("up", ffn), ("down", hidden)];
            let rows = parts.map(|(part, width)| self.row(&format!("{name}_{part}_exps.bias"), [count, width]));
            let rows = rows.into_iter().collect::<Result<Vec<_>>>()?;
            biases.push(self.ops.concat(&rows));
        }
        let glu = if experts.clamped { Glu::Clamped } else { activation.into() };
        let mut matrices = match self.optional_stack(&stack_name("gate_up"), count, 2 * ffn, hidden)? {
            Some(gate_up) => vec![gate_up],
            None => vec![
                self.stack(&stack_name("gate"), count, ffn, hidden)?,
                self.stack(&stack_name("up"), count, ffn, hidden)?,
            ],
        };
        matrices.push(self.stack(&stack_name("down"), count, hidden, ffn)?);
        let spec = ExpertsSpec { experts: count, top_k, glu, biased: experts.clamped };
        Ok(self.ops.experts(x, weights, &[biases, matrices].concat(), spec))
    }
}
