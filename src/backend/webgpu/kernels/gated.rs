//! Defines the parameters of the kernel that gates rows.

use serde::Serialize;

use super::{BoundBuffer, Function, Norm, Strided, Template};
use crate::backend::webgpu::kernel::{Binding, reads, writes};

/// Multiplies rows with an activated gate. The groups of a row may be normed before.
#[derive(Debug, Serialize)]
pub struct GatedKernel {
    /// Invocations of a workgroup, which computes a group of a row.
    pub workgroup: u32,
    /// The smallest subgroup in invocations, if subgroup operations are used.
    pub subgroup: Option<u32>,
    /// Elements of a row.
    pub width: usize,
    /// Elements of a group; without a norm the last group may have fewer.
    pub len: usize,
    /// The activation of the gate.
    pub function: Function,
    /// The norm of each group.
    pub norm: Option<Norm>,
    /// The rows.
    pub x: Strided,
    /// The rows of the gate.
    pub gate: Strided,
    /// The result as f32.
    pub y: Option<Strided>,
    /// The result as int8 (`shared/q8.wgsl`); a group then has whole blocks.
    pub y_q8: Option<BoundBuffer>,
}

impl Template for GatedKernel {
    const NAME: &'static str = "gated";

    fn bindings(&self) -> Vec<Binding> {
        let mut bindings = vec![reads("x", "f32", self.x.rows), reads("gate", "f32", self.gate.rows)];
        bindings.extend(self.norm.map(|norm| reads("weight", "f32", norm.weight)));
        bindings.extend(self.y.map(|y| writes("y", "f32", y.rows)));
        bindings.extend(self.y_q8.map(|y| writes("y_q8", "u32", y.0)));
        bindings
    }
}
