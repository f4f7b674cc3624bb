//! The table of a file's tensors.
//!
//! In comes what the file says, out come tensors whose shape, format and byte range are known to be sound, so that nothing
//! later needs to check them.

use std::{collections::HashSet, sync::Arc};

use super::{
    TensorInfo, TensorType,
    map::Map,
    read::{Cursor, Parsed, quoted},
    tensor::Piece,
};

/// The fewest bytes that an entry of the table takes: its name's length, a dimension count, one dimension, type, offset.
const MIN_ENTRY_BYTES: usize = 8 + 4 + 8 + 4 + 8;

/// The most dimensions that a tensor can have (`GGML_MAX_DIMS`).
const MAX_DIMENSIONS: u32 = 4;

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
            Some(range) => Ok(TensorInfo::in_piece(name, dtype, shape, Piece::new(map, range))),
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
        let (columns, block) = (dimensions[0], dtype.block_weights() as u64);
        if !columns.is_multiple_of(block) {
            return Err(format!("has rows of {columns} weights, no whole number of {dtype} blocks of {block}"));
        }
        let too_large = || format!("has dimensions {dimensions:?}, whose product is too large");
        let elements = dimensions.iter().try_fold(1, |product: u64, &length| product.checked_mul(length));
        let elements = elements.and_then(|elements| usize::try_from(elements).ok()).ok_or_else(too_large)?;
        let bytes = (elements / dtype.block_weights()).checked_mul(dtype.block_bytes()).ok_or_else(too_large)?;
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
        let place = |tensor: &TensorInfo| tensor.pieces()[0].range().clone();
        let mut by_place: Vec<_> = tensors.iter().collect();
        by_place.sort_by_key(|tensor| place(tensor).start);
        match by_place.iter().zip(by_place.iter().skip(1)).find(|(tensor, next)| place(next).start < place(tensor).end)
        {
            Some((tensor, next)) => {
                Err(format!("tensor {} overlaps tensor {}", quoted(&next.name), quoted(&tensor.name)))
            }
            None => Ok(tensors),
        }
    }
}
