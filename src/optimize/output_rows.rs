//! In: a graph that selects the wanted rows at its end. Out: one that selects them as early as it can.

use std::collections::HashMap;

use super::{Pass, Target};
use crate::{
    Result,
    graph::{Graph, Op, Rewriter, Rows, ValueId},
};

/// Computes row-wise ops only on the rows whose logits the step wants, where no other rows of their results are read.
///
/// The selection of rows moves up through row-wise ops, from the logits to the results of the last attention and to
/// what bypasses it. A prefill then spends the last layer's feed-forward and the output head on few rows.
#[derive(Debug)]
pub struct OutputRows;

impl Pass for OutputRows {
    fn name(&self) -> &'static str {
        "output_rows"
    }

    fn run(&self, graph: &Graph, _: &Target<'_>) -> Result<(Graph, usize)> {
        let narrow = narrow_nodes(graph);
        let mut narrowing =
            Narrowing { graph, narrow: &narrow, rewriter: Rewriter::new(graph), selected: HashMap::new() };
        for (index, node) in graph.nodes().iter().enumerate() {
            if narrow[index] {
                let inputs: Vec<_> = node.inputs.iter().map(|id| narrowing.operand(*id)).collect();
                narrowing.rewriter.fuse(node.op.clone(), &inputs, &node.outputs);
            } else if node.op == Op::SelectOutputs {
                let selected = narrowing.operand(node.inputs[0]);
                narrowing.rewriter.replace(node.outputs[0], selected);
            } else {
                narrowing.rewriter.copy(index);
            }
        }
        Ok((narrowing.rewriter.finish()?, narrow.iter().filter(|narrow| **narrow).count()))
    }
}

/// Whether each node is row-wise over tokens and only wanted rows of its results are read, by selections or by nodes
/// of which the same is true.
fn narrow_nodes(graph: &Graph) -> Vec<bool> {
    let uses = graph.uses();
    let mut read_whole = vec![false; graph.values().len()];
    let mut narrow = vec![false; graph.nodes().len()];
    for (index, node) in graph.nodes().iter().enumerate().rev() {
        let wanted_rows = |id: &ValueId| graph.shape(*id).rows == Rows::Tokens && !read_whole[id.index()];
        narrow[index] = node.op.is_row_wise()
            && node.outputs.iter().all(wanted_rows)
            && node.outputs.iter().any(|id| uses[id.index()] > 0);
        if !narrow[index] && node.op != Op::SelectOutputs {
            node.inputs.iter().for_each(|id| read_whole[id.index()] = true);
        }
    }
    narrow
}

struct Narrowing<'g> {
    graph: &'g Graph,
    narrow: &'g [bool],
    rewriter: Rewriter<'g>,
    selected: HashMap<ValueId, ValueId>,
}

impl Narrowing<'_> {
    /// The wanted rows of a value of the old graph; all of it where it is no value of one row a token.
    fn operand(&mut self, old: ValueId) -> ValueId {
        let new = self.rewriter.renamed(old);
        if self.graph.shape(old).rows != Rows::Tokens || self.is_narrow(old) {
            return new;
        }
        let rewriter = &mut self.rewriter;
        *self.selected.entry(old).or_insert_with(|| rewriter.builder().push(Op::SelectOutputs, &[new]))
    }

    fn is_narrow(&self, old: ValueId) -> bool {
        matches!(self.graph.producer_index(old), Some(node) if self.narrow[node])
    }
}
