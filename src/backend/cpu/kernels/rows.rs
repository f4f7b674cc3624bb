//! Addresses rows of floats.

/// Rows of f32 that start `stride` elements apart.
#[derive(Clone, Copy)]
pub(crate) struct StridedRows {
    pub start: *mut f32,
    pub stride: usize,
}

impl StridedRows {
    /// Returns the first element of a row.
    #[inline(always)]
    pub fn row(self, row: usize) -> *mut f32 {
        self.start.wrapping_add(row * self.stride)
    }

    /// Returns the rows from `row` on.
    #[inline(always)]
    pub fn skip(self, row: usize) -> Self {
        Self { start: self.row(row), ..self }
    }
}
