//! Saves a sequence, and restores it: its tokens, and its part of the cache.
//!
//! A session has a header and sections. The first section has the tokens, the pages that exist in
//! groups with a window, and the positions of checkpoints. Then each page and each state is a
//! section of its own, and the last section has the rows of the head for multi-token prediction.
//! The lengths of sections follow from the header and the model, so a reader allocates no more than
//! the sequence takes. Bytes from a stranger are data of the cache at worst: counts are checked
//! against the model's limits, and ids against the vocabulary.

mod header;
mod memory;
mod section;

use std::{
    io::{Read, Write},
    sync::{
        Arc,
        mpsc::{channel, sync_channel},
    },
    thread,
};

pub(super) use self::memory::access;
use self::{
    header::{CacheHeader, HeadHeader, Header},
    memory::CachedPositions,
    section::{SectionReader, SectionWriter, damaged},
};
use super::{
    Decoder,
    engine::Engine,
    mtp::{KEPT_ROWS, StoredRows},
    sequence::SequenceTokens,
    ticket::Ticket,
    turns::Turns,
};
use crate::{
    Error, Result,
    kv_cache::{CHECKPOINTS, CachePart, PAGE_POSITIONS, PageGroup, SequenceExtent, SequenceId, SequencePart},
};

/// Number of buffers for parts: one is read while another is written to the cache.
const BUFFERS: usize = 3;

impl Decoder {
    /// Writes the tokens of a sequence, and its part of the cache unless `tokens_only` is set.
    /// `model` is a fingerprint of the model.
    ///
    /// # Errors
    /// [`Error::Session`] if the sequence has images, or the writer fails. [`Error::Argument`] if
    /// it is not open. Errors of the device.
    pub(crate) fn save(&mut self, id: SequenceId, model: u64, tokens_only: bool, writer: &mut dyn Write) -> Result<()> {
        self.remove_drafted(id)?;
        let ticket = self.ticket(id)?;
        let SequenceTokens { ids, images, .. } = self.held(id)?;
        if let Some(image) = images.first() {
            let start = image.start;
            let what = format!("cannot store the image at token {start}: truncate the sequence before it");
            return Err(Error::session(what));
        }
        let with_cache = !tokens_only && !self.recompute;
        let _kept = with_cache.then(|| KeptSequence::new(&self.turns, id, ticket));
        let stored = with_cache.then(|| self.turns.with_engine(|engine| StoredSequence::new(engine, id)));
        let stored = stored.transpose()?;
        let header = Header { model, tokens: ids.len(), cache: stored.as_ref().map(StoredSequence::header) };
        let checksum = header.write(writer)?;
        let mut sections = SectionWriter::new(writer, checksum);
        let mut table: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        if let Some(stored) = &stored {
            table.extend(stored.table());
        }
        sections.write(&table)?;
        if let Some(stored) = &stored {
            stored.write(&self.turns, &mut sections)?;
        }
        sections.finish()
    }

    /// Replaces a sequence by one that [`save`](Self::save) wrote, and returns the id of the new
    /// sequence. After an error the sequence `id` is unchanged, or empty if the error concerns the
    /// cache.
    ///
    /// # Errors
    /// [`Error::Session`] if the session is damaged, of another model, cache type or version, or
    /// cannot be read; [`Error::ContextFull`] if it is longer than the context; [`Error::Memory`]
    /// if the cache has no room. [`Error::Argument`] if the sequence is not open. Errors of the
    /// device.
    pub(crate) fn restore(&mut self, id: SequenceId, model: u64, reader: &mut dyn Read) -> Result<SequenceId> {
        self.held(id)?;
        let (header, checksum) = Header::read(reader)?;
        self.check_header(&header, model)?;
        let mut sections = SectionReader::new(reader, checksum);
        let groups = self.turns.with_engine(|engine| engine.cache.groups().to_vec());
        let table = sections.read(4 * header.tokens + header.cache.map_or(0, |cache| table_bytes(&cache, &groups)))?;
        let (ids, table) = table.split_at(4 * header.tokens);
        let ids = numbers(ids);
        if ids.iter().any(|id| *id as usize >= self.limits.vocab_size) {
            return Err(damaged());
        }
        let restored = match &header.cache {
            Some(cache) => {
                let (extent, kept) = read_table(cache, &groups, ids.len(), table)?;
                self.truncate(id, 0)?;
                self.restore_cache(id, cache, &extent, &kept, &ids, &mut sections)?
            }
            None => self.open(),
        };
        self.close(id)?;
        let is_restored = header.cache.is_some();
        self.tokens.insert(restored, SequenceTokens { ids, is_restored, ..SequenceTokens::default() });
        Ok(restored)
    }

