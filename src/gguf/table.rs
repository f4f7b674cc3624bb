//! Reads and checks the tensor table of a GGUF file.
//!
//! The result is a list of tensors whose shapes, types and byte ranges are valid, so later stages
//! need no checks.

use std::{collections::HashSet, sync::Arc};

use super::{
    FaultKind, TensorInfo, TensorType,
    map::Map,
    read::{ByteReader, Parsed, quoted},
    tensor::TensorPiece,
};

/// Minimum size of a table entry in bytes: length of the name, dimension count, one dimension,
/// type, offset.
const MIN_ENTRY_BYTES: usize = 8 + 4 + 8 + 4 + 8;

/// Maximum number of dimensions (`GGML_MAX_DIMS`).
const MAX_DIMENSIONS: u32 = 4;

/// An entry of the table as stored in the file. Only its number of dimensions has been checked.
struct Entry {
    name: String,
    /// Innermost first.
    dimensions: Vec<u64>,
    /// GGUF number of the tensor type (`ggml_type`).
    type_number: u32,
    /// Bytes from the start of the tensor data.
    offset: u64,
}

impl Entry {
    fn read(reader: &mut ByteReader, name: String) -> Parsed<Self> {
        let count: u32 = reader.read()?;
        if !(1..=MAX_DIMENSIONS).contains(&count) {
            return Err(format!("has {count} dimensions: expected 1 to {MAX_DIMENSIONS}"));
        }
        let dimensions = (0..count).map(|_| reader.read()).collect::<Parsed<_>>()?;
        Ok(Self { name, dimensions, type_number: reader.read()?, offset: reader.read()? })
    }

    /// Returns the tensor, or what is wrong with it and as much of it as is known.
    fn resolve(self, map: &Arc<Map>, data_start: usize, alignment: u64) -> Result<TensorInfo, Refused> {
        let dtype = match TensorType::from_number(self.type_number) {
            Ok(dtype) => dtype,
            Err(what) => return Err(self.of_unknown_type(what)),
        };
        let malformed = |what| Refused { kind: FaultKind::File, what, tensor: None };
        let (shape, byte_len) = self.extent(dtype).map_err(malformed)?;
        let Self { name, offset, .. } = self;
        if !offset.is_multiple_of(alignment) {
            return Err(malformed(format!(
                "has offset {offset}, which is not a multiple of the alignment {alignment}"
            )));
        }
        let start = usize::try_from(offset).ok().and_then(|offset| data_start.checked_add(offset));
        let range = start.and_then(|start| Some(start..start.checked_add(byte_len)?));
        match range.filter(|range| range.end <= map.len()) {
            Some(range) => Ok(TensorInfo::in_piece(name, dtype, shape, TensorPiece::new(map, range))),
            None => {
                let what = format!(
                    "has {byte_len} bytes at offset {offset} of the data at byte {data_start}, \
                     but the file ends at byte {}: it is truncated or damaged",
                    map.len()
                );
                Err(Refused { kind: FaultKind::MissingData, what, tensor: Some((name, dtype, shape)) })
            }
        }
    }

    fn of_unknown_type(self, what: String) -> Refused {
        let dtype = TensorType::unknown(self.type_number);
        let shape = self.extent(dtype).ok().map(|(shape, _)| shape);
        let tensor = shape.map(|shape| (self.name, dtype, shape));
        Refused { kind: FaultKind::UnknownType(self.type_number), what, tensor }
    }

    /// Returns the shape, outermost dimension first, and the size in bytes.
    fn extent(&self, dtype: TensorType) -> Parsed<(Vec<usize>, usize)> {
        let dimensions = &self.dimensions;
        if dimensions.contains(&0) {
            return Err(format!("has a dimension of length 0: {dimensions:?}"));
        }
        let (columns, block) = (dimensions[0], dtype.block_weights() as u64);
        if !columns.is_multiple_of(block) {
            return Err(format!("has rows of {columns} weights, not a multiple of the {dtype} block size {block}"));
        }
        let too_large = || format!("has dimensions {dimensions:?}, whose product is too large");
        let elements = dimensions.iter().try_fold(1, |product: u64, &length| product.checked_mul(length));
        let elements = elements.and_then(|elements| usize::try_from(elements).ok()).ok_or_else(too_large)?;
        let bytes = (elements / dtype.block_weights()).checked_mul(dtype.block_bytes()).ok_or_else(too_large)?;
        // Each dimension is at most the product, which fits.
        let shape = dimensions.iter().rev().map(|&length| length as usize).collect();
        Ok((shape, bytes))
    }
}

