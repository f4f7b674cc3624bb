//! Holds a graph to its invariants.

use super::{Graph, LayerCache, Node, Op, Rows, Shape, Source};
use crate::{Error, Result};

pub(super) fn verify(graph: &Graph) -> Result<()> {
    for (index, node) in graph.nodes.iter().enumerate() {
        check_node(graph, index, node)
            .map_err(|what| Error::Graph(format!("node {index} ({}): {what}", node.op.name())))?;
    }
    for (index, value) in graph.values.iter().enumerate() {
        if let Source::Constant(row) = &value.source
            && value.shape != Shape::new(Rows::Fixed(1), row.len())
        {
            return Err(Error::Graph(format!("constant %{index} has {} numbers and another shape", row.len())));
        }
    }
    match graph.values.get(graph.logits.index()) {
        Some(value) if value.shape.rows == Rows::Outputs => Ok(()),
        _ => Err(Error::Graph("the logits are not rows that the step wants".into())),
    }
}

fn check_node(graph: &Graph, index: usize, node: &Node) -> Result<(), String> {
    let mut shapes = Vec::with_capacity(node.inputs.len());
    for id in &node.inputs {
        let value = graph.values.get(id.index()).ok_or_else(|| format!("operand %{} does not exist", id.index()))?;
        if let Source::Node { node: producer, .. } = value.source
            && producer >= index
        {
            return Err(format!("operand %{} is made by node {producer}, which comes later", id.index()));
        }
        shapes.push(value.shape);
    }
    let wanted = node.op.infer(&shapes)?;
    let found: Vec<_> = node.outputs.iter().filter_map(|id| graph.values.get(id.index())).map(|v| v.shape).collect();
    if wanted != found {
        return Err(format!("results have shapes {found:?}, the op makes {wanted:?}"));
    }
    for (output, id) in node.outputs.iter().enumerate() {
        if graph.value(*id).source != (Source::Node { node: index, output }) {
            return Err(format!("result %{} names another producer", id.index()));
        }
    }
    if let Op::Attention(spec) = &node.op
        && graph.caches.get(spec.layer) != Some(&LayerCache { kv_heads: spec.kv_heads, head_dim: spec.head_dim })
    {
        return Err(format!("cache layer {} is missing or of another shape", spec.layer));
    }
    Ok(())
}
