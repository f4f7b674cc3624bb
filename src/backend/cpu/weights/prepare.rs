//! Makes the weights that a plan reads ready: matrices interleaved, tables and vectors found.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{float::FloatMatrix, interleave::interleave, matrix::Matrix, stack::Stack};
use crate::{
    Error, Result,
    backend::{LoadProgress, cpu::threads::pool::Pool},
    graph::{Op, Rows, Shape},
    plan::{Operand, Plan},
    quant,
    weights::{Weight, Weights},
};

/// The weights of a plan.
pub(crate) struct Prepared {
    matrices: HashMap<Arc<str>, Arc<Matrix>>,
    /// All of the plan's while it is made ready, then those that steps read in place.
    weights: Weights,
}

/// A table of rows to look up.
pub(crate) enum Table {
    /// The table is also multiplied with, so that only its interleaved form is kept.
    Packed(Arc<Matrix>),
    /// Where the weights have it.
    InPlace { name: Arc<str>, shape: Shape },
}

impl Prepared {
    /// Interleaves every quantised matrix that a product of `plan` reads.
    pub fn new(plan: &Plan, weights: &Weights, pool: &mut Pool, progress: &LoadProgress<'_>) -> Result<Self> {
        let mut prepared = Self { matrices: HashMap::new(), weights: weights.clone() };
        let mut quantized = HashMap::new();
        for step in plan.steps() {
            for (index, operand) in step.matrices().iter().enumerate() {
                let (weight, stack) = matrix_weight(operand, step.stacked(index), weights)?;
                if weight.dtype.is_float() {
                    prepared.add(weight.name, Matrix::Float(FloatMatrix::new(&weight, stack)?));
                } else {
                    quantized.insert(weight.name, (weight, stack));
                }
            }
        }
        if !quantized.is_empty() {
            weights.read_ahead();
        }
        for (weight, packed) in interleave(quantized.into_values().collect(), pool, progress)? {
            prepared.add(weight.name, Matrix::Packed(packed));
        }
        Ok(prepared)
    }

    fn add(&mut self, name: &str, matrix: Matrix) {
        self.matrices.insert(name.into(), Arc::new(matrix));
    }

    /// Lets go of the weights that steps do not read in place.
    pub fn keep_in_place(&mut self, plan: &Plan) -> Result<()> {
        self.weights = self.weights.only(in_place(plan).iter().map(|name| &**name))?;
        Ok(())
    }

    /// Lets matrices that are read where the file has them come from the disk, and does not wait for them.
    pub fn read_ahead(&self) {
        if self.matrices.values().any(|matrix| !matrix.is_quantized()) {
            self.weights.read_ahead();
        }
    }

    /// The matrix that a product reads, where it wants so many in one.
    pub fn matrix(&self, operand: &Operand, stacked: usize) -> Result<Arc<Matrix>> {
        let Operand::Weight { name, .. } = operand else {
            return Err(Error::Graph("a product's matrix is no weight".into()));
        };
        let made = self.matrices.get(name).filter(|matrix| matrix.stack().count == stacked).cloned();
        made.ok_or_else(|| Error::tensor(&**name, "is divided in one way here and in another there"))
    }

    /// The table that an embedding reads.
    pub fn table(&self, operand: &Operand) -> Result<Table> {
        let Operand::Weight { name, shape, .. } = operand else {
            return Err(Error::Graph("an embedding's table is no weight".into()));
        };
        match self.matrices.get(name) {
            Some(matrix) if matrix.is_quantized() => Ok(Table::Packed(matrix.clone())),
            _ => Ok(Table::InPlace { name: name.clone(), shape: *shape }),
        }
    }

