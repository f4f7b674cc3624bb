//! Runs a vision encoder on pictures.

use super::{
    patches::{Patches, Picture},
    plan::{BATCH_PATCHES, EncoderPlan},
    shares::for_each_share,
};
use crate::{
    Error, Result,
    backend::{Backend, Executable, InputRows, LoadProgress, OpTime, Run, Step, StepProgress, Taps, Usage},
    kv_cache::{KvCache, SequenceId},
    models::vision::{VisionConfig, VisionModel},
};

/// A vision encoder that is compiled for a device.
pub struct VisionEncoder {
    config: VisionConfig,
    executable: Box<dyn Executable>,
    /// The largest number of patches of a picture.
    max_patches: usize,
    /// The keys and values of the layer that is computed.
    cache: KvCache,
}

/// A picture as rows of the text model.
#[derive(Clone, Debug)]
pub struct EncodedPicture {
    /// The number of rows below and beside each other in the picture.
    pub grid: [usize; 2],
    /// `[grid rows * grid columns, row_width]`, row by row of the picture.
    pub rows: Vec<f32>,
}

impl VisionEncoder {
    /// Compiles an encoder for pictures of up to `max_patches` patches.
    ///
    /// # Errors
    /// As [`EncoderPlan::new`] and [`EncoderPlan::compile`].
    pub fn new(model: VisionModel, backend: &dyn Backend, max_patches: usize) -> Result<Self> {
        EncoderPlan::new(model, backend, max_patches)?.compile(backend, &LoadProgress::unobserved())
    }

    pub(super) fn from_parts(
        config: VisionConfig,
        executable: Box<dyn Executable>,
        max_patches: usize,
        cache: KvCache,
    ) -> Self {
        Self { config, executable, max_patches, cache }
    }

    /// Returns the sizes of the encoder.
    pub fn config(&self) -> &VisionConfig {
        &self.config
    }

    /// Returns counts of the last step, and the device memory in use.
    pub fn usage(&self) -> Usage {
        self.executable.usage()
    }

    /// Switches the measurement of op times on or off.
    ///
    /// # Errors
    /// As [`Executable::set_profiling`].
    pub fn set_profiling(&mut self, on: bool) -> Result<()> {
        self.executable.set_profiling(on)
    }

    /// Takes the op times of the steps since the last call, as [`Executable::take_profile`] does.
    pub fn take_profile(&mut self) -> Vec<OpTime> {
        self.executable.take_profile()
    }

