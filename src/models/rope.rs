//! Computes the frequencies of rotary position embedding, and how they are stretched over longer
//! contexts.

use super::{
    keys::{Keys, MAX_CONTEXT},
    vision::ImageInputs,
};
use crate::{Error, Result, graph::RopeAxes};

/// LongRoPE's divisors of the frequencies for sequences within the original context.
pub(super) const SHORT: &str = "rope_factors_short.weight";
/// LongRoPE's divisors of the frequencies for longer sequences.
pub(super) const LONG: &str = "rope_factors_long.weight";

/// YaRN's constants that a file may set, and the value of each in its paper. Some families' files
/// may have other values of the first [`YARN_READ`].
const YARN: [(&str, u64); 5] = [
    ("rope.scaling.yarn_beta_fast", 32),
    ("rope.scaling.yarn_beta_slow", 1),
    ("rope.scaling.yarn_log_multiplier", 0),
    ("rope.scaling.yarn_ext_factor", 1),
    ("rope.scaling.yarn_attn_factor", 1),
];
const YARN_READ: usize = 3;

/// The constants of rotary position embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeConfig {
    /// The base of the frequencies: pair `i` turns by `base^(-2i / dim)` radians per position.
    pub base: f32,
    /// The number of elements of a head that are rotated, even and at most `head_dim`.
    pub dim: usize,
    /// The stretching of the frequencies over a longer context.
    pub scaling: RopeScaling,
    /// The name of the tensor that divides the frequencies pair by pair, if the file has it.
    pub divisors: Option<&'static str>,
    /// The factor of rotated queries and keys, in addition to YaRN's own.
    pub attention_factor: f32,
    /// The positions that turn the pairs, for models that take images.
    pub axes: RopeAxes,
}

/// The stretching of rotary frequencies over a longer context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// No stretching.
    None,
    /// Division of all frequencies by `factor`.
    Linear {
        /// A number above 0, in practice at least 1.
        factor: f32,
    },
    /// YaRN ([Peng et al. 2023](https://arxiv.org/abs/2309.00071)): low frequencies are divided by
    /// `factor`, high ones are kept, and frequencies between are blended. Rotated queries and keys
    /// are multiplied by `1 + 0.1 ln(factor)`.
    Yarn {
        /// A number of at least 1.
        factor: f32,
        /// The context length before stretching, in positions.
        original_context: usize,
        /// The turns within the original context from which on a frequency is kept, and those up to
        /// which it is divided.
        betas: [f32; 2],
        /// The factor `m` that divides the attention factor by `1 + 0.1 m ln(factor)`.
        log_multiplier: f32,
    },
}

impl RopeConfig {
    /// Reads the rotary embedding of all layers. With `has_yarn_keys` a file may set YaRN's
    /// constants.
    pub(super) fn read(keys: &Keys, head_dim: usize, has_yarn_keys: bool) -> Result<Self> {
        let base = keys.float("rope.freq_base", f32::MIN_POSITIVE..f32::MAX, Some(10_000.0))?;
        let dim = Self::read_dim(keys, "rope.dimension_count", head_dim)?;
        let scaling = RopeScaling::read(keys, has_yarn_keys)?;
        let attention_factor = keys.factor("rope.scaling.attn_factor", None)?.unwrap_or(1.0);
        Ok(Self { base, dim, scaling, divisors: None, attention_factor, axes: RopeAxes::First })
    }

    /// Reads the rotary embedding of layers with a sliding window, which is never stretched. The
    /// base is `rope.freq_base_swa`, or `base` if the key is absent.
    pub(super) fn read_sliding(keys: &Keys, head_dim: usize, base: f32) -> Result<Self> {
        let base = keys.float("rope.freq_base_swa", f32::MIN_POSITIVE..f32::MAX, Some(base))?;
        let dim = Self::read_dim(keys, "rope.dimension_count_swa", head_dim)?;
        Ok(Self { base, dim, scaling: RopeScaling::None, divisors: None, attention_factor: 1.0, axes: RopeAxes::First })
    }

    /// Reads the number of pairs that each position turns, `rope.dimension_sections`.
    pub(super) fn read_sections(keys: &Keys, dim: usize) -> Result<[u16; 3]> {
        const SECTIONS: &str = "rope.dimension_sections";
        let sections = keys.required(SECTIONS, keys.sizes(SECTIONS)?)?;
        match sections[..] {
            [first, second, third] | [first, second, third, 0] if first + second + third == dim / 2 => {
                Ok([first, second, third].map(|pairs| pairs as u16))
            }
            _ => {
                let what = format!(
                    "is {sections:?}, but must have three sections of {} pairs of elements in all, and no fourth",
                    dim / 2
                );
                Err(keys.error(SECTIONS, what))
            }
        }
    }

