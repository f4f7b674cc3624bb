//! Converts the tensors of a file one after the other, a few million weights at a time.

use std::{io::Write, ops::Range, thread};

use inkstone::{DType, gguf::TensorInfo, internals::quant::dequantize_row};

use crate::{
    blocks::{QuantizeRow, quantizer},
    common::Failure,
    mixture::columns,
};

/// The weights that are converted at a time, unless a row has more. They bound the memory.
const WEIGHTS: usize = 4 << 20;

/// The largest magnitude for which no scale can be too large for an f16.
const SAFE: f32 = 32_000.0;

/// A tensor to be converted.
pub struct Conversion<'a> {
    tensor: &'a TensorInfo,
    bytes: &'a [u8],
    row_bytes: usize,
    from: DType,
    to: DType,
    quantize: QuantizeRow,
    /// A number for each column, for one matrix of a stack after the other.
    importance: Option<&'a [f32]>,
}

impl<'a> Conversion<'a> {
    /// Creates the conversion of a tensor with these `bytes`.
    pub fn new(
        tensor: &'a TensorInfo,
        bytes: &'a [u8],
        to: DType,
        importance: Option<&'a [f32]>,
    ) -> Result<Self, Failure> {
        let name = &tensor.name;
        let from =
            tensor.dtype.dtype().ok_or_else(|| format!("tensor `{name}`: {} cannot be decoded", tensor.dtype))?;
        let quantize = quantizer(to).ok_or_else(|| format!("tensor `{name}`: there is no quantizer for {to}"))?;
        let row_bytes = bytes.len() / (tensor.elements() / columns(tensor));
        Ok(Self { tensor, bytes, row_bytes, from, to, quantize, importance })
    }

    /// Writes the converted tensor. Calls `done` with each range of the old bytes after its last
    /// use.
    pub fn write(&self, threads: usize, out: &mut impl Write, done: impl Fn(Range<usize>)) -> Result<(), Failure> {
        let rows = self.tensor.elements() / columns(self.tensor);
        let slab = (WEIGHTS / columns(self.tensor)).max(threads);
        for start in (0..rows).step_by(slab) {
            let rows = (rows - start).min(slab);
            let share = rows.div_ceil(threads);
            let parts = (0..rows).step_by(share).map(|first| start + first..start + (first + share).min(rows));
            let converted: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> = parts.map(|rows| scope.spawn(move || self.rows(rows))).collect();
                threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect()
            });
            for part in converted {
                out.write_all(&part?)?;
            }
            done(start * self.row_bytes..(start + rows) * self.row_bytes);
        }
        Ok(())
    }

    fn rows(&self, rows: Range<usize>) -> Result<Vec<u8>, String> {
        let columns = columns(self.tensor);
        let of_matrix = self.tensor.shape.iter().rev().nth(1).copied().unwrap_or(1);
        let (mut weights, mut out) = (vec![0.0; columns], vec![]);
        for row in rows {
            let start = out.len();
            let bytes = &self.bytes[row * self.row_bytes..][..self.row_bytes];
            dequantize_row(self.from, bytes, &mut weights).map_err(|error| error.to_string())?;
            if weights.iter().any(|weight| !weight.is_finite()) {
                return Err(format!("tensor `{}`: row {row} has a weight that is not finite", self.tensor.name));
            }
            let importance = self.importance.map(|all| &all[row / of_matrix * columns..][..columns]);
            (self.quantize)(&weights, importance, &mut out);
            if weights.iter().any(|weight| weight.abs() > SAFE) {
                self.check(row, &out[start..], &mut weights)?;
            }
        }
        Ok(out)
    }

    /// Checks that no weight of a converted row is infinite.
    fn check(&self, row: usize, bytes: &[u8], weights: &mut [f32]) -> Result<(), String> {
        dequantize_row(self.to, bytes, weights).map_err(|error| error.to_string())?;
        match weights.iter().all(|weight| weight.is_finite()) {
            true => Ok(()),
            false => Err(format!("tensor `{}`: row {row} has weights too large for {}", self.tensor.name, self.to)),
        }
    }
}
