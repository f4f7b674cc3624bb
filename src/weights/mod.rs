//! Gives access to a model's tensors by name, for computing with them.
//!
//! The input is a [`Gguf`]; a [`Weight`] is a tensor of it, or some of its rows, with a format that
//! this crate computes with and the shape that the caller expects. Its bytes stay where the mapped
//! file has them, or are read from the file if it must not stay mapped. All runners of a model
//! share one copy. A tensor in a format without kernels is refused when it is looked up, not
//! before: a file may hold such a tensor if no model reads it.

mod slice;

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet, hash_map::Entry},
    fmt,
    ops::Range,
    sync::{Arc, OnceLock},
    thread,
};

use half::{bf16, f16};
pub use slice::TensorSlice;

use crate::{
    DType, Error, Result,
    gguf::{Gguf, TensorInfo},
};

#[cfg(target_endian = "big")]
compile_error!("weights are used as they lie in the file, which is little-endian");

/// A model's tensors, by name. Clones share them.
#[derive(Clone)]
pub struct Weights(Arc<HashMap<Arc<str>, Stored>>);

/// A tensor, or some of its rows, in a format that can be computed with.
#[derive(Clone)]
pub struct Weight<'a> {
    /// The tensor's name, and the rows.
    pub slice: TensorSlice,
    /// The format of the elements.
    pub dtype: DType,
    stored: &'a Stored,
    /// The bytes within the tensor.
    range: Range<usize>,
}

struct Stored {
    tensor: TensorInfo,
    /// A copy in memory, made on first use, of a tensor that must not be read from a mapped file.
    copy: Option<OnceLock<TensorInfo>>,
    /// All elements of an F16 or BF16 tensor as f32, made when [`Weights::vector`] first reads some
    /// of them.
    widened: OnceLock<Box<[f32]>>,
}

impl Weights {
    /// Returns the tensors of a file, which stay where the file has them.
    pub fn from_gguf(gguf: &Gguf) -> Self {
        let stored = |tensor: &TensorInfo| (tensor.name.as_str().into(), Stored::new(tensor.clone()));
        Self(Arc::new(gguf.tensors().iter().map(stored).collect()))
    }

    /// Returns the tensors of a file with F32 in the place of each format without kernels, to find
    /// out what else keeps a model from running. Those tensors have no bytes.
    pub(crate) fn with_known_formats(gguf: &Gguf) -> Self {
        let stored = |tensor: &TensorInfo| {
            let known = match tensor.dtype.dtype() {
                Some(_) => tensor.clone(),
                None => tensor.as_f32_without_data(),
            };
            (tensor.name.as_str().into(), Stored::new(known))
        };
        Self(Arc::new(gguf.tensors().iter().map(stored).collect()))
    }

    /// Returns the tensors of a file, to be read with ordinary reads: the file need not stay
    /// mapped, and a file that is shortened meanwhile is an error.
    pub(crate) fn read_from_gguf(gguf: &Gguf) -> Self {
        let stored = |tensor: &TensorInfo| {
            let copy = (tensor.mapped_len() > 0).then(OnceLock::new);
            (tensor.name.as_str().into(), Stored { copy, ..Stored::new(tensor.clone()) })
        };
        Self(Arc::new(gguf.tensors().iter().map(stored).collect()))
    }

    /// Returns the named tensors, where they are read in place. The files of all other tensors can
    /// then be unmapped.
    ///
    /// # Errors
    /// [`Error::Io`] if a tensor has to be copied first and its file cannot be read,
    /// [`Error::Tensor`] if there is no memory for the copy.
    #[cfg(feature = "cpu")]
    pub(crate) fn only<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Result<Self> {
        let mut kept = HashMap::new();
        for name in names {
            if let Some((name, stored)) = self.0.get_key_value(name) {
                kept.insert(name.clone(), Stored::new(stored.in_place()?.clone()));
            }
        }
        Ok(Self(Arc::new(kept)))
    }

    /// Returns the number of bytes of the named tensors that are read from mapped files, each
    /// tensor counted once.
    pub(crate) fn mapped_bytes<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> u64 {
        let names: HashSet<&str> = names.into_iter().collect();
        let stored = names.into_iter().filter_map(|name| self.0.get(name));
        stored.filter(|stored| stored.copy.is_none()).map(|stored| stored.tensor.mapped_len() as u64).sum()
    }

