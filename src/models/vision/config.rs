//! Reads the sizes of a vision encoder, and the way in which its pictures become patches.

use super::Convention;
use crate::{
    Error, Result,
    gguf::{Array, Gguf, Value},
    graph::Activation,
    models::keys::{Keys, MAX_WIDTH},
    weights::Weights,
};

const MAX_LAYERS: usize = 1 << 10;
const MAX_HEADS: usize = 1 << 10;
const MAX_PATCH: usize = 1 << 8;
const MAX_IMAGE: usize = 1 << 14;
const MAX_BLOCK: usize = 1 << 4;
const MAX_TILES: usize = 1 << 8;
const MOST_PIXELS: usize = 1 << 28;

/// The key for the greatest number of pixels of a picture.
const MAX_PIXELS: &str = "image_max_pixels";

/// A kind of encoder and projector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projector {
    /// Qwen3-VL and Qwen3.5.
    Qwen3Vl,
    /// Qwen2.5-VL.
    Qwen25Vl,
    /// Qwen2-VL.
    Qwen2Vl,
    /// Gemma 3.
    Gemma3,
    /// Gemma 4.
    Gemma4,
    /// Idefics 3 and SmolVLM.
    Idefics3,
    /// InternVL.
    InternVl,
}

impl Projector {
    /// The projectors, with their names in GGUF files.
    pub const ALL: [(&'static str, Self); 7] = [
        ("gemma3", Self::Gemma3),
        ("gemma4v", Self::Gemma4),
        ("idefics3", Self::Idefics3),
        ("internvl", Self::InternVl),
        ("qwen2.5vl_merger", Self::Qwen25Vl),
        ("qwen2vl_merger", Self::Qwen2Vl),
        ("qwen3vl_merger", Self::Qwen3Vl),
    ];

    fn read(gguf: &Gguf) -> Result<Self> {
        let name = gguf.required("clip.projector_type", projector_name(gguf))?;
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, projector)| *projector).ok_or_else(|| {
            let supported: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
            Error::Architecture {
                name: name.into(),
                known: UNSUPPORTED.contains(&name),
                supported: supported.join(", "),
            }
        })
    }
}

/// The projectors of images and of sound that llama.cpp knows besides (`clip-impl.h`).
#[rustfmt::skip]
const UNSUPPORTED: [&str; 52] = [
    "mlp", "ldp", "ldpv2", "resampler", "adapter", "ling3vl", "step3vl", "gemma3nv", "gemma3na", "gemma4a", "gemma4uv",
    "gemma4ua", "phi4", "pixtral", "ultravox", "llama4", "qwen2a", "qwen3a", "glma", "qwen2.5o", "voxtral", "meralion",
    "musicflamingo", "lfm2", "kimivl", "paddleocr", "lightonocr", "cogvlm", "janus_pro", "dots_ocr", "dots3note_v",
    "dots3note_a", "deepseekocr", "deepseekocr2", "deepseek4v", "lfm2a", "glm4v", "glm5v", "youtuvl", "yasa2",
    "kimik25", "nemotron_v2_vl", "exaone4_5", "hunyuanvl", "minicpmv4_6", "granite_speech", "mimovl", "minimax_m3",
    "granite4_vision", "mimo_audio", "parakeet", "muse-glimmer",
];

/// Returns the name of a file's projector; `None` if the file does not say.
pub(in crate::models) fn projector_name(gguf: &Gguf) -> Result<Option<&str>> {
    let keys = ["clip.projector_type", "clip.vision.projector_type", "clip.audio.projector_type"];
    let [any, vision, audio] = keys.map(|key| gguf.str(key));
    Ok(any?.or(vision?).or(audio?))
}

/// The pictures that an image becomes before it is divided into patches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pictures {
    /// One picture, about as large as the image, whose sides are multiples of a block's.
    Dynamic {
        /// The least number of pixels.
        min_pixels: usize,
        /// The greatest number of pixels.
        max_pixels: usize,
    },
    /// One picture of as many pixels as fit in this number of blocks.
    Filling {
        /// The greatest number of blocks.
        max_blocks: usize,
    },
    /// One square picture.
    Square,
    /// Squares that cover the image, shrunk to a longest side, and the whole image in one more.
    Tiles {
        /// The longest side in pixels.
        longest: usize,
    },
    /// Squares that cover the image, as few and as fitting as possible, and the whole image in one
    /// more.
    Canvas {
        /// The least number of squares.
        min_tiles: usize,
        /// The greatest number of squares.
        max_tiles: usize,
    },
}

