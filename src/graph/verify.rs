//! Holds a graph to its invariants.

use super::{Graph, LayerCache, Node, Op, Rows, Shape, Source, Value};
use crate::{Error, Result};

pub(super) fn verify(graph: &Graph) -> Result<()> {
    for (index, value) in graph.values.iter().enumerate() {
        check_value(graph, index, value).map_err(|what| Error::Graph(format!("value %{index}: {what}")))?;
    }
    let mut appended = vec![false; graph.caches.len()];
    let mut carried = vec![false; graph.states.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        check_node(graph, index, node)
            .and_then(|()| check_cache(graph, node, &mut appended))
            .and_then(|()| check_state(graph, &node.op, &mut carried))
            .map_err(|what| Error::Graph(format!("node {index} ({}): {what}", node.op.name())))?;
    }
    match graph.values.get(graph.logits.index()) {
        Some(value) if value.shape.rows == Rows::Outputs => Ok(()),
        _ => Err(Error::Graph("the logits are not rows that the step wants".into())),
    }
}

/// A value lies where it says, and has the kind of shape that its source has.
fn check_value(graph: &Graph, index: usize, value: &Value) -> Result<(), String> {
    let sound = match &value.source {
        Source::Tokens => value.shape == Shape::new(Rows::Tokens, 1),
        Source::Weight { .. } => matches!(value.shape.rows, Rows::Fixed(rows) if rows > 0),
        Source::Constant(row) => value.shape == Shape::new(Rows::Fixed(1), row.len()),
        Source::Node { node, output } => {
            let made = graph.nodes.get(*node).and_then(|node| node.outputs.get(*output));
            made.is_some_and(|id| id.index() == index)
        }
    };
    if sound && value.shape.width > 0 {
        Ok(())
    } else {
        Err(format!("{} is no shape for {:?}", value.shape, value.source))
    }
}

/// Operands come first and fit the op; results are what it makes.
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
    if wanted.len() != node.outputs.len() {
        return Err(format!("has {} results, the op makes {}", node.outputs.len(), wanted.len()));
    }
    for (output, (id, shape)) in node.outputs.iter().zip(wanted).enumerate() {
        match graph.values.get(id.index()) {
            Some(value) if value.source != (Source::Node { node: index, output }) => {
                return Err(format!("result %{} names another producer", id.index()));
            }
            Some(value) if value.shape == shape => {}
            Some(value) => return Err(format!("result %{} is {}, the op makes {shape}", id.index(), value.shape)),
            None => return Err(format!("result %{} does not exist", id.index())),
        }
    }
    Ok(())
}

/// Each attention that appends has a cache layer of its own, of its shape; the others read one that has been filled.
fn check_cache(graph: &Graph, node: &Node, appended: &mut [bool]) -> Result<(), String> {
    let Some(spec) = node.op.properties().attention else { return Ok(()) };
    if graph.caches.get(spec.layer) != Some(&LayerCache { kv_heads: spec.kv_heads, head_dim: spec.head_dim }) {
        return Err(format!("cache layer {} is missing or of another shape", spec.layer));
    }
    if node.inputs.len() == 1 {
        return match appended[spec.layer] {
            true => Ok(()),
            false => Err(format!("cache layer {} is read before anything fills it", spec.layer)),
        };
    }
    if std::mem::replace(&mut appended[spec.layer], true) {
        return Err(format!("cache layer {} has another attention already", spec.layer));
    }
    Ok(())
}

/// Each recurrent op has a state of its own, of its shape.
fn check_state(graph: &Graph, op: &Op, carried: &mut [bool]) -> Result<(), String> {
    let Some((number, shape)) = op.properties().state else { return Ok(()) };
    if graph.states.get(number) != Some(&shape) {
        return Err(format!("state {number} is missing or of another shape"));
    }
    if std::mem::replace(&mut carried[number], true) {
        return Err(format!("state {number} is another op's already"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::*, verify};
    use crate::DType;

    /// Embed, two products, a selection: soundly built.
    fn sound() -> Graph {
        let mut b = Builder::new();
        let tokens = b.tokens();
        let table = b.weight("table", DType::F32, 4, 8);
        let w = b.weight("w", DType::F32, 8, 8);
        let x = b.embed(table, tokens);
        let y = b.matmul(x, w);
        let z = b.matmul(y, w);
        b.finish(z).unwrap()
    }

    #[test]
    fn each_broken_invariant_is_named() {
        type Break = fn(&mut Graph);
        let cases: [(Break, &str); 9] = [
            (|g| g.nodes[1].inputs[0] = g.nodes[1].outputs[0], "node 1 (matmul): operand %4 is made by node 1"),
            (|g| g.nodes[1].inputs[0] = g.nodes[2].outputs[0], "node 1 (matmul): operand %5 is made by node 2"),
            (|g| g.nodes[2].inputs[0] = ValueId(99), "node 2 (matmul): operand %99 does not exist"),
            (|g| g.nodes[1].outputs[0] = g.nodes[2].outputs[0], "value %4: "),
            (|g| g.nodes[1].outputs.push(ValueId(99)), "node 1 (matmul): has 2 results, the op makes 1"),
            (|g| g.values[4].shape.width = 7, "node 1 (matmul): result %4 is [Tokens, 7], the op makes [Tokens, 8]"),
            (|g| g.values[1].shape.rows = Rows::Tokens, "value %1: [Tokens, 8] is no shape for"),
            (|g| g.logits = g.nodes[2].outputs[0], "the logits are not rows"),
            (|g| g.logits = ValueId(99), "the logits are not rows"),
        ];
        verify(&sound()).unwrap();
        for (break_it, expected) in cases {
            let mut graph = sound();
            break_it(&mut graph);
            let error = verify(&graph).unwrap_err().to_string();
            assert!(error.starts_with(&format!("graph: {expected}")), "{error}");
        }
    }
}