    fn read_dim(keys: &Keys, key: &str, head_dim: usize) -> Result<usize> {
        let dim = keys.optional_size(key, head_dim)?.unwrap_or(head_dim);
        if dim.is_multiple_of(2) { Ok(dim) } else { Err(keys.error(key, format!("is {dim}, but must be even"))) }
    }

    /// Returns the frequency of each pair, in radians per position.
    pub(super) fn frequencies(&self, images: Option<ImageInputs>) -> Vec<f32> {
        let dim = self.dim as f64;
        let still = |pair| images.is_some_and(|images| images.leaves_still(self.axes, pair));
        let turning = |i| if still(i) { 0.0 } else { f64::from(self.base).powf(-2.0 * i as f64 / dim) };
        let plain = (0..self.dim / 2).map(turning);
        match self.scaling {
            RopeScaling::None => plain.map(|f| f as f32).collect(),
            RopeScaling::Linear { factor } => plain.map(|f| (f / f64::from(factor)) as f32).collect(),
            RopeScaling::Yarn { factor, original_context, betas, .. } => {
                let ramp = self.yarn_ramp(original_context as f64, betas.map(f64::from));
                let stretched = |(i, f): (usize, f64)| f * (1.0 - ramp(i) + ramp(i) / f64::from(factor));
                plain.enumerate().map(|pair| stretched(pair) as f32).collect()
            }
        }
    }

    /// Returns YaRN's blend for each pair: 0 (not divided) if the pair turns `fast` times or more
    /// in the original context, 1 (divided) if it turns `slow` times or less.
    fn yarn_ramp(&self, original_context: f64, [fast, slow]: [f64; 2]) -> impl Fn(usize) -> f64 {
        let dim = self.dim as f64;
        let pair_turning = |turns: f64| {
            dim * (original_context / (turns * std::f64::consts::TAU)).ln() / (2.0 * f64::from(self.base).ln())
        };
        let low = pair_turning(fast).floor().max(0.0);
        let high = pair_turning(slow).ceil().min(dim - 1.0);
        move |i| ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0)
    }

    /// Returns the factor of the product of a rotated query and a rotated key: the square of the
    /// attention factors.
    pub(super) fn score_factor(&self) -> f32 {
        let yarn_factor = match self.scaling {
            RopeScaling::None | RopeScaling::Linear { .. } => 1.0,
            RopeScaling::Yarn { factor, log_multiplier, .. } => {
                let growth = 0.1 * f64::from(factor).ln();
                (1.0 + growth) / (1.0 + f64::from(log_multiplier) * growth)
            }
        };
        (yarn_factor * f64::from(self.attention_factor)).powi(2) as f32
    }
}

impl RopeScaling {
    fn read(keys: &Keys, has_yarn_keys: bool) -> Result<Self> {
        const TYPE: &str = "rope.scaling.type";
        const FACTOR: &str = "rope.scaling.factor";
        // The key of files from before `rope.scaling.*`.
        const OLD_FACTOR: &str = "rope.scale_linear";
        match keys.str(TYPE)? {
            Some("longrope") if keys.gguf.tensor(LONG).is_some() => keys.expect(FACTOR, 1).map(|()| Self::None),
            Some("none") => Ok(Self::None),
            Some("linear") | None => {
                let key = if keys.has(FACTOR) { FACTOR } else { OLD_FACTOR };
                match keys.float(key, 0.0..f32::MAX, Some(1.0))? {
                    // As in llama.cpp, 0 means that there is no scaling.
                    0.0 | 1.0 => Ok(Self::None),
                    factor => Ok(Self::Linear { factor }),
                }
            }
            Some("yarn") => {
                for (key, supported) in YARN.into_iter().skip(if has_yarn_keys { YARN_READ } else { 0 }) {
                    keys.expect(key, supported)?;
                }
                let positive = |key, default| Ok::<_, Error>(keys.factor(key, Some(default))?.unwrap_or(default));
                let original = keys.optional_size("rope.scaling.original_context_length", MAX_CONTEXT)?;
                Ok(Self::Yarn {
                    factor: keys.float(FACTOR, 1.0..f32::MAX, None)?,
                    original_context: original.map_or_else(|| keys.size("context_length", MAX_CONTEXT), Ok)?,
                    betas: [positive(YARN[0].0, 32.0)?, positive(YARN[1].0, 1.0)?],
                    log_multiplier: keys.factor(YARN[2].0, None)?.unwrap_or(0.0),
                })
            }
            Some("longrope") => {
                Err(keys.error(TYPE, format!("is `longrope`, but the tensor `{LONG}` is missing from the file")))
            }
            Some(other) => {
                Err(keys.error(TYPE, format!("is `{other}`, but only none, linear, yarn and longrope are supported")))
            }
        }
    }
}