/// The table of learned positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionTable {
    /// No table.
    None,
    /// A row for each place of a square of this side. A picture of another size takes places
    /// between the rows.
    Square {
        /// The number of rows, and of columns.
        side: usize,
    },
    /// A row for each column of patches, up to this number, then a row for each row.
    Axes {
        /// The number of columns, and of rows.
        len: usize,
    },
    /// A row for the class token, then a row for each place of a square.
    WithClass {
        /// The number of rows, and of columns.
        side: usize,
    },
}

/// The sizes of a vision encoder, and the way in which its pictures become patches.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionConfig {
    /// The kind of encoder.
    pub projector: Projector,
    /// The implementation that is followed.
    pub convention: Convention,
    /// The width of the residual stream.
    pub hidden: usize,
    /// The width between the two halves of the feed-forward network.
    pub ffn: usize,
    /// The number of layers.
    pub layers: usize,
    /// The number of heads.
    pub heads: usize,
    /// The number that norms add to the variance.
    pub eps: f32,
    /// The function of the feed-forward network.
    pub activation: Activation,
    /// The width of the text model.
    pub text_width: usize,
    /// The number of elements in a row: of the text model, and of each layer that adds elements.
    pub row_width: usize,
    /// The side of a patch in pixels.
    pub patch: usize,
    /// The side of a block in patches; a block becomes one row of the text model.
    pub block: usize,
    /// The side in pixels of a square picture.
    pub image_size: usize,
    /// The mean of each channel, of values from 0 to 1.
    pub mean: [f32; 3],
    /// The standard deviation of each channel.
    pub std: [f32; 3],
    /// The pictures that an image becomes.
    pub pictures: Pictures,
    /// The table of learned positions.
    pub positions: PositionTable,
    /// The base of the patches' rotary frequencies, if they are rotated.
    pub rope_base: Option<f32>,
    /// The side of attention windows in blocks, and the interval of layers with full attention.
    pub windows: Option<(usize, usize)>,
    /// The layers whose result is projected for a layer of the text model.
    pub deepstack: Vec<usize>,
}

impl VisionConfig {
    pub(super) fn read(keys: &Keys, weights: &Weights, convention: Convention) -> Result<Self> {
        let projector = Projector::read(keys.gguf)?;
        let hidden = keys.size("embedding_length", MAX_WIDTH >> 8)?;
        let heads = keys.size("attention.head_count", MAX_HEADS)?;
        if !hidden.is_multiple_of(4 * heads) {
            let what = format!("is {heads}, which does not divide a width of {hidden} into heads of whole quarters");
            return Err(keys.error("attention.head_count", what));
        }
        let layers = keys.size("block_count", MAX_LAYERS)?;
        let text_width = keys.size("projection_dim", MAX_WIDTH)?;
        let deepstack: Vec<_> =
            (0..layers).filter(|layer| weights.rows(&format!("v.deepstack.{layer}.fc1.weight")).is_some()).collect();
        let (patch, image_size) = (keys.size("patch_size", MAX_PATCH)?, keys.size("image_size", MAX_IMAGE)?);
        let mut config = Self {
            projector,
            convention,
            hidden,
            ffn: keys.size("feed_forward_length", MAX_WIDTH)?,
            layers,
            heads,
            eps: keys.float("attention.layer_norm_epsilon", 0.0..1.0, None)?,
            activation: activation(keys.gguf)?,
            text_width,
            row_width: text_width * (1 + deepstack.len()),
            patch,
            block: block(keys, projector)?,
            image_size,
            mean: channels(keys, "image_mean", f32::MIN)?,
            std: channels(keys, "image_std", f32::MIN_POSITIVE)?,
            pictures: Pictures::Square,
            positions: PositionTable::None,
            rope_base: None,
            windows: None,
            deepstack,
        };
        if image_size < patch * config.block {
            let what = format!("is {image_size}, but a block has {} pixels a side", patch * config.block);
            return Err(keys.error("image_size", what));
        }
        config.pictures = config.read_pictures(keys)?;
        config.positions = config.read_positions(weights)?;
        config.read_projector(keys)?;
        Ok(config)
    }

