//! Describes tensors: name, shape, type, and the location of their bytes.
//!
//! A tensor of a GGUF file is one contiguous piece. Experts that a directory of safetensors stores
//! as separate tensors become one stacked tensor of several pieces, which stay in place.

use std::{borrow::Cow, ops::Range, sync::Arc};

use super::{TensorType, map::Map};
use crate::{DType, Error, Result};

/// Alignment of every tensor in bytes.
#[cfg(feature = "safetensors")]
const ALIGNMENT: usize = 8;

/// A tensor with checked shape, type and byte range.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// Name, for example `blk.0.attn_q.weight`.
    pub name: String,
    /// Storage type of the elements.
    pub dtype: TensorType,
    /// Dimensions, outermost first (the file stores them innermost first): `[rows, columns]` for a
    /// matrix.
    pub shape: Vec<usize>,
    /// Pieces in order, all of the same length.
    pieces: Arc<[TensorPiece]>,
}

/// A contiguous range of a tensor's bytes.
#[derive(Clone, Debug)]
pub(crate) struct TensorPiece {
    map: Arc<Map>,
    range: Range<usize>,
}

impl TensorInfo {
    /// Creates a tensor from a `range` of a mapped file, whose length matches `dtype` and `shape`.
    /// The bytes stay in place if they have the alignment that [`Gguf::bytes`](super::Gguf::bytes)
    /// promises, and are copied otherwise.
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
        let tensor = Self::in_piece(name, dtype.into(), shape, TensorPiece::new(map, range));
        if aligned { Ok(tensor) } else { tensor.copied() }
    }

    /// Creates a tensor from a copy of `bytes`, whose length matches `dtype` and `shape`.
    pub(crate) fn in_memory(name: String, dtype: DType, shape: Vec<usize>, bytes: &[u8]) -> Self {
        let piece = TensorPiece::new(&Arc::new(Map::copy(bytes)), 0..bytes.len());
        Self::in_piece(name, dtype.into(), shape, piece)
    }

    /// Creates a tensor of which only the header is known: reading its bytes gives none.
    /// `no_data` is an empty map.
    pub(super) fn without_data(name: String, dtype: TensorType, shape: Vec<usize>, no_data: &Arc<Map>) -> Self {
        let blocks = shape.iter().product::<usize>() / dtype.block_weights();
        let piece = TensorPiece::new(no_data, 0..blocks.saturating_mul(dtype.block_bytes()));
        Self::in_piece(name, dtype, shape, piece)
    }

    pub(super) fn in_piece(name: String, dtype: TensorType, shape: Vec<usize>, piece: TensorPiece) -> Self {
        Self { name, dtype, shape, pieces: Arc::new([piece]) }
    }

    /// Stacks tensors of the same type and shape into one, with a new outermost dimension. The
    /// bytes stay in place. Returns `None` if there are no tensors, or if they differ in type or
    /// shape.
    pub(crate) fn stacked(name: String, tensors: &[&Self]) -> Option<Self> {
        let first = tensors.first()?;
        let matches = |tensor: &&Self| (tensor.dtype, &tensor.shape) == (first.dtype, &first.shape);
        let shape = [&[tensors.len()], &first.shape[..]].concat();
        let pieces = tensors.iter().flat_map(|tensor| tensor.pieces.iter().cloned()).collect();
        tensors.iter().all(matches).then_some(Self { name, dtype: first.dtype, shape, pieces })
    }

    /// Returns a tensor of the same name and shape in F32, without data.
    pub(crate) fn as_f32_without_data(&self) -> Self {
        let no_data = Arc::new(Map::copy(&[]));
        Self::without_data(self.name.clone(), DType::F32.into(), self.shape.clone(), &no_data)
    }

    /// Returns the same tensor with another name.
    pub(crate) fn renamed(&self, name: String) -> Self {
        Self { name, ..self.clone() }
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the size in bytes.
    pub fn byte_len(&self) -> usize {
        self.pieces.len() * self.pieces[0].range.len()
    }

    /// Returns a range of the bytes, copied if it spans several pieces.
    pub(crate) fn bytes(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        match self.bytes_in_place(range.clone()) {
            Some(bytes) => Cow::Borrowed(bytes),
            None => {
                let slices = self.sub_ranges(range).map(|(piece, part)| piece.bytes().get(part).unwrap_or_default());
                Cow::Owned(slices.collect::<Vec<_>>().concat())
            }
        }
    }

    /// Returns a range of the bytes, or `None` if it spans several pieces.
    pub(crate) fn bytes_in_place(&self, range: Range<usize>) -> Option<&[u8]> {
        let (piece, part) = self.sub_ranges(range.clone()).next()?;
        piece.bytes().get(part).filter(|part| part.len() == range.len())
    }

    /// Reads a range of the bytes from the file with ordinary reads, not through its mapping.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read or was truncated.
    pub(crate) fn read(&self, range: Range<usize>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; range.len()];
        self.read_to(range, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies a mapped tensor to memory with ordinary reads. A tensor in memory is returned
    /// unchanged.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read or was truncated, [`Error::Tensor`] if the
    /// allocation fails.
    pub(crate) fn copied(&self) -> Result<Self> {
        if self.mapped_len() == 0 {
            return Ok(self.clone());
        }
        let len = self.byte_len();
        let out_of_memory = || Error::tensor(&self.name, format!("needs {len} bytes, which could not be allocated"));
        let map = Map::filled(len, |out| self.read_to(0..len, out)).ok_or_else(out_of_memory)??;
        Ok(Self { pieces: Arc::new([TensorPiece::new(&Arc::new(map), 0..len)]), ..self.clone() })
    }

    fn read_to(&self, range: Range<usize>, mut out: &mut [u8]) -> Result<()> {
        for (piece, part) in self.sub_ranges(range) {
            let (target, rest) = out.split_at_mut(part.len());
            piece.map.read(piece.range.start + part.start, target)?;
            out = rest;
        }
        Ok(())
    }

    /// Returns the number of bytes that are mapped from a file.
    pub(crate) fn mapped_len(&self) -> usize {
        self.pieces.iter().filter(|piece| piece.map.is_mapped()).map(|piece| piece.range.len()).sum()
    }

    /// Returns the pieces in order.
    pub(crate) fn pieces(&self) -> &[TensorPiece] {
        &self.pieces
    }

    pub(crate) fn will_need(&self, range: Range<usize>) {
        self.sub_ranges(range).for_each(|(piece, part)| piece.will_need(part));
    }

    pub(crate) fn done_with(&self, range: Range<usize>) {
        self.sub_ranges(range).for_each(|(piece, part)| piece.done_with(part));
    }

    /// Splits a range of the bytes, cut off at the tensor's end, into each piece that it overlaps
    /// and the sub-range within that piece.
    fn sub_ranges(&self, range: Range<usize>) -> impl Iterator<Item = (&TensorPiece, Range<usize>)> {
        let piece_len = self.pieces[0].range.len();
        let end = range.end.min(self.byte_len());
        let start = range.start.min(end);
        let within =
            move |piece: usize, byte: usize| byte.clamp(piece * piece_len, (piece + 1) * piece_len) - piece * piece_len;
        let pieces = start / piece_len..end.div_ceil(piece_len);
        pieces.map(move |piece| (&self.pieces[piece], within(piece, start)..within(piece, end)))
    }
}

impl TensorPiece {
    /// Creates a piece from a non-empty range of `map`.
    pub(super) fn new(map: &Arc<Map>, range: Range<usize>) -> Self {
        Self { map: Arc::clone(map), range }
    }

    /// Returns the bytes, none for a tensor without data.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.map.get(self.range.clone()).unwrap_or_default()
    }

    /// Returns the piece's range in its map.
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
