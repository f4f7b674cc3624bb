//! Prepares the weights of a plan: interleaves matrices, and locates embedding tables and vectors.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{float::FloatMatrix, interleave::interleave, matrix::Matrix, stack::Stack};
use crate::{
    Error, Result,
    backend::{
        LoadProgress,
        cpu::{kernels::quantize::CHUNK, threads::pool::Pool},
    },
    graph::{Op, Rows, Shape},
    plan::{Operand, Plan, PlanStep},
    quant,
    weights::{TensorSlice, Weight, Weights},
};

/// The weights of a plan.
pub(crate) struct PreparedWeights {
    matrices: HashMap<TensorSlice, Arc<Matrix>>,
    /// All weights while the plan is compiled, then only the weights that steps read in place.
    weights: Weights,
}

/// The table of an embedding.
pub(crate) enum EmbeddingTable {
    /// A table that is also a quantized matrix of a product: only its interleaved form is kept.
    Packed(Arc<Matrix>),
    /// A table that is read where the weights have it, `[vocabulary, width]`.
    InPlace { slice: TensorSlice, shape: Shape },
}

impl PreparedWeights {
    /// Interleaves the quantized matrices that the products of `plan` read, and locates the float
    /// ones. The matrices of `shared` are used again.
    ///
    /// # Errors
    /// If a weight is missing, unreadable or not as the graph says, the memory is refused, or
    /// the caller of `progress` cancels.
    pub fn new(
        plan: &Plan,
        weights: &Weights,
        shared: Option<&Self>,
        pool: &mut Pool,
        progress: &LoadProgress<'_>,
    ) -> Result<Self> {
        let mut prepared = Self { matrices: HashMap::new(), weights: weights.clone() };
        let mut quantized = HashMap::new();
        for step in plan.steps() {
            for (index, operand) in step.matrices().iter().enumerate() {
                let (weight, stack) = matrix_weight(operand, step.stacked(index), weights)?;
                if let Some(known) = shared.and_then(|shared| shared.matrices.get(&weight.slice)) {
                    prepared.matrices.insert(weight.slice.clone(), known.clone());
                    continue;
                }
                if weight.dtype.is_float() {
                    let matrix = FloatMatrix::new(&weight, stack)?;
                    prepared.add(weight.slice, Matrix::Float(matrix));
                } else {
                    quantized.insert(weight.slice.clone(), (weight, stack));
                }
            }
        }
        if !quantized.is_empty() {
            weights.read_ahead();
        }
        for (weight, packed) in interleave(quantized.into_values().collect(), pool, progress)? {
            prepared.add(weight.slice, Matrix::Packed(packed));
        }
        Ok(prepared)
    }

    fn add(&mut self, slice: TensorSlice, matrix: Matrix) {
        self.matrices.insert(slice, Arc::new(matrix));
    }

    /// Drops the weights that steps do not read in place.
    ///
    /// # Errors
    /// As [`Weights::only`].
    pub fn keep_in_place(&mut self, plan: &Plan) -> Result<()> {
        self.weights = self.weights.only(read_in_place(plan).iter().map(|name| &**name))?;
        Ok(())
    }

    /// Starts to read float matrices from the disk, and does not wait for them.
    pub fn read_ahead(&self) {
        if self.matrices.values().any(|matrix| !matrix.is_quantized()) {
            self.weights.read_ahead();
        }
    }

    /// Returns the matrix of a product, which reads `count` stacked matrices.
    ///
    /// # Errors
    /// [`Error::Tensor`] if another op reads the tensor as another number of matrices.
    pub fn matrix(&self, operand: &Operand, count: usize) -> Result<Arc<Matrix>> {
        let Operand::Weight { slice, .. } = operand else {
            return Err(Error::internal("the matrix of a product is not a weight"));
        };
        let matrix = self.matrices.get(slice).ok_or_else(|| Error::internal(format!("`{slice}` was not prepared")))?;
        let prepared = matrix.stack().count;
        if prepared != count {
            let reason =
                format!("is {count} stacked matrices for one op, and {prepared} for another: give each its own");
            return Err(Error::tensor(slice, reason));
        }
        Ok(matrix.clone())
    }

    /// Returns the table of an embedding.
    pub fn table(&self, operand: &Operand) -> Result<EmbeddingTable> {
        let Operand::Weight { slice, shape, .. } = operand else {
            return Err(Error::internal("the table of an embedding is not a weight"));
        };
        match self.matrices.get(slice) {
            Some(matrix) if matrix.is_quantized() => Ok(EmbeddingTable::Packed(matrix.clone())),
            _ => Ok(EmbeddingTable::InPlace { slice: slice.clone(), shape: *shape }),
        }
    }