    fn check_header(&self, header: &Header, model: u64) -> Result<()> {
        if header.model != model {
            return Err(Error::session("is of another model: restore it with the model that it was saved with"));
        }
        self.check_room(0, header.tokens)?;
        let Some(cache) = &header.cache else { return Ok(()) };
        let (cache_type, has_head) = self.turns.with_engine(|engine| {
            Ok::<_, Error>((access(&mut *engine.executable)?.layout().cache_type, engine.head.is_some()))
        })?;
        if cache.cache_type != cache_type {
            return Err(Error::session(format!(
                "has a cache in {:?}, but the model is loaded with {cache_type:?}: load it with `cache_type({:?})`, or \
                 save the tokens alone",
                cache.cache_type, cache.cache_type
            )));
        }
        if cache.head.is_some() != has_head {
            let [has, load] = if has_head { ["lacks", "with"] } else { ["has", "without"] };
            return Err(Error::session(format!(
                "{has} the rows of a head for multi-token prediction: load the model {load} `without_mtp`, or save the \
                 tokens alone"
            )));
        }
        let head = cache.head.unwrap_or_default();
        let counts = cache.checkpoints <= CHECKPOINTS && head.kept <= KEPT_ROWS;
        let fits = cache.len <= header.tokens && head.done <= head.end.min(cache.len) && head.end <= header.tokens;
        if counts && fits { Ok(()) } else { Err(damaged()) }
    }

    /// Opens a sequence with the parts of the cache in the next sections, in the place of `id`.
    fn restore_cache(
        &mut self,
        id: SequenceId,
        cache: &CacheHeader,
        extent: &SequenceExtent,
        kept: &[usize],
        ids: &[u32],
        sections: &mut SectionReader<'_>,
    ) -> Result<SequenceId> {
        let ticket = self.ticket(id)?;
        let Self { turns, tokens, .. } = self;
        let id = turns.with_engine(|engine| engine.open_with(extent, &ticket, tokens))?;
        let memory = KeptSequence { turns, id, ticket };
        let mut fill = || {
            let parts = turns.with_engine(|engine| {
                let parts = engine.cache.parts(id)?;
                engine.prepare_parts(&parts)?;
                Ok::<_, Error>(parts)
            })?;
            let head = cache.head.unwrap_or_default();
            read_parts(turns, &parts, CachedPositions { model: cache.len, head: head.done }, sections)?;
            let Some(HeadHeader { done, end, .. }) = cache.head else { return Ok(()) };
            let width = turns.with_engine(|engine| engine.head.as_ref().map_or(0, |head| head.width()));
            let rows = sections.read(4 * width * (end - done + kept.len()))?;
            let rows = numbers(&rows).into_iter().map(f32::from_bits).collect();
            let rows = StoredRows { done, end, kept: kept.to_vec(), rows };
            turns.with_engine(|engine| engine.head.iter_mut().for_each(|head| head.restore(id, &rows, ids)));
            Ok(())
        };
        let filled = fill();
        drop(memory);
        match filled {
            Ok(()) => Ok(id),
            Err(error) => {
                turns.with_engine(|engine| engine.close(id))?;
                Err(error)
            }
        }
    }
}

/// Keeps the memory of a sequence until this is dropped.
struct KeptSequence<'a> {
    turns: &'a Turns,
    id: SequenceId,
    ticket: Arc<Ticket>,
}

impl<'a> KeptSequence<'a> {
    fn new(turns: &'a Turns, id: SequenceId, ticket: Arc<Ticket>) -> Self {
        turns.with_engine(|engine| engine.admission.set(id, ticket.clone(), true));
        Self { turns, id, ticket }
    }
}

impl Drop for KeptSequence<'_> {
    fn drop(&mut self) {
        let Self { turns, id, ticket } = self;
        turns.with_engine(|engine| engine.admission.set(*id, ticket.clone(), false));
    }
}

/// The part of a sequence that the engine has.
struct StoredSequence {
    extent: SequenceExtent,
    parts: Vec<SequencePart>,
    cached: CachedPositions,
    header: CacheHeader,
    rows: Option<StoredRows>,
    /// The groups of layers with a window.
    windows: Vec<bool>,
}

impl StoredSequence {
    fn new(engine: &mut Engine, id: SequenceId) -> Result<Self> {
        engine.discard_pipelined(id)?;
        let (extent, parts) = (engine.cache.extent(id)?, engine.cache.parts(id)?);
        // The head may have computed nothing for some pages.
        engine.prepare_parts(&parts)?;
        let rows = engine.head.as_mut().map(|head| head.stored(id));
        let head = rows.as_ref().map(|StoredRows { done, end, kept, .. }| HeadHeader {
            done: *done,
            end: *end,
            kept: kept.len(),
        });
        let header = CacheHeader {
            cache_type: access(&mut *engine.executable)?.layout().cache_type,
            len: extent.len,
            prompt_end: extent.prompt_end,
            checkpoints: extent.checkpoints.len(),
            head,
        };
        let cached = CachedPositions { model: extent.len, head: head.unwrap_or_default().done };
        let windows = engine.cache.groups().iter().map(|group| group.window.is_some()).collect();
        Ok(Self { extent, parts, cached, header, rows, windows })
    }

