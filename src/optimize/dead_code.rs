use super::{Pass, Target};
use crate::{Result, graph::Graph};

/// Removes the nodes, weights and constants that the results do not depend on.
#[derive(Debug)]
pub struct DeadCode;

impl Pass for DeadCode {
    fn name(&self) -> &'static str {
        "dead_code"
    }

    fn run(&self, graph: &Graph, _: &Target<'_>) -> Result<(Graph, usize)> {
        let rewritten = graph.without_dead_code()?;
        let removed = graph.values().len() - rewritten.values().len();
        Ok((rewritten, removed))
    }
}
