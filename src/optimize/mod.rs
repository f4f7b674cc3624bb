//! Rewrites a graph into fewer and larger ops with the same result.
//!
//! The input is the [`Graph`] that a model wrote, with the fused ops that the backend supports; the
//! output is a graph and a report of the rewrites. Each pass is a small struct in its own file.
//! [`PASSES`] lists them in order, and the graph is verified after each, so an error names the pass
//! that broke it. To find a pass that changes a result, run a prefix of the list with
//! [`optimize_with`].

mod common_subexpressions;
mod constant_folding;
mod dead_code;
mod fusion;
mod merge_matmuls;
mod prune_rows;

use std::{fmt, sync::Arc};

pub use common_subexpressions::CommonSubexpressions;
pub use constant_folding::ConstantFolding;
pub use dead_code::DeadCode;
pub use fusion::{AddNormFusion, GatedFusion, GluFusion, MatMulAddFusion, MatMulAddNormFusion, RotatedAttentionFusion};
pub use merge_matmuls::MergeMatMuls;
pub use prune_rows::PruneRows;

use crate::{
    Error, Result,
    graph::{FusedOp, Graph},
    weights::TensorSlice,
};

/// Returns the elements of an F32 weight of one row, by slice and width, or `None` to leave the
/// weight in the graph.
pub type FindVector<'a> = dyn Fn(&TensorSlice, usize) -> Option<Arc<[f32]>> + 'a;

/// The backend and the model that a graph is optimized for.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// Returns whether the backend has a kernel for a fused op. Every backend has all plain ops.
    pub supports: &'a dyn Fn(&FusedOp) -> bool,
    /// The model's vectors.
    pub vector: &'a FindVector<'a>,
}

/// A rewrite of graphs.
pub trait Pass: Sync {
    /// Returns the pass's name in reports and messages.
    fn name(&self) -> &'static str;

    /// Returns the rewritten graph, with the same result as `graph`, and the number of rewrites.
    ///
    /// # Errors
    /// [`Error::Internal`] if the rewritten graph is not valid.
    fn run(&self, graph: &Graph, target: &Target<'_>) -> Result<(Graph, usize)>;
}

/// All passes, in the order in which they run.
///
/// 1. Dead code goes first, so that later passes count only live readers.
/// 2. Folding makes constants equal, which common subexpressions then share; both leave less work
///    for later passes.
/// 3. Rows are pruned before any fusion: a fused op that needs all rows would keep its parts from
///    being pruned.
/// 4. The GLU comes before merged products, which would take its two products away, and before
///    other gates, which would take its activation.
/// 5. A product is fused with its sum before sums are fused with norms: if a sum has a product for
///    an operand both patterns match, and the first saves a write and a read of the product, the
///    second one read of the sum. Sums without a product, as after a bias, are left for the second.
/// 6. A product with sum is fused with its norm before other sums are, for the same reason.
/// 7. Products are merged after the other fusions: the pass takes every product that still shares
///    its input.
/// 8. Rotated attention has no product, so its place does not matter.
pub static PASSES: [&dyn Pass; 11] = [
    &DeadCode,
    &ConstantFolding,
    &CommonSubexpressions,
    &PruneRows,
    &GluFusion,
    &GatedFusion,
    &MatMulAddFusion,
    &MatMulAddNormFusion,
    &AddNormFusion,
    &MergeMatMuls,
    &RotatedAttentionFusion,
];

/// An optimized graph, and the rewrites that led to it.
#[derive(Clone, Debug)]
pub struct Optimized {
    /// The rewritten graph.
    pub graph: Graph,
    /// The number of rewrites of each pass, in the order in which the passes ran.
    pub report: Vec<(&'static str, usize)>,
}

/// Runs all [`PASSES`].
///
/// # Errors
/// [`Error::Internal`] that names the pass after which the graph is not valid.
pub fn optimize(graph: &Graph, target: &Target<'_>) -> Result<Optimized> {
    optimize_with(&PASSES, graph, target)
}

/// Runs the given passes in order; `&PASSES[..n]` is a prefix of all passes.
///
/// # Errors
/// [`Error::Internal`] that names the pass after which the graph is not valid.
pub fn optimize_with(passes: &[&dyn Pass], graph: &Graph, target: &Target<'_>) -> Result<Optimized> {
    let mut optimized = Optimized { graph: graph.clone(), report: Vec::with_capacity(passes.len()) };
    for pass in passes {
        let blame = |error: &dyn fmt::Display| Error::internal(format!("after pass `{}`: {error}", pass.name()));
        let (rewritten, rewrites) = pass.run(&optimized.graph, target).map_err(|error| blame(&error))?;
        rewritten.verify().map_err(|error| blame(&error))?;
        let interface = |graph: &Graph| {
            let results: Vec<_> = graph.results().map(|id| graph.shape(id)).collect();
            (results, graph.caches().to_vec(), graph.states().to_vec())
        };
        if interface(&rewritten) != interface(graph) {
            return Err(blame(&"the pass changed the shape of a result, the cache layers or the states"));
        }
        optimized.graph = rewritten;
        optimized.report.push((pass.name(), rewrites));
    }
    Ok(optimized)
}
