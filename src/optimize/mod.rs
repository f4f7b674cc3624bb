//! Rewrites of a graph that leave its result as it is.
//!
//! In: a [`Graph`] as a model wrote it, and what the backend can do with it. Out: a graph of fewer and larger ops, with
//! a report of what was rewritten. Each pass is a small struct in a file of its own; [`PASSES`] lists them in order, and
//! the graph is verified after each, so that a pass that breaks it is named. A prefix of the list may be run alone,
//! which finds the pass that changes a result.

mod add_rms_norm;
mod common_subexpressions;
mod constant_folding;
mod epilogue;
mod glu;
mod joined_products;
mod output_rows;
mod product_norm;
mod rotated_attention;
mod unread;

use std::{fmt, sync::Arc};

pub use add_rms_norm::AddRmsNorm;
pub use common_subexpressions::CommonSubexpressions;
pub use constant_folding::ConstantFolding;
pub use epilogue::Epilogue;
pub use glu::Glu;
pub use joined_products::JoinedProducts;
pub use output_rows::OutputRows;
pub use product_norm::ProductNorm;
pub use rotated_attention::RotatedAttention;
pub use unread::Unread;

use crate::{
    Error, Result,
    graph::{Graph, Node, Op, ValueId},
};

/// What passes may ask about the model and the backend that the graph is for.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// Whether the backend has this fused op; the plain ones it must have.
    pub supports: &'a dyn Fn(&Op) -> bool,
    /// The elements of an F32 weight of one row, by name; `None` leaves the weight where it is.
    pub vector: &'a dyn Fn(&str) -> Option<Arc<[f32]>>,
}

/// A rewrite of graphs.
pub trait Pass: Sync {
    /// The pass's name in reports and messages.
    fn name(&self) -> &'static str;

    /// The rewritten graph, which computes what `graph` does, and how many rewrites were made.
    ///
    /// # Errors
    /// [`Error::Graph`] where the pass made an unsound graph.
    fn run(&self, graph: &Graph, target: &Target<'_>) -> Result<(Graph, usize)>;
}

/// All passes, in the order in which they run.
///
/// 1. What is unread goes first, so that the later passes count true readers alone.
/// 2. Folding makes constants equal that common subexpressions then share; both leave less for what follows.
/// 3. Fewer rows before any fusion: a fused op that serves all rows would hold up its part that could do with fewer.
/// 4. The GLU before joined products, which would take its two products away from it.
/// 5. The epilogue before the sum with norm: where a sum has a product for an addend both fit, and the epilogue spares
///    the product's way through memory, the norm one read of the sum. The latter gets the other sums, as after a bias.
/// 6. The product with norm before the sum with norm, for the same reason.
/// 7. Joined products after all others: they take every product that is left and shares its input.
/// 8. Rotated attention concerns no product, and comes last.
pub static PASSES: [&dyn Pass; 10] = [
    &Unread,
    &ConstantFolding,
    &CommonSubexpressions,
    &OutputRows,
    &Glu,
    &Epilogue,
    &ProductNorm,
    &AddRmsNorm,
    &JoinedProducts,
    &RotatedAttention,
];

/// A graph after its passes, and what they did.
#[derive(Clone, Debug)]
pub struct Optimized {
    /// The rewritten graph.
    pub graph: Graph,
    /// How many rewrites each pass made, in the order in which they ran.
    pub report: Vec<(&'static str, usize)>,
}

/// Runs all [`PASSES`].
///
/// # Errors
/// [`Error::Graph`] that names the pass after which the graph is unsound.
pub fn optimize(graph: &Graph, target: &Target<'_>) -> Result<Optimized> {
    optimize_with(&PASSES, graph, target)
}

/// Runs some passes: `&PASSES[..n]` stops after the first `n`.
///
/// # Errors
/// [`Error::Graph`] that names the pass after which the graph is unsound.
pub fn optimize_with(passes: &[&dyn Pass], graph: &Graph, target: &Target<'_>) -> Result<Optimized> {
    let mut optimized = Optimized { graph: graph.clone(), report: Vec::with_capacity(passes.len()) };
    for pass in passes {
        let blame = |error: &dyn fmt::Display| Error::Graph(format!("after pass `{}`: {error}", pass.name()));
        let (rewritten, rewrites) = pass.run(&optimized.graph, target).map_err(|error| blame(&error))?;
        rewritten.verify().map_err(|error| blame(&error))?;
        let of = |graph: &Graph| (graph.shape(graph.logits()), graph.caches().to_vec(), graph.states().to_vec());
        if of(&rewritten) != of(graph) {
            return Err(blame(&"the logits, the cache layers or the states are no longer those of the model"));
        }
        optimized.graph = rewritten;
        optimized.report.push((pass.name(), rewrites));
    }
    Ok(optimized)
}

/// The node that makes a value, where one reader is all that the value has: such a node may become part of its reader.
fn sole_use<'g>(graph: &'g Graph, uses: &[usize], id: ValueId) -> Option<&'g Node> {
    graph.producer(id).filter(|_| uses[id.index()] == 1)
}

/// The input and the matrix of the product that makes a value, where the value has one reader.
fn sole_product(graph: &Graph, uses: &[usize], id: ValueId) -> Option<(ValueId, ValueId)> {
    match sole_use(graph, uses, id)? {
        Node { op: Op::MatMul, inputs, .. } => Some((inputs[0], inputs[1])),
        _ => None,
    }
}
