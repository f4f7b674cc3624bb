//! The tensors of a file: their types, and where their bytes lie.
//!
//! In comes the file's tensor table, out come entries whose shape, format and byte range are known to be sound, so
//! that nothing later needs to check them.

use std::{collections::HashSet, fmt, ops::Range, sync::Arc};

use super::{
    map::Map,
    read::{Cursor, Parsed, quoted},
};
use crate::DType;

/// The fewest bytes that an entry of the table takes: its name's length, a dimension count, one dimension, type, offset.
const MIN_ENTRY_BYTES: usize = 8 + 4 + 8 + 4 + 8;

/// The most dimensions that a tensor can have (`GGML_MAX_DIMS`).
const MAX_DIMENSIONS: u32 = 4;

/// What the first byte of every tensor lies at a multiple of.
const ALIGNMENT: usize = 8;

/// How a tensor's elements are stored: one of the formats that this crate computes on ([`DType`]), or one that it can
/// only list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    number: u32,
    name: &'static str,
    block_weights: usize,
    block_bytes: usize,
}

/// The types beyond [`DType`]: number, name, weights and bytes of a block, as in ggml's `ggml-common.h`.
const LISTED: [(u32, &str, usize, usize); 19] = [
    (9, "Q8_1", 32, 36),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
];

/// The types that were withdrawn from the format, and whose numbers are not given again.
const WITHDRAWN: [(u32, &str); 8] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

impl TensorType {
    /// The type with this number in a file (`ggml_type`), or why there is none.
    fn from_number(number: u32) -> Parsed<Self> {
        if let Some(dtype) = DType::from_ggml(number) {
            return Ok(dtype.into());
        }
        if let Some(&(_, name, block_weights, block_bytes)) = LISTED.iter().find(|listed| listed.0 == number) {
            return Ok(Self { number, name, block_weights, block_bytes });
        }
        Err(match WITHDRAWN.iter().find(|withdrawn| withdrawn.0 == number) {
            Some((_, name)) => {
                format!("is stored as {name}, which was withdrawn from GGUF: quantise the model anew as Q4_0 or IQ4_NL")
            }
            None => format!("has the unknown type {number}"),
        })
    }

    /// Its usual name, for example `Q4_K`.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// The format, where this crate computes on it.
    pub fn dtype(self) -> Option<DType> {
        DType::from_ggml(self.number)
    }

    /// How many weights a block holds (1 for the plain types).
    pub fn block_weights(self) -> usize {
        self.block_weights
    }

    /// How many bytes a block takes.
    pub fn block_bytes(self) -> usize {
        self.block_bytes
    }
}

impl From<DType> for TensorType {
    fn from(dtype: DType) -> Self {
        let (block_weights, block_bytes) = (dtype.block_weights(), dtype.block_bytes());
        Self { number: dtype.ggml(), name: dtype.name(), block_weights, block_bytes }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A tensor, its shape, type and place checked.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// Its name, for example `blk.0.attn_q.weight`.
    pub name: String,
    /// How its elements are stored.
    pub dtype: TensorType,
    /// Its dimensions, outermost first (the file has them the other way round): a matrix is `[rows, columns]`.
    pub shape: Vec<usize>,
    map: Arc<Map>,
    range: Range<usize>,
}

impl TensorInfo {
    /// A tensor in a `range` of a file, which is as long as format and shape say. It stays there where it lies as
    /// [`Gguf::bytes`](super::Gguf::bytes) promises, and is copied where it does not.
    pub(crate) fn in_file(name: String, dtype: DType, shape: Vec<usize>, map: &Arc<Map>, range: Range<usize>) -> Self {
        if map[range.clone()].as_ptr().addr().is_multiple_of(ALIGNMENT) {
            return Self { name, dtype: dtype.into(), shape, map: Arc::clone(map), range };
        }
        Self::in_memory(name, dtype, shape, &map[range])
    }

    /// A tensor with a copy of these `bytes`, as many as format and shape say.
    pub(crate) fn in_memory(name: String, dtype: DType, shape: Vec<usize>, bytes: &[u8]) -> Self {
        Self { name, dtype: dtype.into(), shape, map: Arc::new(Map::copy(bytes)), range: 0..bytes.len() }
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
        self.range.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }

    pub(crate) fn will_need(&self, range: Range<usize>) {
        self.map.will_need(self.in_map(range));
    }

    pub(crate) fn done_with(&self, range: Range<usize>) {
        self.map.done_with(self.in_map(range));
    }

