//! Reads importance matrices, as llama.cpp's `llama-imatrix` writes them: GGUF files, and the
//! older files `.dat`.

use std::{collections::HashMap, fs, path::Path};

use inkstone::gguf::{Array, Gguf, TensorInfo, Value};

use crate::common::Failure;

/// The mean squares of the activations that each weight is multiplied with.
pub struct ImportanceMatrix {
    /// For each tensor, a number for each column of each expert.
    entries: HashMap<String, Vec<f32>>,
    /// The text that the matrix was computed with.
    pub dataset: Option<String>,
    /// The number of pieces of that text.
    pub chunks: u32,
}

impl ImportanceMatrix {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let matrix = if bytes.starts_with(b"GGUF") {
            drop(bytes);
            Self::from_gguf(&Gguf::open(path)?)
        } else {
            Self::from_dat(&bytes)
        };
        let matrix = matrix.map_err(|what| format!("{}: {what}", path.display()))?;
        match matrix.entries.iter().find(|(_, values)| values.iter().any(|value| !value.is_finite())) {
            Some((name, _)) => Err(format!("{}: `{name}` has a value that is not finite", path.display()).into()),
            None => Ok(matrix),
        }
    }

    /// Returns the number of tensors that the file knows.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the importance of the columns of a tensor, for one expert after the other; `None` if
    /// the file does not know the tensor.
    pub fn get(&self, tensor: &TensorInfo) -> Result<Option<&[f32]>, Failure> {
        let Some(values) = self.entries.get(&tensor.name) else { return Ok(None) };
        let columns = tensor.shape.last().copied().unwrap_or(1);
        let experts: usize = tensor.shape.iter().rev().skip(2).product();
        if values.len() == columns * experts {
            return Ok(Some(values));
        }
        // The rows of a table are looked up, so a matrix has none of their activations.
        if ["token_embd.weight", "per_layer_token_embd.weight"].contains(&tensor.name.as_str()) {
            return Ok(None);
        }
        let what = format!(
            "tensor `{}`: the importance matrix has {} numbers for it, but it has {experts} matrices of {columns} \
             columns: use the importance matrix of this model",
            tensor.name,
            values.len()
        );
        Err(what.into())
    }

    fn from_gguf(gguf: &Gguf) -> Result<Self, String> {
        let text = |error: inkstone::Error| error.to_string();
        if gguf.str("general.type").map_err(text)? != Some("imatrix") {
            return Err("is not an importance matrix: `general.type` is not `imatrix`".into());
        }
        let mut entries = HashMap::new();
        for tensor in gguf.tensors() {
            let Some(name) = tensor.name.strip_suffix(".in_sum2") else { continue };
            let counts = gguf.tensor(&format!("{name}.counts")).ok_or(format!("`{name}.counts` is missing"))?;
            let [mut sums, counts] = [floats(gguf, tensor)?, floats(gguf, counts)?];
            if !sums.len().is_multiple_of(counts.len()) {
                return Err(format!("`{name}` has {} sums for {} counts", sums.len(), counts.len()));
            }
            let columns = sums.len() / counts.len();
            for (sums, count) in sums.chunks_exact_mut(columns).zip(counts) {
                let count = count.round();
                // An expert that no token of the text has chosen.
                sums.iter_mut().for_each(|sum| *sum = if count > 0.0 { *sum / count } else { 1.0 });
            }
            entries.insert(name.to_owned(), sums);
        }
        let dataset = match gguf.get("imatrix.datasets") {
            Some(Value::Array(Array::String(names))) => names.get(0).map(str::to_owned),
            _ => None,
        };
        let chunks = gguf.u32("imatrix.chunk_count").map_err(text)?.unwrap_or(0);
        Self { entries, dataset, chunks }.not_empty()
    }

    fn from_dat(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = Reader(bytes);
        let mut entries = HashMap::new();
        for _ in 0..reader.count()? {
            let length = reader.count()?;
            let name = String::from_utf8_lossy(reader.take(length)?).into_owned();
            let (calls, values) = (reader.number()?, reader.count()?);
            let bytes = reader.take(values.checked_mul(4).ok_or(DAMAGED)?)?;
            let divisor = if calls > 0 { calls as f32 } else { 1.0 };
            let values = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes) / divisor);
            entries.insert(name, values.collect());
        }
        // Files of early versions end here.
        let chunks = if reader.0.is_empty() { 0 } else { reader.number()? };
        let dataset = match reader.0.is_empty() {
            true => None,
            false => {
                let length = reader.count()?;
                Some(String::from_utf8_lossy(reader.take(length)?).into_owned())
            }
        };
        let chunks = chunks.try_into().unwrap_or(0);
        Self { entries, dataset: dataset.filter(|name| !name.is_empty()), chunks }.not_empty()
    }

    fn not_empty(self) -> Result<Self, String> {
        if self.entries.is_empty() { Err("is not an importance matrix: it knows no tensor".into()) } else { Ok(self) }
    }
}

fn floats(gguf: &Gguf, tensor: &TensorInfo) -> Result<Vec<f32>, String> {
    match tensor.dtype.name() {
        "F32" => Ok(gguf.bytes(tensor).as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()),
        other => Err(format!("tensor `{}` is stored as {other}, but F32 is expected", tensor.name)),
    }
}

const DAMAGED: &str = "is not an importance matrix, or is damaged";

/// The bytes of a file `.dat` that were not read yet.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, len: usize) -> Result<&'b [u8], String> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(DAMAGED)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<i32, String> {
        let bytes = self.take(4)?.try_into().map_err(|_| DAMAGED)?;
        Ok(i32::from_le_bytes(bytes))
    }

    fn count(&mut self) -> Result<usize, String> {
        usize::try_from(self.number()?).map_err(|_| DAMAGED.into())
    }
}
