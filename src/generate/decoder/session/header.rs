//! Reads and writes the header of a session.

use std::io::{Read, Write};

use super::section::{damaged, read_failed, write_failed};
use crate::{
    Error, Result,
    kv_cache::{CacheType, PAGE_POSITIONS},
};

const MAGIC: [u8; 8] = *b"INKSESSN";
const VERSION: u32 = 1;
/// The bit of `flags` that is set if pages and states follow.
const HAS_CACHE: u32 = 1;
/// The bit of `flags` that is set if pages have the layers of a head for multi-token prediction.
const HAS_HEAD: u32 = 2;

/// Number of fields after the magic number, each a little-endian u32. The last one is the CRC-32 of
/// all bytes before it.
const FIELDS: usize = 14;
const BYTES: usize = MAGIC.len() + 4 * FIELDS;

/// The header of a session. Counts are not checked against anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The fingerprint of the model.
    pub model: u64,
    /// Number of tokens in the sequence.
    pub tokens: usize,
    /// The part of the cache that follows; `None` if the tokens are to be computed again.
    pub cache: Option<CacheHeader>,
}

/// The sizes of a sequence in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheHeader {
    /// The format of keys and values.
    pub cache_type: CacheType,
    /// Number of positions.
    pub len: usize,
    /// End position of the last prompt.
    pub prompt_end: usize,
    /// Number of checkpoints of recurrent layers.
    pub checkpoints: usize,
    /// The rows of the head for multi-token prediction, if the model has one.
    pub head: Option<HeadHeader>,
}

/// The rows of a head for multi-token prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeadHeader {
    /// Number of rows in the head's cache.
    pub done: usize,
    /// Number of tokens whose hidden rows the head had or has.
    pub end: usize,
    /// Number of hidden rows that are kept for truncation.
    pub kept: usize,
}

impl Header {
    /// Writes the header, and returns its checksum.
    pub fn write(&self, writer: &mut dyn Write) -> Result<u32> {
        let cache = self.cache.as_ref();
        let head = cache.and_then(|cache| cache.head);
        let flags = u32::from(cache.is_some()) * HAS_CACHE + u32::from(head.is_some()) * HAS_HEAD;
        let HeadHeader { done, end, kept } = head.unwrap_or_default();
        let counts = [
            self.tokens,
            cache.map_or(0, |cache| cache.len),
            cache.map_or(0, |cache| cache.prompt_end),
            cache.map_or(0, |cache| cache.checkpoints),
            done,
            end,
            kept,
        ];
        let mut fields = vec![VERSION, flags, self.model as u32, (self.model >> 32) as u32];
        fields.extend([cache.map_or(0, |cache| number(cache.cache_type)), PAGE_POSITIONS as u32]);
        for count in counts {
            fields.push(count.try_into().map_err(|_| Error::session("has more than 2^32 tokens"))?);
        }
        let mut bytes = MAGIC.to_vec();
        fields.iter().for_each(|field| bytes.extend(field.to_le_bytes()));
        let checksum = crc32fast::hash(&bytes);
        bytes.extend(checksum.to_le_bytes());
        writer.write_all(&bytes).map_err(write_failed)?;
        Ok(checksum)
    }

    /// Reads a header, and returns it with its checksum.
    pub fn read(reader: &mut dyn Read) -> Result<(Self, u32)> {
        let mut bytes = [0; BYTES];
        reader.read_exact(&mut bytes).map_err(read_failed)?;
        let (magic, rest) = bytes.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(Error::session("does not begin like one: restore bytes that `Runner::save` wrote"));
        }
        let mut fields = [0; FIELDS];
        for (field, bytes) in fields.iter_mut().zip(rest.chunks_exact(4)) {
            *field = bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
        }
        let [version, flags, model @ .., checksum] = fields;
        let [low, high, cache_type, positions, counts @ ..] = model;
        if version != VERSION {
            let what = format!("is of version {version}, but this program reads version {VERSION}: save it again");
            return Err(Error::session(what));
        }
        let is_whole = cfg!(fuzzing) || crc32fast::hash(&bytes[..BYTES - 4]) == checksum;
        if !is_whole || flags & !(HAS_CACHE | HAS_HEAD) != 0 {
            return Err(damaged());
        }
        let [tokens, len, prompt_end, checkpoints, done, end, kept] = counts.map(|count| count as usize);
        let head = (flags & HAS_HEAD != 0).then_some(HeadHeader { done, end, kept });
        let cache = match (flags & HAS_CACHE != 0, cache_of(cache_type)) {
            (false, _) => None,
            (true, Some(cache_type)) if positions as usize == PAGE_POSITIONS => {
                Some(CacheHeader { cache_type, len, prompt_end, checkpoints, head })
            }
            (true, _) => return Err(Error::session("has an unknown layout of the cache: save the tokens alone")),
        };
        Ok((Self { model: u64::from(high) << 32 | u64::from(low), tokens, cache }, checksum))
    }
}

fn number(cache_type: CacheType) -> u32 {
    match cache_type {
        CacheType::F32 => 0,
        CacheType::F16 => 1,
        CacheType::Q8_0 => 2,
    }
}

fn cache_of(number: u32) -> Option<CacheType> {
    [CacheType::F32, CacheType::F16, CacheType::Q8_0].get(number as usize).copied()
}
