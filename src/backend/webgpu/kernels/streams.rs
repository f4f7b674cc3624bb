//! Defines the parameters of kernels of rows that consist of several streams.

use serde::Serialize;

use super::{F32, Strided, Template};
use crate::backend::webgpu::kernel::{Binding, reads, writes};

/// Computes weighted sums of the parts of rows.
#[derive(Debug, Serialize)]
pub struct MixStreamsKernel {
    /// Invocations of a workgroup, each of which computes a column.
    pub workgroup: usize,
    /// Columns of a row of `y`.
    pub width: usize,
    /// Columns of a part.
    pub part: usize,
    /// Parts of a row of `x`.
    pub streams: usize,
    /// The rows.
    pub x: Strided,
    /// The weights of the parts of a row, one for each part of the row of `y`.
    pub weights: Strided,
    /// The result.
    pub y: Strided,
}

impl Template for MixStreamsKernel {
    const NAME: &'static str = "mix_streams";

    fn bindings(&self) -> Vec<Binding> {
        vec![
            writes("y", "f32", self.y.rows),
            reads("x", "f32", self.x.rows),
            reads("weights", "f32", self.weights.rows),
        ]
    }
}

/// Computes the deviation of each row from its mean, or from 0.
#[derive(Debug, Serialize)]
pub struct DeviationKernel {
    /// Invocations of a workgroup, which computes a row.
    pub workgroup: u32,
    /// The smallest subgroup in invocations, if subgroup operations are used.
    pub subgroup: Option<u32>,
    /// Elements of a row.
    pub width: usize,
    /// 1 / the elements of a row.
    pub reciprocal: F32,
    /// Whether the deviation is that from the mean.
    pub centered: bool,
    /// The rows.
    pub x: Strided,
    /// The result, an element a row.
    pub y: Strided,
}

impl Template for DeviationKernel {
    const NAME: &'static str = "deviation";

    fn bindings(&self) -> Vec<Binding> {
        vec![writes("y", "f32", self.y.rows), reads("x", "f32", self.x.rows)]
    }
}
