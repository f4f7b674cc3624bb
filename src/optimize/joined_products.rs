//! In: products that share an input. Out: one op, since a step of many small ops waits more than it computes.

use std::collections::HashMap;

use super::{Pass, Target};
use crate::{
    Result,
    graph::{Graph, Op, Rewriter, Source, ValueId},
};

/// Products of one input with several matrices, such as Q, K and V, become one op, wherever they stand: the input is
/// prepared once and the threads part once over all rows.
#[derive(Debug)]
pub struct JoinedProducts;

impl Pass for JoinedProducts {
    fn name(&self) -> &'static str {
        "joined_products"
    }

    fn run(&self, graph: &Graph, target: &Target<'_>) -> Result<(Graph, usize)> {
        let groups = if (target.supports)(&Op::MatMulJoined) { groups(graph) } else { HashMap::new() };
        let mut rewriter = Rewriter::new(graph);
        for (index, node) in graph.nodes().iter().enumerate() {
            // At the first of the group, which all its readers follow; the others then have their results already.
            let group = node.inputs.first().and_then(|x| groups.get(x)).filter(|group| group[0] == index);
            let Some(group) = group else {
                rewriter.copy(index);
                continue;
            };
            let members = || group.iter().map(|member| &graph.nodes()[*member]);
            let inputs: Vec<_> =
                node.inputs[..1].iter().copied().chain(members().map(|member| member.inputs[1])).collect();
            let outputs: Vec<_> = members().map(|member| member.outputs[0]).collect();
            let inputs = rewriter.renamed_all(&inputs);
            rewriter.fuse(Op::MatMulJoined, &inputs, &outputs);
        }
        Ok((rewriter.finish()?, groups.len()))
    }
}

/// The positions of the products with a weight that share an input, by that input, where there are several.
fn groups(graph: &Graph) -> HashMap<ValueId, Vec<usize>> {
    let mut groups: HashMap<_, Vec<_>> = HashMap::new();
    for (index, node) in graph.nodes().iter().enumerate() {
        if let (Op::MatMul, [x, w]) = (&node.op, node.inputs.as_slice())
            && matches!(graph.value(*w).source, Source::Weight { .. })
        {
            groups.entry(*x).or_default().push(index);
        }
    }
    groups.retain(|_, group| group.len() > 1);
    groups
}
