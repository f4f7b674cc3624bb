//! Represents values of the self-test in f64.

/// Rows of `width` elements.
#[derive(Clone)]
pub(super) struct DenseMatrix {
    pub width: usize,
    pub data: Vec<f64>,
}

impl DenseMatrix {
    /// Returns the rows.
    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.data.chunks_exact(self.width)
    }

    /// Returns the matrix of these rows.
    pub fn of(width: usize, rows: impl Iterator<Item = Vec<f64>>) -> Self {
        Self { width, data: rows.flatten().collect() }
    }

    /// Returns the function of each element.
    pub fn each(&self, f: impl Fn(f64) -> f64) -> Self {
        Self { width: self.width, data: self.data.iter().map(|x| f(*x)).collect() }
    }
}
