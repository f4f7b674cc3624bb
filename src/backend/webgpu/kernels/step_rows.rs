//! Defines the parameters of kernels of rows that depend on the inputs of the step, and of layer
//! norms.

use serde::Serialize;

use super::{F32, Records, Strided, Template};
use crate::backend::webgpu::kernel::{Binding, Resource, reads, writes};

/// Computes rows that depend on the inputs of the step.
#[derive(Debug, Serialize)]
pub struct StepRows {
    /// Invocations of a workgroup, each of which computes a column.
    pub workgroup: usize,
    /// Columns of a row of `y`.
    pub width: usize,
    /// The rows.
    pub source: StepRowSource,
    /// The operand; `None` if it is `y` itself, or if there is none.
    pub x: Option<Strided>,
    /// The result.
    pub y: Strided,
    /// The tokens' records.
    pub records: Records,
}

/// The rows that [`StepRows`] computes.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StepRowSource {
    /// The step's rows, 0 for tokens without one.
    Given {
        /// Columns of a given row.
        given_width: usize,
    },
    /// The operand, with the step's rows in the place of its own.
    Placed {
        /// The first column of a given row that is read.
        first: usize,
        /// Whether only given rows whose column before the first one is not 0 are placed.
        marked: bool,
        /// Columns of a given row.
        given_width: usize,
    },
    /// The operand plus the step's rows.
    Added {
        /// The first column of a given row that is read.
        first: usize,
        /// Columns of a given row.
        given_width: usize,
    },
    /// The rows of an output's token and of the tokens after it.
    Joined {
        /// Columns of a row of the operand.
        part: usize,
    },
    /// The operand times `1 + scale ln(1 + floor((position + offset) / interval))`.
    Tempered {
        /// The factor of the logarithm.
        scale: F32,
        /// The number of positions with the same factor.
        interval: usize,
        /// The number that is added to a position first.
        offset: usize,
    },
    /// The weighted sum of four rows of a table.
    Interpolated {
        /// The first word, in a token's record, of its four pairs of a row and a weight.
        taps_at: usize,
        /// The buffer of the table.
        #[serde(skip)]
        table: Resource,
    },
}

impl Template for StepRows {
    const NAME: &'static str = "step_rows";

    fn bindings(&self) -> Vec<Binding> {
        let mut bindings = vec![writes("y", "f32", self.y.rows)];
        bindings.extend(self.x.map(|x| reads("x", "f32", x.rows)));
        match self.source {
            StepRowSource::Given { .. } | StepRowSource::Placed { .. } | StepRowSource::Added { .. } => {
                bindings.push(reads("given", "f32", Resource::Given));
            }
            StepRowSource::Interpolated { table, .. } => bindings.push(reads("table", "f32", table)),
            StepRowSource::Joined { .. } | StepRowSource::Tempered { .. } => {}
        }
        bindings
    }
}

/// Computes the layer norms of rows, or of groups of their elements.
#[derive(Debug, Serialize)]
pub struct LayerNormKernel {
    /// Invocations of a workgroup, which computes a group.
    pub workgroup: u32,
    /// The smallest subgroup in invocations, if subgroup operations are used.
    pub subgroup: Option<u32>,
    /// Elements of a group.
    pub width: usize,
    /// Added to the variance.
    pub eps: F32,
    /// 1 / the elements of a group.
    pub reciprocal: F32,
    /// The rows; `None` if they are `y` itself.
    pub x: Option<Strided>,
    /// The result.
    pub y: Strided,
    /// The buffer of the weights, one for each element of a row.
    #[serde(skip)]
    pub weight: Resource,
    /// The buffer of the biases, one for each element of a row.
    #[serde(skip)]
    pub bias: Resource,
}

impl Template for LayerNormKernel {
    const NAME: &'static str = "layer_norm";

    fn bindings(&self) -> Vec<Binding> {
        let mut bindings = vec![writes("y", "f32", self.y.rows)];
        bindings.extend(self.x.map(|x| reads("x", "f32", x.rows)));
        bindings.extend([reads("weight", "f32", self.weight), reads("bias", "f32", self.bias)]);
        bindings
    }
}
