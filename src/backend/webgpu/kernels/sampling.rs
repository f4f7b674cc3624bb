//! Defines the parameters of the choice of tokens from logits.

use serde::Serialize;

use super::{BoundBuffer, Template};
use crate::backend::webgpu::kernel::{Binding, Resource, reads, writes};

/// Finds the largest logit.
#[derive(Debug, Serialize)]
pub struct Argmax {
    /// Invocations of a workgroup.
    pub workgroup: usize,
    /// Candidates of a row: logits, or results of the first dispatch.
    pub count: usize,
    /// Candidates of a workgroup.
    pub share: usize,
    /// The dispatch.
    pub round: ArgmaxRound,
}

/// The two dispatches of a search.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ArgmaxRound {
    /// Each workgroup finds the largest of its share of the logits.
    Shares {
        /// Workgroups of a row.
        groups: usize,
        /// Elements from the start of a row of logits to the start of the next.
        stride: usize,
        /// The buffer of the logits.
        #[serde(skip)]
        logits: Resource,
    },
    /// One workgroup finds the largest of their results.
    Join,
}

impl Template for Argmax {
    const NAME: &'static str = "argmax";

    fn bindings(&self) -> Vec<Binding> {
        match self.round {
            ArgmaxRound::Shares { logits, .. } => {
                vec![reads("logits", "f32", logits), writes("result", "vec2<u32>", Resource::ArgmaxCandidates)]
            }
            ArgmaxRound::Join => {
                vec![
                    reads("candidates", "vec2<u32>", Resource::ArgmaxCandidates),
                    writes("result", "u32", Resource::ArgmaxIds),
                ]
            }
        }
    }
}

/// Finds the largest logits of each row in descending order: each workgroup sorts its share of the
/// candidates and keeps the first of them.
#[derive(Debug, Serialize)]
pub struct BestKernel {
    /// Invocations of a workgroup.
    pub workgroup: usize,
    /// Candidates of a row: logits, or the candidates that the previous round kept.
    pub count: usize,
    /// Candidates of a workgroup, a power of two and a multiple of `kept`.
    pub share: usize,
    /// Candidates that a workgroup keeps, a power of two.
    pub kept: usize,
    /// Elements from the start of a row of logits to the start of the next.
    pub stride: usize,
    /// The buffer of the logits, in the first round.
    pub logits: Option<BoundBuffer>,
    /// The index of the round, which identifies the buffers between rounds.
    #[serde(skip)]
    pub round: usize,
}

impl Template for BestKernel {
    const NAME: &'static str = "best";

    fn bindings(&self) -> Vec<Binding> {
        let from = match self.logits {
            Some(logits) => reads("logits", "f32", logits.0),
            None => reads("found", "vec2<u32>", Resource::Best(self.round.saturating_sub(1))),
        };
        vec![from, writes("best", "vec2<u32>", Resource::Best(self.round))]
    }
}
