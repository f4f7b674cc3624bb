//! Defines the parameters of kernels that compute rows in the forms of their readers, and of
//! kernels that norm and rotate heads.

use serde::Serialize;

use super::{BoundBuffer, GluFunction, MatrixPlanes, Norm, Records, Rotation, Strided, Template};
use crate::backend::webgpu::kernel::{Binding, Resource, reads, writes};

/// Computes rows, applies a norm if there is one, and writes the rows in one or several forms.
#[derive(Debug, Serialize)]
pub struct RowsKernel {
    /// Invocations of a workgroup, which computes a row.
    pub workgroup: u32,
    /// The smallest subgroup in invocations, if subgroup operations are used.
    pub subgroup: Option<u32>,
    /// Elements of a row.
    pub width: usize,
    /// The computation of a row.
    pub source: RowSource,
    /// The norm of the rows.
    pub norm: Option<Norm>,
    /// The rows before the norm, as f32.
    pub sum: Option<Strided>,
    /// The rows as f32.
    pub y: Option<Strided>,
    /// The rows as int8 in blocks of 32 (`shared/q8.wgsl`).
    pub y_q8: Option<BoundBuffer>,
    /// The rows as f16.
    pub y_f16: Option<F16Output>,
}

/// The computation of a row.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RowSource {
    /// Copies the row with the same index.
    Copy {
        /// The rows.
        a: RowInput,
    },
    /// Copies the row of the output's token.
    Select {
        /// The rows of all tokens.
        a: RowInput,
        /// The tokens' records.
        records: Records,
    },
    /// Adds two rows.
    Sum {
        /// The first summand.
        a: RowInput,
        /// The second summand.
        b: RowInput,
    },
    /// Multiplies two rows, the first after an activation.
    Glu {
        /// The gated linear unit.
        function: GluFunction,
        /// The operand of the activation.
        a: RowInput,
        /// The second factor.
        b: RowInput,
    },
    /// Decodes the row of the token's id.
    Embed {
        /// The table, `[vocabulary, width]`.
        table: MatrixPlanes,
        /// The ids of the rows in `table`, if it is a part of the vocabulary.
        ids: Option<IdRange>,
    },
}

/// Consecutive ids.
#[derive(Debug, Serialize)]
pub struct IdRange {
    /// The first id.
    pub first: usize,
    /// The id after the last.
    pub end: usize,
}

/// Rows of f32 that a kernel reads.
#[derive(Debug, Serialize)]
pub struct RowInput {
    /// The name of the buffer.
    pub name: InputName,
    /// Elements from the start of a row to the start of the next.
    pub stride: usize,
    /// The buffer.
    #[serde(skip)]
    pub rows: Resource,
}

/// The name of a buffer that a kernel reads. A buffer that is also an output has the output's name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InputName {
    /// The first operand.
    A,
    /// The second operand.
    B,
    /// The rows before the norm.
    Sum,
    /// The rows as f32.
    Y,
}

/// Rows of f16, each divided by a power of two so that it does not overflow.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct F16Output {
    /// Elements from the start of a row to the start of the next.
    pub stride: usize,
    /// The buffer of the rows, two elements a word.
    #[serde(skip)]
    pub rows: Resource,
    /// The buffer of the powers of two, an f32 a row.
    #[serde(skip)]
    pub scales: Resource,
}

impl RowInput {
    /// Returns the binding of the buffer, or `None` if an output binds it.
    fn binding(&self) -> Option<Binding> {
        match self.name {
            InputName::A => Some(reads("a", "vec4<f32>", self.rows)),
            InputName::B => Some(reads("b", "vec4<f32>", self.rows)),
            InputName::Sum | InputName::Y => None,
        }
    }
}

impl Template for RowsKernel {
    const NAME: &'static str = "rows";

    fn bindings(&self) -> Vec<Binding> {
        let mut bindings = match &self.source {
            RowSource::Copy { a } | RowSource::Select { a, .. } => a.binding().into_iter().collect(),
            RowSource::Sum { a, b } | RowSource::Glu { a, b, .. } => {
                a.binding().into_iter().chain(b.binding()).collect()
            }
            RowSource::Embed { table, .. } => {
                let mut bindings = vec![reads("ids", "u32", Resource::Ids)];
                bindings.extend(table.bindings());
                bindings
            }
        };
        bindings.extend(self.norm.map(|norm| reads("norm_weight", "vec4<f32>", norm.weight)));
        bindings.extend(self.sum.map(|sum| writes("sum", "vec4<f32>", sum.rows)));
        bindings.extend(self.y.map(|y| writes("y", "vec4<f32>", y.rows)));
        bindings.extend(self.y_q8.map(|y| writes("y_q8", "u32", y.0)));
        if let Some(half) = self.y_f16 {
            bindings.push(writes("y_f16", "u32", half.rows));
            bindings.push(writes("y_scales", "f32", half.scales));
        }
        bindings
    }
}

/// Norms heads, rotates them, or both.
#[derive(Debug, Serialize)]
pub struct Heads {
    /// Invocations of a workgroup, which computes a head of a token.
    pub workgroup: u32,
    /// The smallest subgroup in invocations, if subgroup operations are used.
    pub subgroup: Option<u32>,
    /// Elements of a head.
    pub head_dim: usize,
    /// The heads, `[tokens, heads, head_dim]`; `None` if they are `y` itself.
    pub x: Option<Strided>,
    /// The result.
    pub y: Strided,
    /// The norm of each head.
    pub norm: Option<Norm>,
    /// The rotation after it.
    pub rotation: Option<Rotation>,
    /// The tokens' records.
    pub records: Records,
}

impl Template for Heads {
    const NAME: &'static str = "heads";

    fn bindings(&self) -> Vec<Binding> {
        let mut bindings = vec![writes("y", "f32", self.y.rows)];
        bindings.extend(self.x.map(|x| reads("x", "f32", x.rows)));
        bindings.extend(self.norm.map(|norm| reads("weight", "f32", norm.weight)));
        bindings
    }
}
