//! The model's tensors by name, for computing with.
//!
//! In comes a [`Gguf`], out come [`Weight`]s: a format that this crate computes on, a shape that the caller expected,
//! and the bytes, as they lie in the mapped file or read from it where it is not to stay mapped. All runners share one
//! copy. A tensor in a format that cannot be computed on is refused when it is asked for, so that a file can hold some
//! that nobody uses.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet, hash_map::Entry as Slot},
    fmt,
    ops::Range,
    sync::{Arc, OnceLock},
    thread,
};

use half::{bf16, f16};

use crate::{
    DType, Error, Result,
    gguf::{Gguf, TensorInfo},
};

#[cfg(target_endian = "big")]
compile_error!("weights are used as they lie in the file, which is little-endian");

/// A model's tensors, by name. Clones share them.
#[derive(Clone)]
pub struct Weights(Arc<HashMap<String, Stored>>);

/// A tensor that can be computed with, or some rows of one.
#[derive(Clone, Copy)]
pub struct Weight<'a> {
    /// Its name in the file, for example `blk.0.attn_q.weight`; that of rows ends with which, as in
    /// `blk.0.attn_qkv.weight[0..96]`.
    pub name: &'a str,
    /// The format of its elements.
    pub dtype: DType,
    stored: &'a Stored,
    /// Where in the tensor its bytes begin.
    at: usize,
    len: usize,
}

struct Stored {
    tensor: TensorInfo,
    /// A copy in memory that is made on first use, of a tensor that is not to be read from a mapped file.
    copy: Option<OnceLock<TensorInfo>>,
    /// The elements of a half-precision vector in single precision, once somebody has asked for them.
    widened: OnceLock<Box<[f32]>>,
}

impl Weights {
    /// The tensors of a file, where they lie.
    pub fn from_gguf(gguf: &Gguf) -> Self {
        let stored = |tensor: &TensorInfo| (tensor.name.clone(), Stored::new(tensor.clone()));
        Self(Arc::new(gguf.tensors().iter().map(stored).collect()))
    }

    /// The tensors of a file, to be read with ordinary reads: nothing of it needs to stay mapped, and a file that is
    /// shortened meanwhile is an error.
    pub(crate) fn read_from_gguf(gguf: &Gguf) -> Self {
        let stored = |tensor: &TensorInfo| {
            let copy = (tensor.mapped_len() > 0).then(OnceLock::new);
            (tensor.name.clone(), Stored { copy, ..Stored::new(tensor.clone()) })
        };
        Self(Arc::new(gguf.tensors().iter().map(stored).collect()))
    }

    /// The tensors of these names alone, where they are read in place; so the files of the others can be unmapped.
    ///
    /// # Errors
    /// [`Error::Io`] where a tensor has to be copied first and its file cannot be read, [`Error::Tensor`] where there is
    /// no memory for that.
    #[cfg(feature = "cpu")]
    pub(crate) fn only<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Result<Self> {
        let mut kept = HashMap::new();
        for name in names {
            if let Some((name, stored)) = self.0.get_key_value(self.place_of(name).0) {
                kept.insert(name.clone(), Stored::new(stored.in_place()?.clone()));
            }
        }
        Ok(Self(Arc::new(kept)))
    }

    /// Returns the number of bytes of these tensors that are read from mapped files, each tensor counted once.
    pub(crate) fn mapped_bytes<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> u64 {
        let names: HashSet<&str> = names.into_iter().map(|name| self.place_of(name).0).collect();
        let stored = names.into_iter().filter_map(|name| self.0.get(name));
        stored.filter(|stored| stored.copy.is_none()).map(|stored| stored.tensor.mapped_len() as u64).sum()
    }