    /// Returns tensors made in memory, each of a name, a format, a shape (outermost dimension
    /// first) and its bytes.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the number of bytes does not follow from format and shape, or if two
    /// tensors have one name.
    pub fn from_memory(tensors: impl IntoIterator<Item = (String, DType, Vec<usize>, Vec<u8>)>) -> Result<Self> {
        let mut weights = HashMap::new();
        for (name, dtype, shape, bytes) in tensors {
            let Some(needed) = byte_len(dtype, &shape) else {
                return Err(Error::tensor(name, format!("cannot have shape {shape:?} as {dtype}")));
            };
            if needed != bytes.len() {
                let what = format!("of shape {shape:?} as {dtype} takes {needed} bytes, not {}", bytes.len());
                return Err(Error::tensor(name, what));
            }
            match weights.entry(name.as_str().into()) {
                Entry::Occupied(_) => return Err(Error::tensor(name, "is there twice")),
                Entry::Vacant(entry) => {
                    entry.insert(Stored::new(TensorInfo::in_memory(name, dtype, shape, &bytes)));
                }
            }
        }
        Ok(Self(Arc::new(weights)))
    }

    /// Returns the same tensors, with the rows and columns of the matrix `name` exchanged.
    ///
    /// # Errors
    /// [`Error::Tensor`] if it is missing or not a matrix, or if it is quantized: columns of a
    /// quantized matrix are not contiguous.
    pub(crate) fn with_transposed(&self, name: &str) -> Result<Self> {
        let stored = self.0.get(name).ok_or_else(|| missing(&name.into()))?;
        let dtype = stored.tensor.dtype.dtype().filter(|dtype| dtype.block_weights() == 1);
        let (Some(dtype), &[rows, columns]) = (dtype, stored.tensor.shape.as_slice()) else {
            let what = format!(
                "is {} of shape {:?}, but a matrix in F32, F16 or BF16 is expected, since its columns are read as rows",
                stored.tensor.dtype, stored.tensor.shape
            );
            return Err(Error::tensor(name, what));
        };
        let weight = self.get(name, &[rows, columns])?;
        let (bytes, size) = (weight.bytes(), dtype.block_bytes());
        if bytes.len() < weight.byte_len() {
            return Err(Error::tensor(name, "has no data in the file"));
        }
        let mut transposed = Vec::with_capacity(bytes.len());
        for column in 0..columns {
            for row in 0..rows {
                transposed.extend_from_slice(&bytes[(row * columns + column) * size..][..size]);
            }
        }
        let tensor = TensorInfo::in_memory(name.into(), dtype, vec![columns, rows], &transposed);
        let others = self.0.iter().filter(|(other, _)| &***other != name);
        let mut all: HashMap<_, _> =
            others.map(|(name, stored)| (name.clone(), Stored::new(stored.tensor.clone()))).collect();
        all.insert(name.into(), Stored::new(tensor));
        Ok(Self(Arc::new(all)))
    }

