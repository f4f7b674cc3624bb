//! What passes rewrite graphs with.

use super::{Builder, Graph, Op, Source, ValueId};
use crate::Result;

/// Writes a graph anew, node by node, with some of its values replaced.
///
/// A pass walks the nodes of the old graph in order and either copies each or replaces its results. What nothing reads
/// any more is left out at the end, so that a pass need not say which nodes it made needless.
#[derive(Debug)]
pub struct Rewriter<'g> {
    graph: &'g Graph,
    builder: Builder,
    renamed: Vec<Option<ValueId>>,
}

impl<'g> Rewriter<'g> {
    /// An empty graph with the cache layers of `graph`.
    pub fn new(graph: &'g Graph) -> Self {
        Self { graph, builder: Builder::with_caches_of(graph), renamed: vec![None; graph.values.len()] }
    }

    /// The new name of a value of the old graph. Weights, constants and nodes that were passed over are copied when
    /// they are first asked for.
    pub fn renamed(&mut self, old: ValueId) -> ValueId {
        if let Some(new) = self.renamed[old.index()] {
            return new;
        }
        let value = self.graph.value(old);
        if let Source::Node { node, output } = value.source {
            return self.copy(node)[output];
        }
        let new = self.builder.source(value.shape, value.source.clone());
        self.replace(old, new);
        new
    }

    /// The new names of several values of the old graph.
    pub fn renamed_all(&mut self, old: &[ValueId]) -> Vec<ValueId> {
        old.iter().map(|id| self.renamed(*id)).collect()
    }

    /// The node of the old graph at this position, over its operands' new names; returns the new names of its results.
    /// Results that have a new name already keep it.
    pub fn copy(&mut self, node: usize) -> Vec<ValueId> {
        let node = &self.graph.nodes[node];
        if node.outputs.iter().any(|id| self.renamed[id.index()].is_none()) {
            let inputs = self.renamed_all(&node.inputs);
            let outputs = self.builder.push_all(node.op.clone(), &inputs);
            for (old, new) in node.outputs.iter().zip(outputs) {
                self.renamed[old.index()].get_or_insert(new);
            }
        }
        self.renamed_all(&node.outputs)
    }

    /// Adds a node over values of the new graph and lets its results stand for values of the old one.
    pub fn fuse(&mut self, op: impl Into<Op>, inputs: &[ValueId], replaced: &[ValueId]) {
        for (old, new) in replaced.iter().zip(self.builder.push_all(op, inputs)) {
            self.replace(*old, new);
        }
    }

    /// What else writes the new graph.
    pub fn builder(&mut self) -> &mut Builder {
        &mut self.builder
    }

    /// Lets a value of the new graph stand for one of the old.
    pub fn replace(&mut self, old: ValueId, new: ValueId) {
        self.renamed[old.index()] = Some(new);
    }

    /// The new graph, without what nothing reads.
    ///
    /// # Errors
    /// [`Error::Graph`](crate::Error::Graph) where operands do not fit their op.
    pub fn finish(mut self) -> Result<Graph> {
        let logits = self.renamed(self.graph.logits);
        self.builder.finish(logits)?.without_dead_code()
    }
}

impl Graph {
    /// This graph without the nodes, weights and constants that the logits do not depend on. An attention that nothing
    /// reads goes too: the cache that it would append to serves it alone.
    pub(crate) fn without_dead_code(&self) -> Result<Graph> {
        let mut read = vec![false; self.values.len()];
        read[self.logits.index()] = true;
        let mut live = Vec::new();
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if node.outputs.iter().any(|id| read[id.index()]) {
                node.inputs.iter().for_each(|id| read[id.index()] = true);
                live.push(index);
            }
        }
        let mut rewriter = Rewriter::new(self);
        for node in live.into_iter().rev() {
            rewriter.copy(node);
        }
        let logits = rewriter.renamed(self.logits);
        rewriter.builder.finish(logits)
    }
}
