//! Tensors: what each is called, its shape and format, and where its bytes lie.
//!
//! Those of a GGUF file lie in one place each. A directory of safetensors has experts one by one, which are a stack all the
//! same: a tensor in pieces, none of which is moved.

use std::{borrow::Cow, ops::Range, sync::Arc};

use super::{TensorType, map::Map};
use crate::{DType, Error, Result};

/// What the first byte of every tensor lies at a multiple of.
#[cfg(feature = "safetensors")]
const ALIGNMENT: usize = 8;

/// A tensor, its shape, type and place checked.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// Its name, for example `blk.0.attn_q.weight`.
    pub name: String,
    /// How its elements are stored.
    pub dtype: TensorType,
    /// Its dimensions, outermost first (the file has them the other way round): a matrix is `[rows, columns]`.
    pub shape: Vec<usize>,
    /// One after the other, and of one length.
    pieces: Arc<[Piece]>,
}

/// Bytes of a tensor that lie in one place.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    map: Arc<Map>,
    range: Range<usize>,
}

impl TensorInfo {
    /// A tensor in a `range` of a file, which is as long as format and shape say. It stays there where it lies as
    /// [`Gguf::bytes`](super::Gguf::bytes) promises, and is copied where it does not.
    ///
    /// # Errors
    /// As [`copied`](Self::copied).
    #[cfg(feature = "safetensors")]
    pub(crate) fn in_file(
        name: String,
        dtype: DType,
        shape: Vec<usize>,
        map: &Arc<Map>,
        range: Range<usize>,
    ) -> Result<Self> {
        let aligned = map[range.clone()].as_ptr().addr().is_multiple_of(ALIGNMENT);
        let tensor = Self::in_piece(name, dtype.into(), shape, Piece::new(map, range));
        if aligned { Ok(tensor) } else { tensor.copied() }
    }

    /// A tensor with a copy of these `bytes`, as many as format and shape say.
    pub(crate) fn in_memory(name: String, dtype: DType, shape: Vec<usize>, bytes: &[u8]) -> Self {
        let piece = Piece::new(&Arc::new(Map::copy(bytes)), 0..bytes.len());
        Self::in_piece(name, dtype.into(), shape, piece)
    }

    pub(super) fn in_piece(name: String, dtype: TensorType, shape: Vec<usize>, piece: Piece) -> Self {
        Self { name, dtype, shape, pieces: Arc::new([piece]) }
    }

    /// Tensors of one format and shape as one, which has one dimension more; each stays where it lies.
    pub(crate) fn stacked(name: String, tensors: &[&Self]) -> Option<Self> {
        let first = tensors.first()?;
        let alike = |tensor: &&Self| (tensor.dtype, &tensor.shape) == (first.dtype, &first.shape);
        let shape = [&[tensors.len()], &first.shape[..]].concat();
        let pieces = tensors.iter().flat_map(|tensor| tensor.pieces.iter().cloned()).collect();
        tensors.iter().all(alike).then_some(Self { name, dtype: first.dtype, shape, pieces })
    }

    /// The same tensor by another name.
    pub(crate) fn renamed(&self, name: String) -> Self {
        Self { name, ..self.clone() }
    }

    /// How many elements it has.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// How many bytes it takes.
    pub fn byte_len(&self) -> usize {
        self.pieces.len() * self.pieces[0].range.len()
    }

    /// A range of its bytes, which are copied where they lie in several places.
    pub(crate) fn bytes(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        match self.bytes_in_place(range.clone()) {
            Some(bytes) => Cow::Borrowed(bytes),
            None => {
                let parts = self.parts(range).map(|(piece, part)| &piece.bytes()[part]);
                Cow::Owned(parts.collect::<Vec<_>>().concat())
            }
        }
    }

    /// A range of its bytes, where they lie in one place.
    pub(crate) fn bytes_in_place(&self, range: Range<usize>) -> Option<&[u8]> {
        let mut parts = self.parts(range.clone());
        let (piece, part) = parts.next()?;
        (part.len() == range.len()).then(|| &piece.bytes()[part])
    }

    /// Reads a range of its bytes with ordinary reads, not from the mapping of its file.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be read, or has been shortened.
    pub(crate) fn read(&self, range: Range<usize>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; range.len()];
        self.read_to(range, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies the tensor to memory with ordinary reads; one that is there stays.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Error::Tensor`] where there is no memory for it.
    pub(crate) fn copied(&self) -> Result<Self> {
        if self.mapped_len() == 0 {
            return Ok(self.clone());
        }
        let len = self.byte_len();
        let full = || Error::tensor(&self.name, format!("takes {len} bytes, more memory than the system gives"));
        let map = Map::filled(len, |out| self.read_to(0..len, out)).ok_or_else(full)??;
        Ok(Self { pieces: Arc::new([Piece::new(&Arc::new(map), 0..len)]), ..self.clone() })
    }

    fn read_to(&self, range: Range<usize>, mut out: &mut [u8]) -> Result<()> {
        for (piece, part) in self.parts(range) {
            let (now, later) = out.split_at_mut(part.len());
            piece.map.read(piece.range.start + part.start, now)?;
            out = later;
        }
        Ok(())
    }

    /// Returns the number of its bytes that lie in a mapped file.
    pub(crate) fn mapped_len(&self) -> usize {
        self.pieces.iter().filter(|piece| piece.map.is_mapped()).map(|piece| piece.range.len()).sum()
    }

    /// Where its bytes lie.
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    pub(crate) fn will_need(&self, range: Range<usize>) {
        self.parts(range).for_each(|(piece, part)| piece.will_need(part));
    }

    pub(crate) fn done_with(&self, range: Range<usize>) {
        self.parts(range).for_each(|(piece, part)| piece.done_with(part));
    }

    /// The pieces in which a range of the bytes lies, and what of each; nothing of what is past the tensor's end.
    fn parts(&self, range: Range<usize>) -> impl Iterator<Item = (&Piece, Range<usize>)> {
        let each = self.pieces[0].range.len();
        let end = range.end.min(self.byte_len());
        let start = range.start.min(end);
        let within = move |n: usize, at: usize| at.clamp(n * each, (n + 1) * each) - n * each;
        (start / each..end.div_ceil(each)).map(move |n| (&self.pieces[n], within(n, start)..within(n, end)))
    }
}

impl Piece {
    /// A range of a map, of at least one byte.
    pub(super) fn new(map: &Arc<Map>, range: Range<usize>) -> Self {
        Self { map: Arc::clone(map), range }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }

    /// Where in its map it lies.
    pub(super) fn range(&self) -> &Range<usize> {
        &self.range
    }

    /// Hints that a range of the bytes will be read soon.
    pub(crate) fn will_need(&self, range: Range<usize>) {
        self.map.will_need(self.range.start + range.start..self.range.start + range.end);
    }

    /// Hints that a range of the bytes has been read.
    fn done_with(&self, range: Range<usize>) {
        self.map.done_with(self.range.start + range.start..self.range.start + range.end);
    }
}
