use std::{fmt, ops::Range, sync::Arc};

/// A tensor of the model, or a range of its rows.
///
/// Some files join matrices, such as queries, keys and values, in one tensor: a slice is one of
/// them. The text of a slice is the tensor's name, with the rows after it if there are any:
/// `blk.0.attn_qkv.weight[0..96]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorSlice {
    /// The tensor's name in the file, for example `blk.0.attn_q.weight`.
    pub name: Arc<str>,
    /// The rows of a matrix, or the elements of a vector; `None` for the whole tensor.
    pub rows: Option<Range<usize>>,
}

impl TensorSlice {
    /// Returns a range of rows of the tensor `name`.
    pub fn rows(name: impl Into<Arc<str>>, rows: Range<usize>) -> Self {
        Self { name: name.into(), rows: Some(rows) }
    }
}

impl fmt::Display for TensorSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rows {
            Some(rows) => write!(f, "{}[{}..{}]", self.name, rows.start, rows.end),
            None => f.write_str(&self.name),
        }
    }
}

/// Converts a name to the whole tensor; the name is not parsed.
impl From<&str> for TensorSlice {
    fn from(name: &str) -> Self {
        Self { name: name.into(), rows: None }
    }
}

/// Converts a name to the whole tensor; the name is not parsed.
impl From<&String> for TensorSlice {
    fn from(name: &String) -> Self {
        name.as_str().into()
    }
}

/// Clones the slice.
impl From<&Self> for TensorSlice {
    fn from(slice: &Self) -> Self {
        slice.clone()
    }
}

/// Converts a slice to its text, for messages.
impl From<&TensorSlice> for String {
    fn from(slice: &TensorSlice) -> Self {
        slice.to_string()
    }
}
