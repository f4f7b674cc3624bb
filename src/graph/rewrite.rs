//! Rewrites graphs, for passes.

use super::{Builder, Graph, Op, Source, ValueId};
use crate::Result;

/// Copies a graph node by node, with some of its values replaced.
///
/// A pass visits the nodes of the old graph in order, and copies each or replaces its results.
/// [`finish`](Self::finish) removes dead code, so a pass need not remove the nodes that it
/// replaces.
#[derive(Debug)]
pub struct Rewriter<'g> {
    graph: &'g Graph,
    builder: Builder,
    renamed: Vec<Option<ValueId>>,
}

impl<'g> Rewriter<'g> {
    /// Returns a rewriter of `graph`; the new graph is empty, with the same cache layers and
    /// states.
    pub fn new(graph: &'g Graph) -> Self {
        Self { graph, builder: Builder::with_caches_of(graph), renamed: vec![None; graph.values.len()] }
    }

    /// Returns the new id of a value of the old graph. Weights, constants and nodes that the pass
    /// has not visited are copied on first use.
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

    /// Returns the new ids of several values of the old graph.
    pub fn renamed_all(&mut self, old: &[ValueId]) -> Vec<ValueId> {
        old.iter().map(|id| self.renamed(*id)).collect()
    }

    /// Copies a node of the old graph, given by its position, and returns the new ids of its
    /// results. Results that have been replaced stay replaced.
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

    /// Adds a node over values of the new graph, and replaces values of the old graph by its
    /// results.
    pub fn fuse(&mut self, op: impl Into<Op>, inputs: &[ValueId], replaced: &[ValueId]) {
        for (old, new) in replaced.iter().zip(self.builder.push_all(op, inputs)) {
            self.replace(*old, new);
        }
    }

    /// Returns the builder of the new graph.
    pub fn builder(&mut self) -> &mut Builder {
        &mut self.builder
    }

    /// Replaces a value of the old graph by a value of the new graph.
    pub fn replace(&mut self, old: ValueId, new: ValueId) {
        self.renamed[old.index()] = Some(new);
    }

    /// Returns the new graph without dead code.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) if operands do not fit their op.
    pub fn finish(self) -> Result<Graph> {
        self.finish_results()?.without_dead_code()
    }

    fn finish_results(mut self) -> Result<Graph> {
        let logits = self.renamed(self.graph.logits);
        let hidden = self.graph.hidden.map(|hidden| self.renamed(hidden));
        self.builder.finish_with(logits, hidden)
    }
}

impl Graph {
    /// Returns the graph without the nodes, weights and constants that the results do not depend
    /// on. An attention whose result nothing reads is removed too, as only other attentions read
    /// its cache.
    pub(crate) fn without_dead_code(&self) -> Result<Graph> {
        let mut read = vec![false; self.values.len()];
        self.results().for_each(|id| read[id.index()] = true);
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
        rewriter.finish_results()
    }
}
