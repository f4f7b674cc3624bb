//! Locates values in the memory of a step.

use crate::{
    Error, Result,
    graph::Rows,
    plan::{Operand, Place},
};

/// A value in a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    /// The number of the slot.
    pub slot: usize,
    /// The kind of the value's rows.
    pub rows: Rows,
    /// Elements of a row; rows may start further apart.
    pub width: usize,
}

impl Buffer {
    /// Returns the buffer of a value.
    pub fn at(place: &Place) -> Self {
        Self { slot: place.slot.index(), rows: place.shape.rows, width: place.shape.width }
    }

    /// Returns the buffer of an operand that the step computes.
    ///
    /// # Errors
    /// An internal error for the tokens, a weight or a constant.
    pub fn of(operand: &Operand) -> Result<Self> {
        match operand {
            Operand::Slot(place) => Ok(Self::at(place)),
            Operand::Tokens | Operand::Weight { .. } | Operand::Constant(_) => {
                Err(Error::internal("an operand that the step must compute is a weight, a constant or the tokens"))
            }
        }
    }
}

/// Returns the distance in floats between the starts of rows of `width` elements.
pub(crate) fn row_stride(width: usize) -> usize {
    /// Rows start at the boundary of a vector.
    const UNIT: usize = 16;
    /// Floats in a page of memory.
    const PAGE: usize = 1024;
    let stride = width.next_multiple_of(UNIT);
    // Products write sixteen elements of every row, and rows whole pages apart share a few sets of
    // a cache.
    if stride.is_multiple_of(PAGE) { stride + UNIT } else { stride }
}
