//! Defines the parameters of a state-space scan.

use serde::Serialize;

use super::{RunTable, Strided, Template};
use crate::{
    backend::webgpu::kernel::{Binding, Resource, reads, writes},
    graph::ScanSpec,
};

/// A state-space scan, token by token.
#[derive(Debug, Serialize)]
pub struct StateScanKernel {
    /// Invocations of a workgroup.
    pub workgroup: usize,
    /// Invocations that share a row of the state.
    pub lanes: usize,
    /// Whether the invocations of a row are in one subgroup, whose operations they use.
    pub shuffles: bool,
    /// The sizes.
    pub scan: Scan,
    /// The runs.
    pub runs: RunTable,
    /// Elements of a state, `[heads, head_dim, size]`.
    pub state: usize,
    /// Inputs, then `B` and `C` of all groups.
    pub x: Strided,
    /// The lengths of the tokens' steps before the softplus, `[tokens, heads]`.
    pub dt: Strided,
    /// The result, `[tokens, heads, head_dim]`.
    pub y: Strided,
    /// The buffers of `a`, of the bias of `dt`, and of `d`, each `[heads]`.
    #[serde(skip)]
    pub rows: [Resource; 3],
    /// The buffer of the states.
    #[serde(skip)]
    pub states: Resource,
}

/// The sizes of a state-space scan.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scan {
    /// Number of heads.
    pub heads: usize,
    /// Number of groups.
    pub groups: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Columns of a head's state.
    pub size: usize,
}

impl From<&ScanSpec> for Scan {
    fn from(spec: &ScanSpec) -> Self {
        let ScanSpec { heads, groups, head_dim, size, .. } = *spec;
        Self { heads, groups, head_dim, size }
    }
}

impl Template for StateScanKernel {
    const NAME: &'static str = "state_scan";

    fn bindings(&self) -> Vec<Binding> {
        let [a, bias, d] = self.rows;
        vec![
            reads("x", "vec4<f32>", self.x.rows),
            reads("dt", "f32", self.dt.rows),
            reads("a", "f32", a),
            reads("bias", "f32", bias),
            reads("d", "f32", d),
            writes("states", "vec4<f32>", self.states),
            writes("y", "f32", self.y.rows),
        ]
    }
}
