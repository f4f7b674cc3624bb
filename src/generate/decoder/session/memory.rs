//! Moves the parts of a sequence between the device and their stored order.

use super::super::engine::Engine;
use crate::{
    Error, Result,
    backend::{CacheAccess, Executable},
    kv_cache::{CachePart, SequencePart},
};

/// Number of positions that a sequence has in the caches of the model and of its head.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedPositions {
    pub model: usize,
    pub head: usize,
}

impl Engine {
    /// Makes the pending page copies, and allocates memory for `parts`.
    pub(super) fn prepare_parts(&mut self, parts: &[SequencePart]) -> Result<()> {
        let parts: Vec<_> = parts.iter().map(|part| part.part).collect();
        access(&mut *self.executable)?.prepare(&self.copies, &parts)?;
        self.copies.clear();
        match &mut self.head {
            Some(head) => head.prepare_parts(&parts),
            None => Ok(()),
        }
    }

    /// Returns the size of a part in bytes: of the model's layers, and of the head's.
    pub(super) fn part_bytes(&mut self, part: CachePart) -> Result<[usize; 2]> {
        let model = access(&mut *self.executable)?.layout().stored_bytes(part);
        Ok([model, self.head.as_mut().map_or(Ok(0), |head| head.part_bytes(part))?])
    }

    /// Reads a part: the model's layers, and then the head's.
    pub(super) fn read_part(&mut self, part: SequencePart, cached: CachedPositions, bytes: &mut Vec<u8>) -> Result<()> {
        let [model, head] = self.part_bytes(part.part)?;
        bytes.resize(model + head, 0);
        let (of_model, of_head) = bytes.split_at_mut(model);
        let cache = access(&mut *self.executable)?;
        cache.read(part.part, of_model)?;
        cache.layout().clear_unused(part, cached.model, of_model);
        match &mut self.head {
            Some(rows) if head > 0 => rows.read_part(part, cached.head, of_head),
            _ => Ok(()),
        }
    }

    /// Writes a part as [`read_part`](Self::read_part) reads it.
    pub(super) fn write_part(&mut self, part: SequencePart, cached: CachedPositions, bytes: &mut [u8]) -> Result<()> {
        let [model, head] = self.part_bytes(part.part)?;
        let (of_model, of_head) = bytes.split_at_mut(model);
        let cache = access(&mut *self.executable)?;
        cache.layout().clear_unused(part, cached.model, of_model);
        cache.write(part.part, of_model)?;
        match &mut self.head {
            Some(rows) if head > 0 => rows.write_part(part, cached.head, of_head),
            _ => Ok(()),
        }
    }
}

/// Returns the access to the memory of an executable's cache.
pub(in super::super) fn access(executable: &mut dyn Executable) -> Result<&mut dyn CacheAccess> {
    let lacks = || Error::Unsupported("this device does not read its cache: save the tokens alone".into());
    executable.cache().ok_or_else(lacks)
}
