//! How rotary embedding encodes positions: the frequency of each pair, and what stretches them over longer contexts.

use super::keys::{Keys, MAX_CONTEXT};
use crate::Result;

/// What LongRoPE divides frequencies by within the first context, and beyond it.
pub(super) const SHORT: &str = "rope_factors_short.weight";
pub(super) const LONG: &str = "rope_factors_long.weight";

/// YaRN's other constants, and what they are here.
const YARN: [(&str, u64); 5] = [
    ("rope.scaling.yarn_beta_fast", 32),
    ("rope.scaling.yarn_beta_slow", 1),
    ("rope.scaling.yarn_ext_factor", 1),
    ("rope.scaling.yarn_attn_factor", 1),
    ("rope.scaling.yarn_log_multiplier", 0),
];

/// Rotary embedding's constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeConfig {
    /// Pair `i` turns by `base^(-2i / dim)` radians a position.
    pub base: f32,
    /// Elements of a head that are rotated: an even number, at most `head_dim`.
    pub dim: usize,
    /// What is done to the frequencies so that more positions fit.
    pub scaling: RopeScaling,
    /// The tensor that divides the frequencies pair by pair, where the file has it.
    pub divisors: Option<&'static str>,
    /// What rotated queries and keys grow by, besides YaRN's growth.
    pub attention_factor: f32,
}

/// How the frequencies of rotary embedding are stretched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All are divided by `factor`.
    Linear {
        /// At least 1 in practice; above 0.
        factor: f32,
    },
    /// YaRN ([Peng et al. 2023](https://arxiv.org/abs/2309.00071)): slow pairs are divided by `factor`, fast ones are
    /// left, those between are blended, and queries and keys grow by `1 + 0.1 ln(factor)`.
    Yarn {
        /// At least 1.
        factor: f32,
        /// The context length before stretching.
        original_context: usize,
    },
}

impl RopeConfig {
    pub(super) fn read(keys: &Keys, head_dim: usize) -> Result<Self> {
        let base = keys.float("rope.freq_base", f32::MIN_POSITIVE..f32::MAX, Some(10_000.0))?;
        let dim = Self::read_dim(keys, "rope.dimension_count", head_dim)?;
        let scaling = RopeScaling::read(keys)?;
        if matches!(scaling, RopeScaling::Yarn { .. }) && dim != head_dim {
            let what = format!("is yarn with {dim} of a head's {head_dim} elements rotated, which is not built yet");
            return Err(keys.error("rope.scaling.type", what));
        }
        let attention_factor = keys.factor("rope.scaling.attn_factor", None)?.unwrap_or(1.0);
        Ok(Self { base, dim, scaling, divisors: None, attention_factor })
    }

    /// That of heads of `head_dim` elements that see a window: turned by `rope.freq_base_swa`, or by `base` where the file
    /// does not say, and not scaled.
    pub(super) fn read_sliding(keys: &Keys, head_dim: usize, base: f32) -> Result<Self> {
        let base = keys.float("rope.freq_base_swa", f32::MIN_POSITIVE..f32::MAX, Some(base))?;
        let dim = Self::read_dim(keys, "rope.dimension_count_swa", head_dim)?;
        Ok(Self { base, dim, scaling: RopeScaling::None, divisors: None, attention_factor: 1.0 })
    }

    fn read_dim(keys: &Keys, key: &str, head_dim: usize) -> Result<usize> {
        match keys.optional_size(key, head_dim)?.unwrap_or(head_dim) {
            dim if dim.is_multiple_of(2) => Ok(dim),
            dim => Err(keys.error(key, format!("is {dim}, but must be even"))),
        }
    }

    /// The radians that each pair turns a position.
    pub(super) fn frequencies(&self) -> Vec<f32> {
        let n = self.dim as f64;
        let plain = (0..self.dim / 2).map(|i| f64::from(self.base).powf(-2.0 * i as f64 / n));
        match self.scaling {
            RopeScaling::None => plain.map(|f| f as f32).collect(),
            RopeScaling::Linear { factor } => plain.map(|f| (f / f64::from(factor)) as f32).collect(),
            RopeScaling::Yarn { factor, original_context } => {
                let ramp = self.yarn_ramp(original_context as f64);
                let stretched = |(i, f): (usize, f64)| f * (1.0 - ramp(i) + ramp(i) / f64::from(factor));
                plain.enumerate().map(|pair| stretched(pair) as f32).collect()
            }
        }
    }

    /// How much of YaRN's division each pair takes: none where it turns 32 times or more in the original context, all
    /// where it turns once or less.
    fn yarn_ramp(&self, original_context: f64) -> impl Fn(usize) -> f64 {
        let n = self.dim as f64;
        let pair_turning = |turns: f64| {
            n * (original_context / (turns * std::f64::consts::TAU)).ln() / (2.0 * f64::from(self.base).ln())
        };
        let low = pair_turning(32.0).floor().max(0.0);
        let high = pair_turning(1.0).ceil().min(n - 1.0);
        move |i| ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0)
    }

    /// What the product of a rotated query and a rotated key grows by.
    pub(super) fn growth(&self) -> f32 {
        let of_each = match self.scaling {
            RopeScaling::None | RopeScaling::Linear { .. } => 1.0,
            RopeScaling::Yarn { factor, .. } => 1.0 + 0.1 * f64::from(factor).ln(),
        };
        (of_each * f64::from(self.attention_factor)).powi(2) as f32
    }
}

impl RopeScaling {
    fn read(keys: &Keys) -> Result<Self> {
        const TYPE: &str = "rope.scaling.type";
        const FACTOR: &str = "rope.scaling.factor";
        // The key that files had before `rope.scaling.*` came.
        const OLD_FACTOR: &str = "rope.scale_linear";
        match keys.str(TYPE)? {
            Some("longrope") if keys.gguf.tensor(LONG).is_some() => keys.expect(FACTOR, 1).map(|()| Self::None),
            Some("none") => Ok(Self::None),
            Some("linear") | None => {
                let key = if keys.has(FACTOR) { FACTOR } else { OLD_FACTOR };
                match keys.float(key, 0.0..f32::MAX, Some(1.0))? {
                    // As in llama.cpp, 0 says that there is none.
                    0.0 | 1.0 => Ok(Self::None),
                    factor => Ok(Self::Linear { factor }),
                }
            }
            Some("yarn") => {
                for (key, built) in YARN {
                    keys.expect(key, built)?;
                }
                let original = keys.optional_size("rope.scaling.original_context_length", MAX_CONTEXT)?;
                Ok(Self::Yarn {
                    factor: keys.float(FACTOR, 1.0..f32::MAX, None)?,
                    original_context: original.map_or_else(|| keys.size("context_length", MAX_CONTEXT), Ok)?,
                })
            }
            Some(other) => {
                Err(keys.error(TYPE, format!("is `{other}`, which is not built yet: none, linear and yarn are")))
            }
        }
    }
}