    /// Tensors made in memory: name, format, shape (outermost first) and bytes of each.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] where the bytes are not as many as format and shape say, or a name is there twice.
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
            match weights.entry(name) {
                Slot::Occupied(slot) => return Err(Error::tensor(slot.key(), "is there twice")),
                Slot::Vacant(slot) => {
                    let tensor = TensorInfo::in_memory(slot.key().clone(), dtype, shape, &bytes);
                    slot.insert(Stored::new(tensor))
                }
            };
        }
        Ok(Self(Arc::new(weights)))
    }

    /// The tensor with this name, which must have this `shape` (outermost first; leading ones do not count). A name that
    /// ends as in `NAME[64..96]` is of those rows of a matrix, or elements of a vector.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] where it is missing, has another shape, or is in a format that is not computed on.
    pub fn get<'a>(&'a self, name: &'a str, shape: &[usize]) -> Result<Weight<'a>> {
        self.find(name, shape)?.ok_or_else(|| missing(name))
    }

    /// The rows of the matrix with this name; `None` where it is missing.
    pub fn rows(&self, name: &str) -> Option<usize> {
        self.0.get(name)?.tensor.shape.first().copied()
    }

    /// As [`get`](Self::get) for a tensor that a model may lack: `None` where it is missing.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] where it has another shape, or is in a format that is not computed on.
    pub fn find<'a>(&'a self, name: &'a str, shape: &[usize]) -> Result<Option<Weight<'a>>> {
        let (tensor_name, rows) = self.place_of(name);
        let Some(stored) = self.0.get(tensor_name) else { return Ok(None) };
        let tensor = &stored.tensor;
        let inner = tensor.shape.get(1..).unwrap_or_default();
        let there = tensor.shape.first().copied().unwrap_or(1);
        let taken = rows.clone().unwrap_or(0..there);
        if taken.end > there || significant(&[&[taken.len()], inner].concat()) != significant(shape) {
            return Err(Error::tensor(name, format!("has shape {:?}, but {shape:?} is expected", tensor.shape)));
        }
        let Some(dtype) = tensor.dtype.dtype() else {
            let formats = DType::ALL.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ");
            let what =
                format!("is stored as {}, which is not computed on: quantise it to one of {formats}", tensor.dtype);
            return Err(Error::tensor(name, what));
        };
        let row_bytes = dtype.row_bytes(inner.iter().product()).unwrap_or(0);
        let bytes = rows.map_or(0..tensor.byte_len(), |rows| rows.start * row_bytes..rows.end * row_bytes);
        Ok(Some(Weight { name, dtype, stored, at: bytes.start, len: bytes.len() }))
    }

    /// The name of the tensor, and which of its rows are meant, where the name says so.
    fn place_of<'n>(&self, name: &'n str) -> (&'n str, Option<Range<usize>>) {
        if self.0.contains_key(name) { (name, None) } else { split_rows(name) }
    }

    /// The tensor with this name as one matrix `[rows, columns]`: where several are stacked in it, of the rows of all.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn matrix<'a>(&'a self, name: &'a str, rows: usize, columns: usize) -> Result<Weight<'a>> {
        let flat = [rows, columns];
        let shape = match self.0.get(name).map(|stored| stored.tensor.shape.as_slice()) {
            Some(stacked @ [outer @ .., width]) if *width == columns && outer.iter().product::<usize>() == rows => {
                stacked
            }
            _ => &flat,
        };
        self.get(name, shape)
    }

    /// The elements of the vector with this name, which must be `len` long, in single precision.
    ///
    /// Those of an F32 vector are read in place; an F16 or BF16 one is widened on its first use and then kept.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] where it is missing, has another shape, or is in any other format.
    pub fn vector<'a>(&'a self, name: &'a str, len: usize) -> Result<&'a [f32]> {
        self.find_vector(name, len)?.ok_or_else(|| missing(name))
    }

    /// As [`vector`](Self::vector) for a tensor that a model may lack: `None` where it is missing.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] where it has another shape or format.
    pub fn find_vector<'a>(&'a self, name: &'a str, len: usize) -> Result<Option<&'a [f32]>> {
        let Some(weight) = self.find(name, &[len])? else { return Ok(None) };
        let stored = weight.stored;
        let bytes = weight.bytes_in_place(0..weight.len)?;
        let widen = |one: fn([u8; 2]) -> f32| bytes.as_chunks().0.iter().map(|&bytes| one(bytes)).collect();
        match weight.dtype {
            DType::F32 => match bytemuck::try_cast_slice(bytes) {
                Ok(elements) => Ok(Some(elements)),
                Err(e) => Err(Error::tensor(name, format!("cannot be read as F32: {e}"))),
            },
            DType::F16 => Ok(Some(stored.widened.get_or_init(|| widen(|bytes| f16::from_le_bytes(bytes).to_f32())))),
            DType::BF16 => Ok(Some(stored.widened.get_or_init(|| widen(|bytes| bf16::from_le_bytes(bytes).to_f32())))),
            other => Err(Error::tensor(name, format!("is stored as {other}: a vector can be F32, F16 or BF16"))),
        }
    }

    /// Lets the system read the tensors from the disk in one stream, in the file's order, and does not wait for it:
    /// those who need them soon find them in memory, or on their way.
    pub fn read_ahead(&self) {
        let mut pieces: Vec<_> = self.0.values().flat_map(|stored| stored.tensor.pieces().iter().cloned()).collect();
        // Each file is mapped in one piece.
        pieces.sort_by_key(|piece| piece.bytes().as_ptr());
        let ask = move || pieces.iter().for_each(|piece| piece.will_need(0..piece.bytes().len()));
        // A hint: where no thread can be started for it, only the speed is another.
        let _ = thread::Builder::new().name("inkstone-ahead".into()).spawn(ask);
    }

    /// The bytes of all tensors together, as they are stored.
    pub fn total_bytes(&self) -> u64 {
        self.0.values().map(|stored| stored.tensor.byte_len() as u64).sum()
    }
}