    /// Returns a tensor, or some of its rows, of the expected `shape` (outermost dimension first;
    /// leading dimensions of size 1 may be added or left out).
    ///
    /// # Errors
    /// [`Error::Tensor`] if the tensor is missing, has another shape, or is in a format without
    /// kernels.
    pub fn get(&self, slice: impl Into<TensorSlice>, shape: &[usize]) -> Result<Weight<'_>> {
        let slice = slice.into();
        self.find(&slice, shape)?.ok_or_else(|| missing(&slice))
    }

    /// Returns the number of rows of the tensor `name`, or `None` if it is missing.
    pub fn rows(&self, name: &str) -> Option<usize> {
        self.shape(name)?.first().copied()
    }

    /// Returns the shape of the tensor `name`, outermost dimension first, or `None` if it is
    /// missing.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.0.get(name).map(|stored| stored.tensor.shape.as_slice())
    }

    /// Returns the format of the tensor `name`, or `None` if it is missing or only listed.
    pub(crate) fn dtype(&self, name: &str) -> Option<DType> {
        self.0.get(name)?.tensor.dtype.dtype()
    }

    /// Returns an optional tensor like [`get`](Self::get), or `None` if it is missing.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the tensor has another shape, or is in a format without kernels.
    pub fn find(&self, slice: impl Into<TensorSlice>, shape: &[usize]) -> Result<Option<Weight<'_>>> {
        let slice = slice.into();
        let Some(stored) = self.0.get(&slice.name) else { return Ok(None) };
        let tensor = &stored.tensor;
        let inner = tensor.shape.get(1..).unwrap_or_default();
        let all = 0..tensor.shape.first().copied().unwrap_or(1);
        let rows = slice.rows.clone().unwrap_or(all.clone());
        let fits = !rows.is_empty() && rows.end <= all.end;
        if !fits || significant(&[&[rows.len()], inner].concat()) != significant(shape) {
            let part = if slice.rows.is_some() { "is a part of a tensor that " } else { "" };
            let what = format!("{part}has shape {:?}, but {shape:?} is expected", tensor.shape);
            return Err(Error::tensor(&slice, what));
        }
        let Some(dtype) = tensor.dtype.dtype() else {
            let formats = DType::ALL.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ");
            let what = format!(
                "is stored as {}, for which there are no kernels: quantize it to one of {formats}",
                tensor.dtype
            );
            return Err(Error::tensor(&slice, what));
        };
        let row_bytes = dtype.row_bytes(inner.iter().product()).unwrap_or(0);
        let range = match slice.rows {
            Some(_) => rows.start * row_bytes..rows.end * row_bytes,
            None => 0..tensor.byte_len(),
        };
        Ok(Some(Weight { slice, dtype, stored, range }))
    }

    /// Returns a tensor as one matrix `[rows, columns]`, which may be a stack of matrices with
    /// `rows` rows in all, or the kernels of a convolution with `columns` elements each.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn matrix(&self, slice: impl Into<TensorSlice>, rows: usize, columns: usize) -> Result<Weight<'_>> {
        let slice = slice.into();
        let whole = self.0.get(&slice.name).filter(|_| slice.rows.is_none());
        let is_matrix = |shape: &[usize]| {
            (1..shape.len()).any(|split| {
                let (outer, inner) = shape.split_at(split);
                outer.iter().product::<usize>() == rows && inner.iter().product::<usize>() == columns
            })
        };
        match whole.map(|stored| stored.tensor.shape.as_slice()).filter(|shape| is_matrix(shape)) {
            Some(shape) => self.get(slice, shape),
            None => self.get(slice, &[rows, columns]),
        }
    }

    /// Returns the `len` elements of a vector as f32.
    ///
    /// An F32 vector is read in place; an F16 or BF16 one is widened on first use and then kept.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the tensor is missing, has another shape, or is in another format.
    pub fn vector(&self, slice: impl Into<TensorSlice>, len: usize) -> Result<&[f32]> {
        let slice = slice.into();
        self.find_vector(&slice, len)?.ok_or_else(|| missing(&slice))
    }

    /// Returns an optional vector like [`vector`](Self::vector), or `None` if the tensor is
    /// missing.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the tensor has another shape or format.
    pub fn find_vector(&self, slice: impl Into<TensorSlice>, len: usize) -> Result<Option<&[f32]>> {
        let Some(weight) = self.find_row(slice, len)? else { return Ok(None) };
        match weight.dtype {
            DType::F32 => match bytemuck::try_cast_slice(weight.bytes_in_place(0..weight.byte_len())?) {
                Ok(elements) => Ok(Some(elements)),
                Err(e) => Err(Error::tensor(&weight.slice, format!("cannot be read as F32: {e}"))),
            },
            DType::F16 => weight.widened(|bytes| f16::from_le_bytes(bytes).to_f32()).map(Some),
            DType::BF16 => weight.widened(|bytes| bf16::from_le_bytes(bytes).to_f32()).map(Some),
            other => {
                Err(Error::tensor(&weight.slice, format!("is stored as {other}: a vector can be F32, F16 or BF16")))
            }
        }
    }

    /// Returns an optional tensor of `len` elements in any shape, as one row.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_row(&self, slice: impl Into<TensorSlice>, len: usize) -> Result<Option<Weight<'_>>> {
        let slice = slice.into();
        let whole = self.shape(&slice.name).filter(|_| slice.rows.is_none());
        let own = whole.filter(|shape| shape.iter().product::<usize>() == len).map(<[usize]>::to_vec);
        self.find(slice, &own.unwrap_or_else(|| vec![len]))
    }

    /// Starts to read all tensors from the disk in one stream, in the file's order, and does not
    /// wait for them.
    pub fn read_ahead(&self) {
        let mut pieces: Vec<_> = self.0.values().flat_map(|stored| stored.tensor.pieces().iter().cloned()).collect();
        // Each file is mapped at one range of addresses, so addresses are in the file's order.
        pieces.sort_by_key(|piece| piece.bytes().as_ptr());
        let read = move || pieces.iter().for_each(|piece| piece.will_need(0..piece.bytes().len()));
        // Without a thread for it the tensors are read when they are needed, which is only slower.
        let _ = thread::Builder::new().name("inkstone-ahead".into()).spawn(read);
    }

    /// Returns the number of bytes of all tensors, as they are stored.
    pub fn total_bytes(&self) -> u64 {
        self.0.values().map(|stored| stored.tensor.byte_len() as u64).sum()
    }
}

impl<'a> Weight<'a> {
    /// Returns the number of bytes.
    pub fn byte_len(&self) -> usize {
        self.range.len()
    }