    /// Encodes pictures, and calls `progress` with the number of finished rows, several times for
    /// each picture on a CPU. Returns `None` if it returns false.
    ///
    /// # Errors
    /// [`Error::Image`] for a picture of more patches than the encoder is compiled for. Another
    /// error if the device fails.
    pub fn encode(
        &mut self,
        pictures: &[Picture<'_>],
        mut progress: impl FnMut(usize) -> bool,
    ) -> Result<Option<Vec<EncodedPicture>>> {
        let mut encoded = Vec::with_capacity(pictures.len());
        let mut finished = 0;
        while encoded.len() < pictures.len() {
            let mut batch: Vec<Patches> = vec![];
            for picture in &pictures[encoded.len()..] {
                let patches = Patches::new(&self.config, picture)?;
                self.check_size(&patches)?;
                let sum: usize = batch.iter().map(|patches| patches.len).sum();
                if !batch.is_empty() && sum + patches.len > BATCH_PATCHES {
                    break;
                }
                batch.push(patches);
            }
            let rows: usize = batch.iter().map(|patches| patches.blocks.len()).sum();
            let step = self.step(&mut batch, &mut |done, tasks| progress(finished + rows * done / tasks))?;
            let Some(step) = step else { return Ok(None) };
            encoded.extend(step);
            finished += rows;
        }
        Ok(Some(encoded))
    }

    fn check_size(&self, patches: &Patches) -> Result<()> {
        if patches.len <= self.max_patches {
            return Ok(());
        }
        let rows = patches.len / self.config.block.pow(2);
        let what = format!(
            "takes {rows} tokens, but images may have at most {}: shrink the image, or load the model with a larger \
             `context_length`",
            self.max_patches / self.config.block.pow(2)
        );
        Err(Error::Image { path: None, what })
    }

    /// Encodes the pictures of one step, unless `progress` returns false.
    fn step(&mut self, batch: &mut [Patches], progress: &mut StepProgress<'_>) -> Result<Option<Vec<EncodedPicture>>> {
        let sequences: Vec<_> = batch.iter().map(|_| self.cache.open()).collect();
        let result = self.run(batch, &sequences, progress);
        for sequence in sequences {
            self.cache.close(sequence)?;
        }
        result
    }

    fn run(
        &mut self,
        batch: &mut [Patches],
        sequences: &[SequenceId],
        progress: &mut StepProgress<'_>,
    ) -> Result<Option<Vec<EncodedPicture>>> {
        let input = StepInput::new(&self.config, batch);
        let batch = &*batch;
        for (patches, sequence) in batch.iter().zip(sequences) {
            self.cache.extend(*sequence, patches.len)?;
        }
        let run = |(patches, sequence): (&'_ Patches, &SequenceId)| {
            Ok(Run { len: patches.len, pages: self.cache.pages(*sequence)?, ..Run::default() })
        };
        let mut runs = batch.iter().zip(sequences).map(run).collect::<Result<Vec<_>>>()?;
        for (run, patches) in runs.iter_mut().zip(batch) {
            (run.rotary, run.spans) = (&patches.rotary, &patches.windows);
        }
        let step = Step {
            tokens: &vec![0; input.len],
            runs: &runs,
            outputs: &input.outputs,
            rows: InputRows { tokens: &input.tokens, elements: &input.pixels },
            taps: &input.taps,
            ..Step::default()
        };
        let width = self.config.row_width;
        let mut encoded = vec![];
        let mut read = |mut rows: &[f32]| {
            for patches in batch {
                let (own, rest) = rows.split_at(patches.blocks.len() * width);
                encoded.push(EncodedPicture { grid: patches.grid, rows: in_order(own, &patches.blocks) });
                rows = rest;
            }
        };
        let finished = self.executable.run_with_progress(&step, progress, &mut read)?;
        Ok(finished.then_some(encoded))
    }
}

/// Returns the rows of a picture's blocks, which `rows` has in the order of `blocks`, row by row of
/// the picture.
fn in_order(rows: &[f32], blocks: &[usize]) -> Vec<f32> {
    /// Rows that a thread copies at a time. Most of the time of a copy goes into memory that the
    /// system has to provide.
    const SHARE: usize = 64;
    let width = rows.len() / blocks.len();
    let mut row_of = vec![0; blocks.len()];
    for (row, block) in blocks.iter().enumerate() {
        row_of[*block] = row;
    }
    let mut ordered = vec![0.0; rows.len()];
    for_each_share(row_of.chunks(SHARE).zip(ordered.chunks_mut(SHARE * width)), |(row_of, ordered)| {
        for (row, to) in row_of.iter().zip(ordered.chunks_exact_mut(width)) {
            to.copy_from_slice(&rows[row * width..(row + 1) * width]);
        }
    });
    ordered
}

/// The patches of several pictures, one after the other.
struct StepInput {
    len: usize,
    tokens: Vec<usize>,
    pixels: Vec<f32>,
    taps: Vec<Vec<Taps>>,
    /// The first patch of each block.
    outputs: Vec<usize>,
}

impl StepInput {
    /// Takes the pixels and the taps of the pictures.
    fn new(config: &VisionConfig, batch: &mut [Patches]) -> Self {
        let patches_in_block = config.block.pow(2);
        let mut input = Self { len: 0, tokens: vec![], pixels: vec![], taps: vec![], outputs: vec![] };
        for patches in batch {
            let count = patches.blocks.len() * patches_in_block;
            input.tokens.extend(input.len..input.len + count);
            input.outputs.extend((input.len..input.len + count).step_by(patches_in_block));
            append(&mut input.pixels, &mut patches.pixels);
            input.taps.resize(patches.taps.len(), vec![]);
            for (all, own) in input.taps.iter_mut().zip(&mut patches.taps) {
                append(all, own);
            }
            input.len += patches.len;
        }
        input
    }
}

/// Moves all of `own` to the end of `all`, without a copy if that is empty.
fn append<T>(all: &mut Vec<T>, own: &mut Vec<T>) {
    if all.is_empty() { std::mem::swap(all, own) } else { all.append(own) }
}