impl<'a> Weight<'a> {
    /// How many bytes it takes.
    pub fn byte_len(&self) -> usize {
        self.len
    }

    /// Its rows one after the other, each of whole blocks; the first of a tensor lies at a multiple of 8. A stack of
    /// experts that a directory has one by one is copied.
    pub fn bytes(&self) -> Cow<'a, [u8]> {
        self.bytes_of(0..self.len)
    }

    /// As [`bytes`](Self::bytes) for a range of them: what lies in one place is not copied.
    pub fn bytes_of(&self, range: Range<usize>) -> Cow<'a, [u8]> {
        self.stored.tensor.bytes(self.in_tensor(range))
    }

    /// Reads a range of the bytes in the way that the weights are to be read: from a mapped file in place, or with
    /// ordinary reads.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be read, or has been shortened.
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

    /// A range of the bytes that must lie in one place; those of a file that is not to be mapped are copied first.
    pub(crate) fn bytes_in_place(&self, range: Range<usize>) -> Result<&'a [u8]> {
        let bytes = self.stored.in_place()?.bytes_in_place(self.in_tensor(range));
        bytes.ok_or_else(|| Error::tensor(self.name, "lies in pieces, but must be in one"))
    }

    /// Where its first byte lies: weights of one file are by that in its order.
    #[cfg(feature = "cpu")]
    pub(crate) fn place(&self) -> usize {
        self.stored.tensor.bytes_in_place(self.at..self.at + 1).map_or(0, |byte| byte.as_ptr().addr())
    }

    /// Hints that a range of the bytes will be read soon, so that reading ahead from the disk can start.
    pub fn will_need(&self, range: Range<usize>) {
        self.stored.tensor.will_need(self.in_tensor(range));
    }

    /// Hints that a range of the bytes has been read (into a copy, say), so that its pages can be given back; they are
    /// read from the file again if they are needed after all.
    pub fn done_with(&self, range: Range<usize>) {
        self.stored.tensor.done_with(self.in_tensor(range));
    }

    fn in_tensor(&self, range: Range<usize>) -> Range<usize> {
        let end = range.end.min(self.len);
        self.at + range.start.min(end)..self.at + end
    }
}

impl Stored {
    fn new(tensor: TensorInfo) -> Self {
        Self { tensor, copy: None, widened: OnceLock::new() }
    }

    /// The tensor where its bytes are read in place.
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
        write!(f, "Weight({} {}, {} bytes)", self.name, self.dtype, self.len)
    }
}

/// The name of the tensor, and which of its rows are meant, where the name says so.
pub(crate) fn split_rows(name: &str) -> (&str, Option<Range<usize>>) {
    let rows = |name: &'_ str| {
        let (tensor, rows) = name.strip_suffix(']')?.rsplit_once('[')?;
        let (first, end) = rows.split_once("..")?;
        let rows = first.parse().ok()?..end.parse().ok()?;
        (rows.start < rows.end).then_some((tensor.len(), rows))
    };
    match rows(name) {
        Some((len, rows)) => (&name[..len], Some(rows)),
        None => (name, None),
    }
}

fn missing(name: &str) -> Error {
    Error::tensor(name, "is missing from the file")
}

/// A shape without leading ones, which change nothing about where an element lies.
fn significant(shape: &[usize]) -> &[usize] {
    let ones = shape.iter().take_while(|&&length| length == 1).count();
    &shape[ones..]
}

/// The bytes of a tensor; `None` where it has none, its rows are no whole blocks, or the product overflows.
fn byte_len(dtype: DType, shape: &[usize]) -> Option<usize> {
    let (&columns, outer) = shape.split_last().filter(|_| !shape.contains(&0))?;
    outer.iter().try_fold(dtype.row_bytes(columns)?, |bytes, &length| bytes.checked_mul(length))
}
