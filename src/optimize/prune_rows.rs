use std::collections::HashMap;

use super::{Pass, Target};
use crate::{
    Result,
    graph::{Graph, Op, Rewriter, Rows, ValueId},
};

/// Computes row-wise ops only for the rows whose logits the step returns, if no other row of their
/// results is read.
///
/// The selection of rows moves up through row-wise ops, from the logits to the results of the last
/// attention and to the residual around it. A prefill then computes the last layer's feed-forward
/// network and the output head for few rows.
#[derive(Debug)]
pub struct PruneRows;

impl Pass for PruneRows {
    fn name(&self) -> &'static str {
        "prune_rows"
    }

    fn run(&self, graph: &Graph, _: &Target<'_>) -> Result<(Graph, usize)> {
        let pruned = prunable_nodes(graph);
        let mut pruning = Pruning { graph, pruned: &pruned, rewriter: Rewriter::new(graph), selected: HashMap::new() };
        for (index, node) in graph.nodes().iter().enumerate() {
            if pruned[index] {
                let inputs: Vec<_> = node.inputs.iter().map(|id| pruning.operand(*id)).collect();
                pruning.rewriter.fuse(node.op.clone(), &inputs, &node.outputs);
            } else if node.op == Op::SelectOutputs {
                let selected = pruning.operand(node.inputs[0]);
                pruning.rewriter.replace(node.outputs[0], selected);
            } else {
                pruning.rewriter.copy(index);
            }
        }
        Ok((pruning.rewriter.finish()?, pruned.iter().filter(|pruned| **pruned).count()))
    }
}

/// Returns for each node whether it is row-wise over tokens and only selections, or nodes that are
/// themselves pruned, read its results.
fn prunable_nodes(graph: &Graph) -> Vec<bool> {
    let uses = graph.uses();
    let mut all_rows_read = vec![false; graph.values().len()];
    graph.hidden().into_iter().for_each(|id| all_rows_read[id.index()] = true);
    let mut pruned = vec![false; graph.nodes().len()];
    for (index, node) in graph.nodes().iter().enumerate().rev() {
        let only_outputs_read = |id: &ValueId| graph.shape(*id).rows == Rows::Tokens && !all_rows_read[id.index()];
        pruned[index] = node.op.properties().row_wise
            && node.outputs.iter().all(only_outputs_read)
            && node.outputs.iter().any(|id| uses[id.index()] > 0);
        if !pruned[index] && node.op != Op::SelectOutputs {
            node.inputs.iter().for_each(|id| all_rows_read[id.index()] = true);
        }
    }
    pruned
}

struct Pruning<'g> {
    graph: &'g Graph,
    pruned: &'g [bool],
    rewriter: Rewriter<'g>,
    selected: HashMap<ValueId, ValueId>,
}

impl Pruning<'_> {
    /// Returns the selected rows of a value of the old graph, or all of a value without one row per
    /// token.
    fn operand(&mut self, old: ValueId) -> ValueId {
        let new = self.rewriter.renamed(old);
        if self.graph.shape(old).rows != Rows::Tokens || self.is_pruned(old) {
            return new;
        }
        let rewriter = &mut self.rewriter;
        *self.selected.entry(old).or_insert_with(|| rewriter.builder().push(Op::SelectOutputs, &[new]))
    }

    fn is_pruned(&self, old: ValueId) -> bool {
        matches!(self.graph.producer_index(old), Some(node) if self.pruned[node])
    }
}