    /// Returns the rows one after the other, each a whole number of blocks; row 0 of a tensor is
    /// aligned to 8 bytes. A stack of experts that a directory stores one by one is copied.
    pub fn bytes(&self) -> Cow<'a, [u8]> {
        self.bytes_of(0..self.byte_len())
    }

    /// Returns a range of the bytes, which are copied only if they do not lie in one place.
    pub fn bytes_of(&self, range: Range<usize>) -> Cow<'a, [u8]> {
        self.stored.tensor.bytes(self.in_tensor(range))
    }

    /// Returns a range of the bytes, in place or with ordinary reads, as the [`Weights`] were made.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read, or has been shortened.
    #[cfg(any(feature = "cpu", feature = "wgpu", feature = "metal"))]
    pub(crate) fn read(&self, range: Range<usize>) -> Result<Cow<'a, [u8]>> {
        let range = self.in_tensor(range);
        match &self.stored.copy {
            None => Ok(self.stored.tensor.bytes(range)),
            Some(copy) => match copy.get() {
                Some(copy) => Ok(copy.bytes(range)),
                None => self.stored.tensor.read(range).map(Cow::Owned),
            },
        }
    }

    /// Returns a range of the bytes, which must lie in one place. A tensor of a file that must not
    /// stay mapped is copied first.
    pub(crate) fn bytes_in_place(&self, range: Range<usize>) -> Result<&'a [u8]> {
        let bytes = self.stored.in_place()?.bytes_in_place(self.in_tensor(range));
        bytes.ok_or_else(|| Error::tensor(&self.slice, "is stored in pieces, but must be stored in one"))
    }

    /// Returns the elements as f32, of a tensor whose elements are two bytes each.
    fn widened(&self, to_f32: fn([u8; 2]) -> f32) -> Result<&'a [f32]> {
        let whole = Self { range: 0..self.stored.tensor.byte_len(), ..self.clone() };
        let bytes = whole.bytes_in_place(0..whole.byte_len())?;
        let widen = || bytes.as_chunks().0.iter().map(|&bytes| to_f32(bytes)).collect();
        Ok(&self.stored.widened.get_or_init(widen)[self.range.start / 2..self.range.end / 2])
    }

    /// Returns the address of the first byte, or 0 if the bytes lie in pieces. Sorting by it gives
    /// the file's order.
    #[cfg(feature = "cpu")]
    pub(crate) fn place(&self) -> usize {
        self.stored.tensor.bytes_in_place(self.range.start..self.range.start + 1).map_or(0, |byte| byte.as_ptr().addr())
    }

    /// Hints that a range of the bytes will be read soon, so that reading ahead from the disk can
    /// start.
    pub fn will_need(&self, range: Range<usize>) {
        self.stored.tensor.will_need(self.in_tensor(range));
    }

    /// Hints that a range of the bytes is not needed any more, for example since it has been
    /// copied, so that its pages can be given back. Bytes that are needed after all are read from
    /// the file again.
    pub fn done_with(&self, range: Range<usize>) {
        self.stored.tensor.done_with(self.in_tensor(range));
    }

    fn in_tensor(&self, range: Range<usize>) -> Range<usize> {
        let end = range.end.min(self.byte_len());
        self.range.start + range.start.min(end)..self.range.start + end
    }
}

impl Stored {
    fn new(tensor: TensorInfo) -> Self {
        Self { tensor, copy: None, widened: OnceLock::new() }
    }

    /// Returns the tensor whose bytes are read in place: the file's, or the copy.
    fn in_place(&self) -> Result<&TensorInfo> {
        let Some(copy) = &self.copy else { return Ok(&self.tensor) };
        match copy.get() {
            Some(copied) => Ok(copied),
            None => {
                let copied = self.tensor.copied()?;
                Ok(copy.get_or_init(|| copied))
            }
        }
    }
}

impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Weights({} tensors, {} bytes)", self.0.len(), self.total_bytes())
    }
}

impl fmt::Debug for Weight<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Weight({} {}, {} bytes)", self.slice, self.dtype, self.byte_len())
    }
}

fn missing(slice: &TensorSlice) -> Error {
    Error::tensor(slice, "is missing from the file")
}

/// Returns a shape without its leading dimensions of size 1, which do not affect where an element
/// lies.
fn significant(shape: &[usize]) -> &[usize] {
    let ones = shape.iter().take_while(|&&length| length == 1).count();
    &shape[ones..]
}

/// Returns the number of bytes of a tensor, or `None` if it has no elements, its rows are not whole
/// blocks, or the product overflows.
fn byte_len(dtype: DType, shape: &[usize]) -> Option<usize> {
    let (&columns, outer) = shape.split_last().filter(|_| !shape.contains(&0))?;
    outer.iter().try_fold(dtype.row_bytes(columns)?, |bytes, &length| bytes.checked_mul(length))
}