    /// Writes the sections of the pages, states and rows.
    fn write(&self, turns: &Turns, sections: &mut SectionWriter<'_>) -> Result<()> {
        let mut bytes = vec![];
        for part in &self.parts {
            turns.with_engine(|engine| engine.read_part(*part, self.cached, &mut bytes))?;
            sections.write(&bytes)?;
        }
        match &self.rows {
            Some(rows) => {
                sections.write(&rows.rows.iter().flat_map(|element| element.to_le_bytes()).collect::<Vec<_>>())
            }
            None => Ok(()),
        }
    }

    fn header(&self) -> CacheHeader {
        self.header
    }

    /// Returns a byte for each page of groups with a window, and the positions of checkpoints and
    /// of the head's kept rows.
    fn table(&self) -> Vec<u8> {
        let windows = self.extent.pages.iter().zip(&self.windows).filter(|(_, has_window)| **has_window);
        let mut table: Vec<_> = windows.flat_map(|(pages, _)| pages).map(|exists| u8::from(*exists)).collect();
        let kept = self.rows.iter().flat_map(|rows| &rows.kept);
        table.extend(self.extent.checkpoints.iter().chain(kept).flat_map(|position| (*position as u32).to_le_bytes()));
        table
    }
}

/// Returns the size of the table of a session in bytes, after the tokens.
fn table_bytes(cache: &CacheHeader, groups: &[PageGroup]) -> usize {
    let windows = groups.iter().filter(|group| group.window.is_some()).count();
    let positions = cache.checkpoints.saturating_add(cache.head.unwrap_or_default().kept);
    (windows * cache.len.div_ceil(PAGE_POSITIONS)).saturating_add(positions.saturating_mul(4))
}

/// Returns the extent of a sequence, and the numbers of the head's kept rows.
fn read_table(
    cache: &CacheHeader,
    groups: &[PageGroup],
    tokens: usize,
    table: &[u8],
) -> Result<(SequenceExtent, Vec<usize>)> {
    let &CacheHeader { len, prompt_end, .. } = cache;
    let count = len.div_ceil(PAGE_POSITIONS);
    let windows = groups.iter().filter(|group| group.window.is_some()).count();
    let (pages, positions) = table.split_at(windows * count);
    let mut pages = pages.chunks(count.max(1));
    let pages = groups.iter().map(|group| match group.window {
        Some(_) => pages.next().unwrap_or_default().iter().map(|exists| *exists != 0).collect(),
        None => vec![true; count],
    });
    let positions: Vec<_> = numbers(positions).into_iter().map(|position| position as usize).collect();
    let (checkpoints, kept) = positions.split_at(cache.checkpoints);
    let extent = SequenceExtent { len, prompt_end, pages: pages.collect(), checkpoints: checkpoints.to_vec() };
    if kept.iter().all(|number| *number < tokens) { Ok((extent, kept.to_vec())) } else { Err(damaged()) }
}

/// Reads the parts of a sequence to the cache. One thread reads sections while another one checks
/// them and writes them to the cache.
fn read_parts(
    turns: &Turns,
    parts: &[SequencePart],
    cached: CachedPositions,
    sections: &mut SectionReader<'_>,
) -> Result<()> {
    let bytes_of =
        |part: CachePart| turns.with_engine(|engine| engine.part_bytes(part)).map(|[model, head]| model + head);
    let (full, filled) = sync_channel(1);
    let (empty, free) = channel();
    (0..BUFFERS).for_each(|_| _ = empty.send(vec![]));
    let place = move || -> Result<()> {
        for (part, section) in filled {
            let section: section::Section = section;
            let mut bytes = section.check()?;
            turns.with_engine(|engine| engine.write_part(part, cached, &mut bytes))?;
            // Sending fails if the reader has ended.
            _ = empty.send(bytes);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let placing = thread::Builder::new().name("inkstone-session".into()).spawn_scoped(scope, place);
        let placing =
            placing.map_err(|e| Error::session(format!("could not be read: the system has no thread: {e}")))?;
        let read = parts.iter().try_for_each(|part| {
            // Receiving and sending fail if the other thread has ended with an error.
            let Ok(buffer) = free.recv() else { return Ok(()) };
            let section = sections.read_into(buffer, bytes_of(part.part)?)?;
            _ = full.send((*part, section));
            Ok(())
        });
        drop(full);
        placing.join().unwrap_or_else(|_| Err(Error::internal("restoring a session panicked")))?;
        read
    })
}

/// Returns little-endian numbers.
fn numbers(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks_exact(4)
        .map(|bytes| bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
        .collect()
}
