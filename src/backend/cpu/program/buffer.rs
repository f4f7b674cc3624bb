//! The places of values at run time.

use crate::{
    Error, Result,
    graph::Rows,
    plan::{Operand, Place},
};

/// Floats from one row of so many to the next.
pub(crate) fn row_stride(width: usize) -> usize {
    /// Rows begin at a vector's boundary.
    const UNIT: usize = 16;
    /// Floats in a page of memory.
    const PAGE: usize = 1024;
    let stride = width.next_multiple_of(UNIT);
    // Products write sixteen elements of every row, and rows that lie whole pages apart share a few sets of a cache.
    if stride.is_multiple_of(PAGE) { stride + UNIT } else { stride }
}

/// A value's place at run time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    /// The slot's number.
    pub slot: usize,
    /// The value's rows.
    pub rows: Rows,
    /// Elements in a row of the value; the slot's may be further apart.
    pub width: usize,
}

pub(crate) fn place(place: &Place) -> Buffer {
    Buffer { slot: place.slot.index(), rows: place.shape.rows, width: place.shape.width }
}

pub(crate) fn buffer(operand: &Operand) -> Result<Buffer> {
    match operand {
        Operand::Slot(slot) => Ok(place(slot)),
        Operand::Tokens | Operand::Weight { .. } | Operand::Constant(_) => {
            Err(Error::Graph("an operand that the step computes is a weight, a constant or the tokens".into()))
        }
    }
}