    fn read_pictures(&self, keys: &Keys) -> Result<Pictures> {
        let unit = (self.patch * self.block).pow(2);
        let in_blocks = |[min, max]: [usize; 2]| Pictures::Dynamic { min_pixels: min * unit, max_pixels: max * unit };
        Ok(match (self.projector, self.convention) {
            (Projector::Qwen3Vl | Projector::Qwen25Vl | Projector::Qwen2Vl, Convention::LlamaCpp) => {
                in_blocks([8, 4096])
            }
            // Without keys, the limits of the published `preprocessor_config.json`.
            (Projector::Qwen3Vl, Convention::Transformers) => read_pixels(keys, [65_536, 16_777_216])?,
            (Projector::Qwen25Vl | Projector::Qwen2Vl, Convention::Transformers) => {
                read_pixels(keys, [3_136, 12_845_056])?
            }
            (Projector::Gemma3, _) => Pictures::Square,
            (Projector::Gemma4, Convention::Transformers) => {
                let max_pixels = keys.optional_size(MAX_PIXELS, MOST_PIXELS)?.unwrap_or(280 * unit);
                Pictures::Filling { max_blocks: (max_pixels / unit).max(1) }
            }
            (Projector::Gemma4, Convention::LlamaCpp) => Pictures::Filling { max_blocks: 1120 },
            (Projector::Idefics3, _) => Pictures::Tiles { longest: keys.size("preproc_image_size", MAX_IMAGE)? },
            (Projector::InternVl, _) => {
                let min_tiles = keys.optional_size("preproc_min_tiles", MAX_TILES)?.unwrap_or(1);
                let max_tiles = keys.optional_size("preproc_max_tiles", MAX_TILES)?.unwrap_or(12);
                if max_tiles < min_tiles {
                    let what = format!("is {max_tiles}, but the least number of tiles is {min_tiles}");
                    return Err(keys.error("preproc_max_tiles", what));
                }
                Pictures::Canvas { min_tiles, max_tiles }
            }
        })
    }

    fn read_positions(&self, weights: &Weights) -> Result<PositionTable> {
        const NAME: &str = "v.position_embd.weight";
        let side = self.image_size / self.patch;
        let rows = weights.rows(NAME);
        let error = |expected: String| {
            let rows = rows.unwrap_or(0);
            Error::tensor(NAME, format!("has {rows} rows, but {expected} are expected"))
        };
        match self.projector {
            Projector::Qwen25Vl | Projector::Qwen2Vl => Ok(PositionTable::None),
            Projector::Gemma4 => match weights.shape(NAME) {
                Some(&[2, len, _]) => Ok(PositionTable::Axes { len }),
                _ => Err(error("a table for columns and a table for rows".into())),
            },
            Projector::InternVl if rows == Some(side * side + 1) => Ok(PositionTable::WithClass { side }),
            Projector::InternVl => Err(error(format!("one and {side} times {side}"))),
            Projector::Qwen3Vl | Projector::Gemma3 | Projector::Idefics3 if rows == Some(side * side) => {
                Ok(PositionTable::Square { side })
            }
            Projector::Qwen3Vl | Projector::Gemma3 | Projector::Idefics3 => Err(error(format!("{side} times {side}"))),
        }
    }

