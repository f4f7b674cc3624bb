//! In: any graph. Out: the same without what its logits do not depend on, so that readers counted are true ones.

use super::{Pass, Target};
use crate::{Result, graph::Graph};

/// Removes the nodes, weights and constants that the logits do not depend on.
#[derive(Debug)]
pub struct Unread;

impl Pass for Unread {
    fn name(&self) -> &'static str {
        "unread"
    }

    fn run(&self, graph: &Graph, _: &Target<'_>) -> Result<(Graph, usize)> {
        let rewritten = graph.without_unread()?;
        let removed = graph.values().len() - rewritten.values().len();
        Ok((rewritten, removed))
    }
}
