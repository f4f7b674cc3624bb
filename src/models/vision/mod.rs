//! Builds the graph of each vision encoder with its projector, from the keys and tensors of an
//! `mmproj` file.
//!
//! A token of the encoder's step is a patch of a picture, and a run is a picture. The patches come
//! block by block, a block being the square of patches that becomes one row of the text model.
//! [`VisionConfig`] says how a picture becomes patches; `vision` prepares them and runs the graph.

mod config;
mod gemma4;
mod internvl;
mod layers;
mod qwen;
mod qwen2_vl;
mod qwen3_vl;
mod siglip;

pub(super) use config::projector_name;
pub use config::{Pictures, PositionTable, Projector, VisionConfig};

use self::layers::Encoder;
use super::{
    Config,
    checkpoint::{self, EncoderCheckpoint},
    keys::Keys,
    model_builder::ModelBuilder,
    refuse_unused, unused_tensors,
};
pub use crate::image::size::Convention;
use crate::{
    Error, Result,
    gguf::{Gguf, Origin},
    graph::{Graph, RopeAxes},
    weights::Weights,
};

/// The key for the number of a text model's first layers to which image rows add elements.
pub(super) const DEEPSTACK: &str = "n_deepstack_layers";

/// The formats in which transformers stores the encoders.
pub(super) const CHECKPOINTS: [&EncoderCheckpoint; 7] = [
    &siglip::GEMMA3,
    &gemma4::CHECKPOINT,
    &siglip::IDEFICS3,
    &internvl::CHECKPOINT,
    &qwen2_vl::QWEN2,
    &qwen2_vl::QWEN25,
    &qwen3_vl::CHECKPOINT,
];

/// The rows of images that a text model takes in the place of tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImageInputs {
    /// The number of elements in a row: the text model's width, once for the embedding and once for
    /// each layer that adds further elements.
    pub row_width: usize,
    /// The implementation that is followed.
    pub convention: Convention,
}

impl ImageInputs {
    /// Checks that the text model takes rows of this width.
    ///
    /// # Errors
    /// [`Error::Argument`] with both widths.
    pub(super) fn check(&self, gguf: &Gguf, config: &Config) -> Result<()> {
        let expected = config.hidden * (1 + config.deepstack);
        if self.row_width == expected {
            return Ok(());
        }
        let what = format!(
            "makes rows of {} elements, but `{}` takes rows of {expected}: use the file that belongs to this model",
            self.row_width,
            gguf.path().display()
        );
        Err(Error::argument("vision", what))
    }

    /// Returns whether a pair is not rotated: llama.cpp leaves a pair still if no section covers
    /// it.
    pub(super) fn leaves_still(&self, axes: RopeAxes, pair: usize) -> bool {
        match axes {
            RopeAxes::Interleaved([first, ..]) => {
                let covered = axes.axis(pair) > 0 || (pair.is_multiple_of(3) && pair < 3 * usize::from(first));
                self.convention == Convention::LlamaCpp && !covered
            }
            RopeAxes::First | RopeAxes::Sections(_) => false,
        }
    }
}

/// A vision encoder's config, graph and weights.
#[derive(Clone)]
pub struct VisionModel {
    /// The sizes, and the way of pictures to patches.
    pub config: VisionConfig,
    /// The computation from patches to rows of the text model, in plain ops.
    pub graph: Graph,
    /// The tensors that the graph names.
    pub weights: Weights,
}

impl VisionModel {
    /// Reads the config of an `mmproj` file and builds the graph. `weights` are the tensors of the
    /// same file.
    ///
    /// # Errors
    /// - [`Error::Architecture`] for a file of another kind, and for a projector that is not
    ///   supported.
    /// - [`Error::Metadata`] for a key that is missing or out of its range.
    /// - [`Error::Tensor`] for a tensor that is missing, is unused, or has another shape than the
    ///   config says.
    pub fn from_gguf(gguf: &Gguf, weights: &Weights, convention: Convention) -> Result<Self> {
        Self::build(gguf, weights, convention).map_err(|error| match gguf.origin() {
            Origin::File { .. } => error,
            Origin::Directory => checkpoint::reword_encoder(gguf, error),
        })
    }

    fn build(gguf: &Gguf, weights: &Weights, convention: Convention) -> Result<Self> {
        let name = gguf.architecture()?;
        if name != "clip" {
            let name = name.to_owned();
            return Err(Error::Architecture { name, known: true, supported: "clip, of mmproj files".into() });
        }
        let config = VisionConfig::read(&Keys::vision(gguf), weights, convention)?;
        let model = Self::new(config, weights)?;
        refuse_unused(&unused_tensors(gguf, [&model.graph], |name| model.config.leaves_out(name)))?;
        Ok(model)
    }

    /// Builds the graph of an encoder of these sizes. `weights` are the tensors of an `mmproj`
    /// file, by the names that they have there.
    ///
    /// # Errors
    /// [`Error::Tensor`] for a tensor that is missing or has another shape than the config says.
    pub fn new(config: VisionConfig, weights: &Weights) -> Result<Self> {
        let weights = match config.projector {
            // The rows of this tensor are the columns of the matrix.
            Projector::Gemma3 => weights.with_transposed(siglip::GEMMA3_PROJECTION)?,
            _ => weights.clone(),
        };
        let encoder = Encoder::new(&config, ModelBuilder::new(&weights, None));
        let graph = match config.projector {
            Projector::Qwen3Vl => qwen3_vl::build(encoder),
            Projector::Qwen25Vl | Projector::Qwen2Vl => qwen2_vl::build(encoder),
            Projector::Gemma3 => siglip::build_gemma3(encoder),
            Projector::Idefics3 => siglip::build_idefics3(encoder),
            Projector::Gemma4 => gemma4::build(encoder),
            Projector::InternVl => internvl::build(encoder),
        }?;
        Ok(Self { config, graph, weights })
    }
}