    /// Reads the keys of one projector alone.
    fn read_projector(&mut self, keys: &Keys) -> Result<()> {
        match self.projector {
            Projector::Qwen3Vl | Projector::Qwen2Vl => self.rope_base = Some(10_000.0),
            Projector::Qwen25Vl => {
                self.rope_base = Some(10_000.0);
                let interval = keys.size("n_wa_pattern", MAX_LAYERS)?;
                let window = match self.convention {
                    Convention::Transformers => keys.optional_size("window_size", MAX_IMAGE)?.unwrap_or(112),
                    Convention::LlamaCpp => 112,
                };
                let side = window / self.patch / self.block;
                if side == 0 {
                    return Err(keys.error("window_size", format!("is {window}, which is less than a block")));
                }
                self.windows = Some((side, interval));
            }
            Projector::Gemma4 => {
                // The encoder reads 2x - 1 for a pixel x.
                self.mean = std::array::from_fn(|channel| self.mean[channel] + self.std[channel] / 2.0);
                self.std = self.std.map(|std| std / 2.0);
                self.rope_base = Some(100.0);
                self.activation = match self.convention {
                    Convention::Transformers => Activation::Gelu,
                    Convention::LlamaCpp => Activation::QuickGelu,
                };
            }
            Projector::InternVl if self.convention == Convention::Transformers => {
                self.activation = Activation::GeluErf;
            }
            Projector::Gemma3 | Projector::Idefics3 | Projector::InternVl => {}
        }
        Ok(())
    }

    /// Returns the function between the two matrices of a projector.
    pub(super) fn projector_activation(&self) -> Activation {
        match self.convention {
            Convention::Transformers => Activation::GeluErf,
            Convention::LlamaCpp => Activation::Gelu,
        }
    }

    /// Returns the number of elements in a head.
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    /// Returns whether layer `index` attends within windows.
    pub(super) fn has_windows(&self, index: usize) -> bool {
        self.windows.is_some_and(|(_, interval)| !(index + 1).is_multiple_of(interval))
    }

    /// Returns whether the file may have a tensor that the graph does not read: files may also hold
    /// an audio encoder.
    pub(super) fn leaves_out(&self, name: &str) -> bool {
        name.starts_with("a.") || name.starts_with("mm.a.")
    }
}

/// Reads the limits of a picture, or returns the `defaults` if the file has none.
fn read_pixels(keys: &Keys, defaults: [usize; 2]) -> Result<Pictures> {
    let min_pixels = keys.optional_size("image_min_pixels", MOST_PIXELS)?.unwrap_or(defaults[0]);
    let max_pixels = keys.optional_size(MAX_PIXELS, MOST_PIXELS)?.unwrap_or(defaults[1]);
    if max_pixels < min_pixels {
        let what = format!("is {max_pixels}, but the least number of pixels is {min_pixels}");
        return Err(keys.error(MAX_PIXELS, what));
    }
    Ok(Pictures::Dynamic { min_pixels, max_pixels })
}

/// Reads the function of the feed-forward networks.
fn activation(gguf: &Gguf) -> Result<Activation> {
    let [gelu, silu] = ["clip.use_gelu", "clip.use_silu"].map(|key| gguf.bool(key));
    Ok(match (gelu?, silu?) {
        (Some(true), _) => Activation::Gelu,
        (_, Some(true)) => Activation::Silu,
        _ => Activation::QuickGelu,
    })
}

/// Reads the side of a block in patches.
fn block(keys: &Keys, projector: Projector) -> Result<usize> {
    let (key, default) = match projector {
        Projector::Qwen3Vl | Projector::Qwen25Vl | Projector::Qwen2Vl => ("spatial_merge_size", Some(2)),
        Projector::Gemma3 => ("projector.scale_factor", Some(4)),
        Projector::Gemma4 => ("projector.scale_factor", Some(3)),
        Projector::Idefics3 | Projector::InternVl => ("projector.scale_factor", None),
    };
    let block = keys.optional_size(key, MAX_BLOCK)?.or(default);
    keys.required(key, block)
}

/// Reads a number above `least` for each channel.
fn channels(keys: &Keys, key: &str, least: f32) -> Result<[f32; 3]> {
    let numbers = match keys.get(key) {
        Some(Value::Array(Array::F32(numbers))) => <[f32; 3]>::try_from(numbers.as_slice()).ok(),
        Some(Value::Array(Array::I32(numbers))) => {
            <[i32; 3]>::try_from(numbers.as_slice()).ok().map(|numbers| numbers.map(|number| number as f32))
        }
        _ => None,
    };
    let valid = numbers.filter(|numbers| numbers.iter().all(|number| number.is_finite() && *number >= least));
    valid.ok_or_else(|| keys.error(key, "is missing, or is not an array of a number for each of three channels"))
}