    /// Where a range of the tensor's bytes lies in the map, without what is past its end.
    fn in_map(&self, range: Range<usize>) -> Range<usize> {
        let end = range.end.min(self.range.len());
        let start = range.start.min(end);
        self.range.start + start..self.range.start + end
    }
}

/// An entry of the table as it stands in the file, unchecked but for its number of dimensions.
struct Entry {
    name: String,
    /// Innermost first.
    dimensions: Vec<u64>,
    number: u32,
    /// From the start of the data.
    offset: u64,
}

impl Entry {
    fn read(cursor: &mut Cursor, name: String) -> Parsed<Self> {
        let count: u32 = cursor.read()?;
        if !(1..=MAX_DIMENSIONS).contains(&count) {
            return Err(format!("has {count} dimensions: 1 to {MAX_DIMENSIONS} are possible"));
        }
        let dimensions = (0..count).map(|_| cursor.read()).collect::<Parsed<_>>()?;
        Ok(Self { name, dimensions, number: cursor.read()?, offset: cursor.read()? })
    }

    fn resolve(self, map: &Arc<Map>, start: usize, alignment: u64) -> Parsed<TensorInfo> {
        let dtype = TensorType::from_number(self.number)?;
        let (shape, len) = self.extent(dtype)?;
        let Self { name, offset, .. } = self;
        if !offset.is_multiple_of(alignment) {
            return Err(format!("starts at offset {offset}, which is no multiple of the alignment {alignment}"));
        }
        let begin = usize::try_from(offset).ok().and_then(|offset| start.checked_add(offset));
        let range = begin.and_then(|begin| Some(begin..begin.checked_add(len)?));
        match range.filter(|range| range.end <= map.len()) {
            Some(range) => Ok(TensorInfo { name, dtype, shape, map: Arc::clone(map), range }),
            None => Err(format!(
                "has {len} bytes at offset {offset} of the data at byte {start}, past the file's end at byte {}: \
                 the file is truncated or damaged",
                map.len()
            )),
        }
    }

    /// The shape, outermost first, and the bytes that it takes.
    fn extent(&self, dtype: TensorType) -> Parsed<(Vec<usize>, usize)> {
        let dimensions = &self.dimensions;
        if dimensions.contains(&0) {
            return Err(format!("has a dimension of length 0: {dimensions:?}"));
        }
        let (columns, block) = (dimensions[0], dtype.block_weights as u64);
        if !columns.is_multiple_of(block) {
            return Err(format!("has rows of {columns} weights, no whole number of {dtype} blocks of {block}"));
        }
        let too_large = || format!("has dimensions {dimensions:?}, whose product is too large");
        let elements = dimensions.iter().try_fold(1, |product: u64, &length| product.checked_mul(length));
        let elements = elements.and_then(|elements| usize::try_from(elements).ok()).ok_or_else(too_large)?;
        let bytes = (elements / dtype.block_weights).checked_mul(dtype.block_bytes).ok_or_else(too_large)?;
        // Each is at most the product, which fits.
        let shape = dimensions.iter().rev().map(|&length| length as usize).collect();
        Ok((shape, bytes))
    }
}

/// The file's tensor table, yet to be checked against the data.
pub(super) struct Table(Vec<Entry>);

impl Table {
    /// Reads a table of `count` entries.
    pub(super) fn read(cursor: &mut Cursor, count: u64) -> Parsed<Self> {
        cursor.expect(count, MIN_ENTRY_BYTES).map_err(|what| format!("a tensor count of {count} {what}"))?;
        let mut entries = Vec::new();
        for number in 1..=count {
            let name: String = cursor.read().map_err(|what| format!("tensor {number} of {count} {what}"))?;
            if name.is_empty() {
                return Err(format!("tensor {number} of {count} has no name"));
            }
            let named = quoted(&name);
            entries.push(Entry::read(cursor, name).map_err(|what| format!("tensor {named} {what}"))?);
        }
        let mut names = HashSet::new();
        match entries.iter().find(|entry| !names.insert(&entry.name)) {
            Some(entry) => Err(format!("tensor {} is there twice", quoted(&entry.name))),
            None => Ok(Self(entries)),
        }
    }

    /// Checks every entry against the `map`, where the data starts at `start` and is aligned to `alignment` bytes.
    pub(super) fn resolve(self, map: &Arc<Map>, start: usize, alignment: u64) -> Parsed<Vec<TensorInfo>> {
        let mut tensors = Vec::new();
        for entry in self.0 {
            let name = quoted(&entry.name);
            tensors.push(entry.resolve(map, start, alignment).map_err(|what| format!("tensor {name} {what}"))?);
        }
        let mut by_place: Vec<_> = tensors.iter().collect();
        by_place.sort_by_key(|tensor| tensor.range.start);
        match by_place.iter().zip(by_place.iter().skip(1)).find(|(tensor, next)| next.range.start < tensor.range.end) {
            Some((tensor, next)) => {
                Err(format!("tensor {} overlaps tensor {}", quoted(&next.name), quoted(&tensor.name)))
            }
            None => Ok(tensors),
        }
    }
}