    /// One row of numbers: a constant, or a weight converted.
    pub fn vector(&self, operand: &Operand) -> Result<Arc<[f32]>> {
        match operand {
            Operand::Constant(row) => Ok(row.clone()),
            Operand::Weight { name, shape, .. } => {
                let (rows, columns) = dimensions(*shape)?;
                let weight = self.weights.get(name, &[rows, columns])?;
                let mut out = vec![0.0; rows * columns];
                quant::dequantize_row(weight.dtype, &weight.read(0..weight.byte_len())?, &mut out)?;
                // A vector of a few kilobytes can hold a page of the file of two megabytes.
                weight.done_with(0..weight.byte_len());
                Ok(out.into())
            }
            Operand::Tokens | Operand::Slot(_) => Err(Error::Graph("a vector is computed at run time".into())),
        }
    }

    /// The row `row` of a table, as floats.
    pub fn read_row(&self, table: &Table, row: usize, bytes: &mut Vec<u8>, out: &mut [f32]) -> Result<()> {
        match table {
            Table::Packed(matrix) => match &**matrix {
                Matrix::Packed(packed) => {
                    bytes.resize(packed.dtype.row_bytes(packed.stack.columns).unwrap_or(0), 0);
                    packed.read_row(row, bytes);
                    quant::dequantize_row(packed.dtype, bytes, out)
                }
                Matrix::Float(_) => Err(Error::Graph("a float table was taken for an interleaved one".into())),
            },
            Table::InPlace { name, shape } => {
                let (rows, columns) = dimensions(*shape)?;
                let weight = self.weights.get(name, &[rows, columns])?;
                let size = weight.dtype.row_bytes(columns).unwrap_or(0);
                quant::dequantize_row(weight.dtype, &weight.bytes_of(row * size..(row + 1) * size), out)
            }
        }
    }
}

/// Returns the names of the tensors that the steps of a plan read where the weights have them: matrices of plain floats,
/// and tables that are not also quantised matrices.
pub(crate) fn in_place(plan: &Plan) -> Vec<Arc<str>> {
    let (mut read, mut packed) = (vec![], HashSet::new());
    for step in plan.steps() {
        for operand in step.matrices() {
            match operand {
                Operand::Weight { name, dtype, .. } if dtype.is_float() => read.push(name.clone()),
                Operand::Weight { name, .. } => drop(packed.insert(name.clone())),
                Operand::Tokens | Operand::Constant(_) | Operand::Slot(_) => {}
            }
        }
    }
    let tables = plan.steps().iter().filter(|step| step.op == Op::Embed).flat_map(|step| step.inputs.first());
    read.extend(tables.filter_map(|table| match table {
        Operand::Weight { name, .. } => Some(name.clone()).filter(|name| !packed.contains(name)),
        Operand::Tokens | Operand::Constant(_) | Operand::Slot(_) => None,
    }));
    read
}

/// The widest operand that `plan` multiplies with a quantised matrix.
pub(crate) fn widest_quantized(plan: &Plan) -> usize {
    let matrices = plan.steps().iter().flat_map(|step| step.matrices());
    let widths = matrices.map(|operand| match operand {
        Operand::Weight { dtype, shape, .. } if !dtype.is_float() => shape.width,
        _ => 0,
    });
    widths.max().unwrap_or(0)
}

fn dimensions(shape: Shape) -> Result<(usize, usize)> {
    match shape.rows {
        Rows::Fixed(rows) => Ok((rows, shape.width)),
        Rows::Tokens | Rows::Outputs => Err(Error::Graph("a weight's rows depend on the step".into())),
    }
}

/// The weight that a product's matrix is made from, and what lies in it: `stacked` matrices.
fn matrix_weight<'w>(operand: &'w Operand, stacked: usize, weights: &'w Weights) -> Result<(Weight<'w>, Stack)> {
    let Operand::Weight { name, dtype, shape } = operand else {
        return Err(Error::Graph("a product's matrix is no weight".into()));
    };
    let (rows, columns) = dimensions(*shape)?;
    let weight = weights.matrix(name, rows, columns)?;
    // The plan's sizes are made from what the graph says.
    if weight.dtype != *dtype {
        return Err(Error::tensor(&**name, format!("is stored as {}, but the graph has {dtype}", weight.dtype)));
    }
    Ok((weight, Stack { count: stacked, rows: rows / stacked, columns }))
}
