//! Checks the invariants of a graph.

use super::{AttentionSpec, Graph, LayerCache, Node, Op, Rows, Shape, Source, Value, ValueId};
use crate::{Error, Result};

pub(super) fn verify(graph: &Graph) -> Result<()> {
    for (index, value) in graph.values.iter().enumerate() {
        check_value(graph, index, value).map_err(|error| Error::internal(format!("value %{index}: {error}")))?;
    }
    let mut appended = vec![false; graph.caches.len()];
    let mut carried = vec![false; graph.states.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        check_node(graph, index, node)
            .and_then(|()| check_cache(graph, node, &mut appended))
            .and_then(|()| check_state(graph, &node.op, &mut carried))
            .map_err(|error| Error::internal(format!("node {index} ({}): {error}", node.op.name())))?;
    }
    let shape = |id: ValueId| graph.values.get(id.index()).map(|value| value.shape);
    if shape(graph.logits).is_none_or(|logits| logits.rows != Rows::Outputs) {
        return Err(Error::internal("the logits do not have the rows `Outputs`"));
    }
    if graph.hidden.is_some_and(|id| graph.producer_index(id).is_none()) {
        return Err(Error::internal("no node makes the hidden rows"));
    }
    Ok(())
}

/// Checks that a value is a result of its source's node, and that its shape fits its source.
fn check_value(graph: &Graph, index: usize, value: &Value) -> Result<(), String> {
    let is_valid = match &value.source {
        Source::Tokens => value.shape == Shape::new(Rows::Tokens, 1),
        Source::Weight { .. } => matches!(value.shape.rows, Rows::Fixed(rows) if rows > 0),
        Source::Constant(row) => value.shape == Shape::new(Rows::Fixed(1), row.len()),
        Source::Node { node, output } => {
            let result = graph.nodes.get(*node).and_then(|node| node.outputs.get(*output));
            result.is_some_and(|id| id.index() == index)
        }
    };
    if is_valid && value.shape.width > 0 {
        Ok(())
    } else {
        Err(format!("shape {} does not fit the source {:?}", value.shape, value.source))
    }
}

/// Checks that operands precede the node and fit its op, and that the results have the op's shapes.
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
    let expected = node.op.infer(&shapes)?;
    if expected.len() != node.outputs.len() {
        return Err(format!("has {} results, the op makes {}", node.outputs.len(), expected.len()));
    }
    for (output, (id, shape)) in node.outputs.iter().zip(expected).enumerate() {
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

/// Checks that an attention that appends is the only one of its cache layer, unless it reads only
/// what it has appended itself, and that any other attention reads a layer that an earlier node has
/// filled.
fn check_cache(graph: &Graph, node: &Node, appended: &mut [bool]) -> Result<(), String> {
    let Some(spec) = node.op.properties().attention else { return Ok(()) };
    let AttentionSpec { kv_heads, head_dim, keys_only, .. } = spec;
    if graph.caches.get(spec.layer) != Some(&LayerCache { kv_heads, head_dim, keys_only }) {
        return Err(format!("cache layer {} is missing or has another shape", spec.layer));
    }
    if node.inputs.len() == 1 {
        return if appended[spec.layer] {
            Ok(())
        } else {
            Err(format!("cache layer {} is read before an attention fills it", spec.layer))
        };
    }
    if std::mem::replace(&mut appended[spec.layer], true) && !spec.scores.sees.only_the_step() {
        return Err(format!("cache layer {} already has an attention that appends to it", spec.layer));
    }
    Ok(())
}

/// Checks that a recurrent op is the only one of its state.
fn check_state(graph: &Graph, op: &Op, carried: &mut [bool]) -> Result<(), String> {
    let Some((number, shape)) = op.properties().state else { return Ok(()) };
    if graph.states.get(number) != Some(&shape) {
        return Err(format!("state {number} is missing or has another shape"));
    }
    if std::mem::replace(&mut carried[number], true) {
        return Err(format!("state {number} already belongs to another op"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::*, verify};
    use crate::DType;

    /// Returns a valid graph: an embedding, two products and a selection.
    fn valid_graph() -> Graph {
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
    fn verify_names_each_broken_invariant() {
        type Break = fn(&mut Graph);
        let cases: [(Break, &str); 9] = [
            (|g| g.nodes[1].inputs[0] = g.nodes[1].outputs[0], "node 1 (matmul): operand %4 is made by node 1"),
            (|g| g.nodes[1].inputs[0] = g.nodes[2].outputs[0], "node 1 (matmul): operand %5 is made by node 2"),
            (|g| g.nodes[2].inputs[0] = ValueId(99), "node 2 (matmul): operand %99 does not exist"),
            (|g| g.nodes[1].outputs[0] = g.nodes[2].outputs[0], "value %4: "),
            (|g| g.nodes[1].outputs.push(ValueId(99)), "node 1 (matmul): has 2 results, the op makes 1"),
            (|g| g.values[4].shape.width = 7, "node 1 (matmul): result %4 is [Tokens, 7], the op makes [Tokens, 8]"),
            (|g| g.values[1].shape.rows = Rows::Tokens, "value %1: shape [Tokens, 8] does not fit"),
            (|g| g.logits = g.nodes[2].outputs[0], "the logits do not have the rows"),
            (|g| g.logits = ValueId(99), "the logits do not have the rows"),
        ];
        verify(&valid_graph()).unwrap();
        for (break_it, expected) in cases {
            let mut graph = valid_graph();
            break_it(&mut graph);
            let error = verify(&graph).unwrap_err().to_string();
            assert!(error.starts_with(&format!("internal error in inkstone: {expected}")), "{error}");
        }
    }
}