    /// Returns a constant, or a weight converted to f32.
    ///
    /// # Errors
    /// If the weight is missing or cannot be read.
    pub fn vector(&self, operand: &Operand) -> Result<Arc<[f32]>> {
        match operand {
            Operand::Constant(row) => Ok(row.clone()),
            Operand::Weight { slice, shape, .. } => {
                let (rows, columns) = dimensions(*shape)?;
                let row = if rows == 1 { self.weights.find_row(slice, columns)? } else { None };
                let weight = row.map_or_else(|| self.weights.get(slice, &[rows, columns]), Ok)?;
                let mut out = vec![0.0; rows * columns];
                quant::dequantize_row(weight.dtype, &weight.read(0..weight.byte_len())?, &mut out)?;
                // A vector of a few kilobytes can keep a page of two megabytes of the file
                // resident.
                weight.done_with(0..weight.byte_len());
                Ok(out.into())
            }
            Operand::Tokens | Operand::Slot(_) => Err(Error::internal("the vector of an op is computed by the step")),
        }
    }

    /// Writes row `row` of a table to `out` as f32; `bytes` is scratch.
    ///
    /// # Errors
    /// If the weight is missing.
    pub fn read_row(&self, table: &EmbeddingTable, row: usize, bytes: &mut Vec<u8>, out: &mut [f32]) -> Result<()> {
        match table {
            EmbeddingTable::Packed(matrix) => match &**matrix {
                Matrix::Packed(packed) => {
                    bytes.resize(packed.dtype.row_bytes(packed.stack.columns).unwrap_or(0), 0);
                    packed.read_row(row, bytes);
                    quant::dequantize_row(packed.dtype, bytes, out)
                }
                Matrix::Float(_) => Err(Error::internal("a float table is not interleaved")),
            },
            EmbeddingTable::InPlace { slice, shape } => {
                let (rows, columns) = dimensions(*shape)?;
                let weight = self.weights.matrix(slice, rows, columns)?;
                let size = weight.dtype.row_bytes(columns).unwrap_or(0);
                quant::dequantize_row(weight.dtype, &weight.bytes_of(row * size..(row + 1) * size), out)
            }
        }
    }
}

/// Returns the names of the tensors that steps read where the weights have them: float matrices,
/// and embedding tables that are not also quantized matrices.
pub(crate) fn read_in_place(plan: &Plan) -> Vec<Arc<str>> {
    let (mut names, mut packed) = (vec![], HashSet::new());
    for step in plan.steps() {
        for operand in step.matrices() {
            match operand {
                Operand::Weight { slice, dtype, .. } if dtype.is_float() => names.push(slice.name.clone()),
                Operand::Weight { slice, .. } => drop(packed.insert(slice)),
                Operand::Tokens | Operand::Constant(_) | Operand::Slot(_) => {}
            }
        }
    }
    let tables = plan.steps().iter().filter_map(|step| step.inputs.get(step.op.properties().table?));
    names.extend(tables.filter_map(|table| match table {
        Operand::Weight { slice, .. } => Some(slice.name.clone()).filter(|_| !packed.contains(slice)),
        Operand::Tokens | Operand::Constant(_) | Operand::Slot(_) => None,
    }));
    names
}

/// Returns the width of the widest activations that `plan` multiplies with a quantized matrix. Each
/// head of a product by heads is padded as a row is.
pub(crate) fn widest_quantized(plan: &Plan) -> usize {
    let width = |step: &PlanStep, operand: &Operand| match operand {
        Operand::Weight { dtype, shape, .. } if !dtype.is_float() => {
            let heads = if let Op::MatMulHeads { heads } = step.op { heads } else { 1 };
            heads * shape.width.next_multiple_of(CHUNK)
        }
        _ => 0,
    };
    let widths = plan.steps().iter().flat_map(|step| step.matrices().iter().map(move |operand| width(step, operand)));
    widths.max().unwrap_or(0)
}

/// Returns `(rows, columns)` of a weight.
fn dimensions(shape: Shape) -> Result<(usize, usize)> {
    match shape.rows {
        Rows::Fixed(rows) => Ok((rows, shape.width)),
        Rows::Tokens | Rows::Outputs => Err(Error::internal("the rows of a weight depend on the step")),
    }
}

/// Returns the weight of a product's operand, which is `count` stacked matrices, and their shape.
fn matrix_weight<'w>(operand: &'w Operand, count: usize, weights: &'w Weights) -> Result<(Weight<'w>, Stack)> {
    let Operand::Weight { slice, dtype, shape } = operand else {
        return Err(Error::internal("the matrix of a product is not a weight"));
    };
    let (rows, columns) = dimensions(*shape)?;
    let weight = weights.matrix(slice, rows, columns)?;
    // The sizes of the plan follow from the format in the graph.
    if weight.dtype != *dtype {
        return Err(Error::tensor(slice, format!("is stored as {}, but the graph has {dtype}", weight.dtype)));
    }
    Ok((weight, Stack { count, rows: rows / count, columns }))
}
