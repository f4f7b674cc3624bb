//! Defines the parameters of products of up to 16 rows.

use serde::Serialize;

use super::{BoundBuffer, ExpertStack, F32, GluFunction, MatrixPlanes, RowCount, Strided, Template};
use crate::backend::webgpu::{
    kernel::{Binding, Resource, reads, writes},
    tiles::GemvShape,
};

/// Products of up to `tokens` rows `x` at a time with packed matrices.
///
/// Quantized matrices are multiplied with rows of int8, float matrices with rows of f32.
#[derive(Debug, Serialize)]
pub struct MatMulFew {
    /// The division of the work.
    pub shape: GemvShape,
    /// The smallest subgroup in invocations, if subgroup operations are used.
    pub subgroup: Option<u32>,
    /// Rows `x` that a workgroup multiplies.
    pub tokens: usize,
    /// The number of rows `x`.
    pub rows: RowCount,
    /// Elements of a row `x`, or of each head of it.
    pub columns: usize,
    /// The number of heads of a row `x`, each with a matrix of the stack; 1 for whole rows.
    pub heads: usize,
    /// The rows as int8, if a part is quantized or the rows lack a norm.
    pub x_q8: Option<Q8Input>,
    /// Elements from the start of a row of f32 to the start of the next.
    pub x_stride: usize,
    /// The buffer of the rows as f32, if a part has floats.
    #[serde(skip)]
    pub x_f32: Option<Resource>,
    /// The matrices, all with the same number of columns.
    pub parts: Vec<GemvPart>,
    /// The tables that a workgroup copies to its memory first.
    pub tables: Vec<SharedTable>,
    /// The last operation on the products.
    pub finish: Finish,
    /// The int8 result, if the kernel writes one. A workgroup then computes 32 rows of the matrix.
    pub y_q8: Option<Q8Output>,
    /// The biases of experts, if there are any.
    pub biases: Option<BoundBuffer>,
    /// The experts, if the parts are stacked matrices of experts.
    pub experts: Option<GemvExperts>,
}

/// Rows of int8.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Q8Input {
    /// The norm that is not complete in the rows.
    pub norm: Option<PendingNorm>,
    /// The buffer of the rows.
    #[serde(skip)]
    pub rows: Resource,
}

/// An incomplete norm: rows are multiplied by its weights, but not yet divided by their root mean
/// square.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PendingNorm {
    /// Added to the mean square.
    pub eps: F32,
    /// 1 / the elements of a row.
    pub reciprocal: F32,
}

/// A matrix, or the part of it that fits one binding.
#[derive(Debug, Serialize)]
pub struct GemvPart {
    /// The matrix.
    pub matrix: MatrixPlanes,
    /// Rows of the part, or of the matrix of each expert or head.
    pub rows: usize,
    /// The rows of each expert or head, if the matrix is a stack.
    pub stack: Option<ExpertStack>,
    /// The first workgroup of the part.
    pub first_block: usize,
    /// The workgroup after the last of the part.
    pub end_block: usize,
    /// The first element, in a row of the result, of the part's products.
    pub out_at: usize,
    /// Elements from the start of a row of the result to the start of the next.
    pub out_stride: usize,
    /// The first of the part's biases, `[experts, rows]`, in the buffer of biases.
    pub bias_at: usize,
    /// The buffer of the result, if f32 is written.
    pub out: Option<BoundBuffer>,
}

/// A table that the decoder of a format looks up, in the memory of a workgroup, where look-ups at
/// different places do not wait for one another as much as in a cache.
#[derive(Debug, Serialize)]
pub struct SharedTable {
    /// The name of the array.
    pub name: String,
    /// The number of a matrix that the table follows.
    pub number: usize,
    /// The first word of the table, in the words of that matrix.
    pub at: u32,
    /// The number of words.
    pub words: usize,
}

/// Words of all tables of a kernel, in a workgroup's memory of at least 16 KB.
const MAX_TABLE_WORDS: usize = 2048;

/// Lets the decoders of the parts look up copies of their tables, one for each format, as far as a
/// workgroup's memory has room.
pub fn share_tables(parts: &mut [GemvPart]) -> Vec<SharedTable> {
    let mut tables: Vec<SharedTable> = vec![];
    for GemvPart { matrix, .. } in parts {
        let name = format!("table_{}", matrix.format);
        let used: usize = tables.iter().map(|table| table.words).sum();
        let is_shared = tables.iter().any(|table| table.name == name);
        if matrix.table_words == 0 || !is_shared && used + matrix.table_words > MAX_TABLE_WORDS {
            continue;
        }
        if !is_shared {
            let (number, at, words) = (matrix.number, matrix.table_at, matrix.table_words);
            tables.push(SharedTable { name: name.clone(), number, at, words });
        }
        (matrix.table, matrix.table_at) = (name, 0);
    }
    tables
}

/// The last operation on products.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Finish {
    /// Stores the products.
    Store,
    /// Adds the products to the content of the result. There is one part.
    AddInPlace,
    /// Adds the products to rows of another buffer. There is one part.
    Add {
        /// Elements from the start of a row to the start of the next.
        stride: usize,
        /// The buffer of the rows.
        #[serde(skip)]
        rows: Resource,
    },
    /// Multiplies the product of the first part, after an activation, with the product of the
    /// second part.
    Glu {
        /// The gated linear unit.
        function: GluFunction,
    },
}

/// A result that is written as int8 in blocks of 32 (`shared/q8.wgsl`).
#[derive(Debug, Serialize)]
pub struct Q8Output {
    /// Blocks of a row.
    pub blocks: usize,
    /// The buffer of the norm's weights, if the result is multiplied by them.
    pub norm: Option<BoundBuffer>,
    /// The same result before it is rounded, if it is also written.
    pub floats: Option<Strided>,
    /// The buffer of the result.
    #[serde(skip)]
    pub rows: Resource,
}

/// The experts of a layer, whose matrices are stacked.
#[derive(Debug, Serialize)]
pub struct GemvExperts {
    /// Number of experts in the layer.
    pub count: usize,
    /// Largest number of active experts of a row.
    pub top_k: usize,
    /// Whether a row's result is the weighted sum over its experts. Otherwise the result has a row
    /// for each active expert of a row.
    pub sums: bool,
    /// The list of each row's (expert, weight), `[rows, top_k]`.
    #[serde(skip)]
    pub selected: Resource,
}

impl Template for MatMulFew {
    const NAME: &'static str = "matmul_few";

    fn bindings(&self) -> Vec<Binding> {
        let mut bindings = vec![];
        bindings.extend(self.experts.as_ref().map(|experts| reads("selected", "vec2<u32>", experts.selected)));
        bindings.extend(self.x_q8.map(|x| reads("x_q8", "vec4<u32>", x.rows)));
        bindings.extend(self.x_f32.map(|x| reads("x_f32", "vec4<f32>", x)));
        bindings.extend(self.parts.iter().flat_map(|part| part.matrix.bindings()));
        if let Finish::Add { rows, .. } = self.finish {
            bindings.push(reads("residual", "f32", rows));
        }
        for part in &self.parts {
            bindings.extend(part.out.map(|out| writes(format!("out{}", part.matrix.number), "f32", out.0)));
        }
        if let Some(y) = &self.y_q8 {
            bindings.extend(y.norm.map(|norm| reads("norm", "f32", norm.0)));
            bindings.extend(y.floats.map(|y| writes("y", "f32", y.rows)));
            bindings.push(writes("y_q8", "u32", y.rows));
        }
        bindings.extend(self.biases.map(|biases| reads("expert_biases", "f32", biases.0)));
        bindings
    }
}