/// A tensor that cannot be read.
struct Refused {
    kind: FaultKind,
    what: String,
    /// The name, type and shape, if these are sound.
    tensor: Option<(String, TensorType, Vec<usize>)>,
}

/// What is wrong with some tensors of a table.
pub(super) struct TableFault {
    pub kind: FaultKind,
    /// What is wrong with the first of them.
    pub what: String,
    pub tensors: Vec<String>,
}

/// The tensor table of a file, not yet checked against the data.
pub(super) struct TensorTable(Vec<Entry>);

impl TensorTable {
    /// Reads a table of `count` entries.
    pub(super) fn read(reader: &mut ByteReader, count: u64) -> Parsed<Self> {
        reader.expect(count, MIN_ENTRY_BYTES).map_err(|what| format!("a tensor count of {count} {what}"))?;
        let mut entries = Vec::new();
        for number in 1..=count {
            let name: String = reader.read().map_err(|what| format!("tensor {number} of {count} {what}"))?;
            if name.is_empty() {
                return Err(format!("tensor {number} of {count} has no name"));
            }
            let label = quoted(&name);
            entries.push(Entry::read(reader, name).map_err(|what| format!("tensor {label} {what}"))?);
        }
        let mut names = HashSet::new();
        match entries.iter().find(|entry| !names.insert(&entry.name)) {
            Some(entry) => Err(format!("tensor {} occurs twice", quoted(&entry.name))),
            None => Ok(Self(entries)),
        }
    }

    /// Checks every entry against `map`, whose tensor data starts at byte `data_start` and is
    /// aligned to `alignment` bytes. Returns the tensors, and what is wrong with them; tensors that
    /// overlap are wrong, too.
    pub(super) fn resolve(
        self,
        map: &Arc<Map>,
        data_start: usize,
        alignment: u64,
    ) -> (Vec<TensorInfo>, Vec<TableFault>) {
        let (mut tensors, mut faults) = (vec![], Vec::<TableFault>::new());
        let no_data = Arc::new(Map::copy(&[]));
        for entry in self.0 {
            let name = quoted(&entry.name);
            let Refused { kind, what, tensor } = match entry.resolve(map, data_start, alignment) {
                Ok(tensor) => {
                    tensors.push(tensor);
                    continue;
                }
                Err(refused) => refused,
            };
            let Some((tensor, dtype, shape)) = tensor else {
                // No other tensor can be trusted.
                faults.push(TableFault { kind, what: format!("tensor {name} {what}"), tensors: vec![] });
                return (tensors, faults);
            };
            match faults.iter_mut().find(|fault| fault.kind == kind) {
                Some(fault) => fault.tensors.push(tensor.clone()),
                None => {
                    let what = format!("tensor {name} {what}");
                    faults.push(TableFault { kind, what, tensors: vec![tensor.clone()] });
                }
            }
            tensors.push(TensorInfo::without_data(tensor, dtype, shape, &no_data));
        }
        let range = |tensor: &TensorInfo| tensor.pieces()[0].range().clone();
        let mut sorted: Vec<_> = tensors.iter().filter(|tensor| tensor.mapped_len() > 0).collect();
        sorted.sort_by_key(|tensor| range(tensor).start);
        let overlap = |pair: &&[&TensorInfo]| range(pair[1]).start < range(pair[0]).end;
        if let Some(pair) = sorted.windows(2).find(overlap) {
            let what = format!("tensor {} overlaps tensor {}", quoted(&pair[1].name), quoted(&pair[0].name));
            faults.push(TableFault { kind: FaultKind::File, what, tensors: vec![] });
        }
        (tensors, faults)
    }
}
