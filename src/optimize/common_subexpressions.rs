use std::collections::HashMap;

use super::{Pass, Target};
use crate::{
    DType, Result,
    graph::{Graph, Rewriter, Shape, Source, Value, ValueId},
    weights::TensorSlice,
};

/// Merges nodes with equal ops and operands, and equal weights and constants.
#[derive(Debug)]
pub struct CommonSubexpressions;

impl Pass for CommonSubexpressions {
    fn name(&self) -> &'static str {
        "common_subexpressions"
    }

    fn run(&self, graph: &Graph, _: &Target<'_>) -> Result<(Graph, usize)> {
        let mut rewriter = Rewriter::new(graph);
        let rewrites = share_sources(graph, &mut rewriter) + share_nodes(graph, &mut rewriter);
        Ok((rewriter.finish()?, rewrites))
    }
}

/// The identity of a source: two sources with equal keys are one value.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Tokens,
    Weight(TensorSlice, DType, Shape),
    /// The numbers' bits: zeros of different sign are different divisors.
    Constant(Vec<u32>),
}

impl Key {
    fn of(value: &Value) -> Option<Self> {
        match &value.source {
            Source::Tokens => Some(Self::Tokens),
            Source::Weight { slice, dtype } => Some(Self::Weight(slice.clone(), *dtype, value.shape)),
            Source::Constant(row) => Some(Self::Constant(row.iter().map(|number| number.to_bits()).collect())),
            Source::Node { .. } => None,
        }
    }
}

fn share_sources(graph: &Graph, rewriter: &mut Rewriter<'_>) -> usize {
    let mut first = HashMap::new();
    let mut rewrites = 0;
    let sources = graph.value_ids().filter_map(|id| Key::of(graph.value(id)).map(|key| (key, id)));
    for (key, id) in sources {
        let shared = *first.entry(key).or_insert(id);
        if shared != id {
            let shared = rewriter.renamed(shared);
            rewriter.replace(id, shared);
            rewrites += 1;
        }
    }
    rewrites
}

fn share_nodes(graph: &Graph, rewriter: &mut Rewriter<'_>) -> usize {
    // Earlier nodes by the new names of their operands: equal operands have one name before any
    // reader is visited.
    let mut seen: HashMap<Vec<ValueId>, Vec<usize>> = HashMap::new();
    let mut rewrites = 0;
    for (index, node) in graph.nodes().iter().enumerate() {
        let alike = seen.entry(rewriter.renamed_all(&node.inputs)).or_default();
        let twin = alike.iter().find(|twin| node.op.properties().pure && graph.nodes()[**twin].op == node.op);
        let Some(twin) = twin else {
            alike.push(index);
            rewriter.copy(index);
            continue;
        };
        let outputs = rewriter.renamed_all(&graph.nodes()[*twin].outputs);
        node.outputs.iter().zip(outputs).for_each(|(old, new)| rewriter.replace(*old, new));
        rewrites += 1;
    }
    rewrites
}
