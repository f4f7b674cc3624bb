//! Translates the settings of rotary position embedding: `rope_theta` with `rope_scaling`, or
//! `rope_parameters` as of transformers 5.

use std::f64::consts::TAU;

use serde_json::{Map as Object, Value as Json};

use super::{Checkpoint, KeyValues, config::Settings};
use crate::{
    DType, Error, Result,
    gguf::{Array, TensorInfo, Value},
};

/// The largest head that is accepted, in elements.
const MAX_HEAD_DIM: u32 = 1 << 12;

/// The setting for the rotated part of a head.
const PARTIAL: &str = "partial_rotary_factor";

/// The setting for the factor of rotated queries and keys.
const ATTENTION_FACTOR: &str = "attention_factor";

/// The GGUF key for the numbers of pairs that an image's position, rows and columns turn.
const SECTIONS: &str = "rope.dimension_sections";

/// The names of the objects with the parameters of one kind of layer.
const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";

/// The GGUF keys and tensors of rotary embedding.
pub(super) struct Rope {
    /// The keys, without the architecture's name.
    pub keys: KeyValues,
    /// The divisors of the frequencies: one row, or one for short contexts and one for long ones.
    pub divisors: Vec<TensorInfo>,
}

/// Reads the settings of rotary embedding, with the family's defaults. `key_values` are the other
/// GGUF keys of the checkpoint.
pub(super) fn read(settings: &Settings, checkpoint: &Checkpoint, key_values: &[(&'static str, Value)]) -> Result<Rope> {
    let mut parameters = RopeParameters::new(settings)?;
    let head_dim = || head_dim(settings, key_values);
    let mut keys = vec![];
    if let Some(default) = checkpoint.sliding_rope_theta {
        let theta = parameters.sliding_theta()?.map_or(default, |theta| theta as f32);
        keys.push(("rope.freq_base_swa", Value::F32(theta)));
        parameters = parameters.part(FULL)?.unwrap_or(parameters);
    }
    if let Some(kind) = [FULL, SLIDING].into_iter().find(|kind| parameters.own(kind).is_some()) {
        let what = "is set, but parameters for one kind of layer are not supported for this architecture";
        return Err(parameters.error(kind, what));
    }
    let theta = parameters.float("rope_theta")?.unwrap_or(checkpoint.rope_theta);
    keys.push(("rope.freq_base", Value::F32(theta as f32)));
    keys.extend(parameters.sections()?.map(|sections| (SECTIONS, sections)));
    let rope_type = parameters.rope_type()?;
    match checkpoint.partial_rotary_factor {
        Some(default) => {
            let rotated = parameters.partial(default)? * f64::from(head_dim()?);
            keys.push(("rope.dimension_count", Value::U32(rotated as u32)));
        }
        None if rope_type == "proportional" => {}
        None => parameters.check_value(PARTIAL, 1.0)?,
    }
    let mut divisors = vec![];
    match rope_type {
        // Early configs of Qwen2-VL say `mrope`, whose sections are a key of their own.
        "default" | "mrope" => {}
        "linear" => keys.extend(scaling("linear", parameters.required("factor")?)),
        "yarn" => keys.extend(parameters.yarn()?),
        // Early configs say `su`.
        "longrope" | "su" => {
            keys.extend(parameters.longrope()?);
            divisors = vec![parameters.longrope_factors("short")?, parameters.longrope_factors("long")?];
        }
        "llama3" => divisors.push(parameters.llama3_divisors(theta, head_dim()?)?),
        "proportional" => divisors.push(parameters.proportional_divisors(head_dim()?)?),
        other => {
            let what = format!(
                "is `{}`, but only default, linear, yarn, longrope, llama3 and proportional are supported",
                other.escape_debug()
            );
            return Err(parameters.error("rope_type", what));
        }
    }
    Ok(Rope { keys, divisors })
}

/// Returns the name of the setting that a GGUF key is made from.
pub(super) fn setting_for(key: &str) -> Option<&'static str> {
    match key {
        "rope.freq_base" => Some("rope_theta"),
        "rope.freq_base_swa" => Some("rope_local_base_freq"),
        "rope.dimension_count" => Some(PARTIAL),
        SECTIONS => Some("rope_parameters.mrope_section"),
        "rope.scaling.attn_factor" => Some("rope_parameters.attention_factor"),
        "rope.scaling.type" => Some("rope_parameters.rope_type"),
        "rope.scaling.factor" => Some("rope_parameters.factor"),
        "rope.scaling.original_context_length" => Some("original_max_position_embeddings"),
        _ => None,
    }
}

fn scaling(scaling_type: &str, factor: f64) -> [(&'static str, Value); 2] {
    [("rope.scaling.type", Value::String(scaling_type.into())), ("rope.scaling.factor", Value::F32(factor as f32))]
}

/// The object of rotary parameters, if there is one, and the settings next to it: a config may have
/// some parameters in either place.
#[derive(Clone, Copy)]
struct RopeParameters<'a> {
    settings: &'a Settings<'a>,
    /// The name of the object.
    name: &'static str,
    object: Option<&'a Object<String, Json>>,
}

impl<'a> RopeParameters<'a> {
    fn new(settings: &'a Settings<'a>) -> Result<Self> {
        for name in ["rope_scaling", "rope_parameters"] {
            if let Some(value) = settings.get(name) {
                let object = value.as_object().ok_or_else(|| settings.error(name, "is not an object"))?;
                return Ok(Self { settings, name, object: Some(object) });
            }
        }
        Ok(Self { settings, name: "rope_parameters", object: None })
    }

    /// Returns the parameters of one kind of layer, or `None` if they are not separate.
    fn part(&self, name: &'static str) -> Result<Option<Self>> {
        let Some(value) = self.own(name) else { return Ok(None) };
        let object = value.as_object().ok_or_else(|| self.error(name, "is not an object"))?;
        Ok(Some(Self { settings: self.settings, name, object: Some(object) }))
    }

    /// Returns the base of the frequencies in layers with a sliding window.
    fn sliding_theta(&self) -> Result<Option<f64>> {
        const THETA: &str = "rope_theta";
        let Some(part) = self.part(SLIDING)? else { return self.settings.float("rope_local_base_freq") };
        if part.rope_type()? != "default" {
            let what = "is not `default`, which alone is supported for layers with a sliding window";
            return Err(part.error("rope_type", what));
        }
        part.own(THETA).map(|theta| theta.as_f64().ok_or_else(|| part.error(THETA, "is not a number"))).transpose()
    }

    /// Returns a parameter of the object, or `None` if it is absent or null.
    fn own(&self, key: &str) -> Option<&'a Json> {
        self.object?.get(key).filter(|value| !value.is_null())
    }

    fn error(&self, key: &str, what: impl AsRef<str>) -> Error {
        self.settings.error(&format!("{}.{key}", self.name), what)
    }

    fn rope_type(&self) -> Result<&'a str> {
        match self.own("rope_type").or_else(|| self.own("type")) {
            None => Ok("default"),
            Some(value) => value.as_str().ok_or_else(|| self.error("rope_type", "is not a name")),
        }
    }

    /// Returns a parameter of the object or, if the object has none, of the settings.
    fn float(&self, key: &str) -> Result<Option<f64>> {
        match self.own(key) {
            None => self.settings.float(key),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| self.error(key, "is not a number")),
        }
    }

    /// Returns a parameter that must be above 0.
    fn required(&self, key: &str) -> Result<f64> {
        match self.float(key)? {
            Some(value) if value > 0.0 => Ok(value),
            Some(value) => Err(self.error(key, format!("is {value}, but must be above 0"))),
            None => Err(self.error(key, "is missing")),
        }
    }

    /// Checks that a parameter is absent or the `supported` value, which is also its default.
    fn check_value(&self, key: &str, supported: f64) -> Result<()> {
        match self.float(key)? {
            Some(value) if (value - supported).abs() > 1e-6 * supported => {
                Err(self.error(key, format!("is {value}, but only {supported} is supported")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the context length before stretching. As in transformers, a setting next to the
    /// object takes precedence.
    fn original_context(&self) -> Result<f64> {
        const KEY: &str = "original_max_position_embeddings";
        match self.settings.float(KEY)? {
            Some(length) if length > 0.0 => Ok(length),
            Some(length) => Err(self.settings.error(KEY, format!("is {length}, but must be above 0"))),
            None if self.own(KEY).is_some() => self.required(KEY),
            None => self.required("max_position_embeddings"),
        }
    }

    /// Returns the numbers of pairs that an image's position, rows and columns turn.
    fn sections(&self) -> Result<Option<Value>> {
        const KEY: &str = "mrope_section";
        let Some(value) = self.own(KEY) else { return Ok(None) };
        let size = |section: &Json| section.as_u64().and_then(|pairs| u32::try_from(pairs).ok());
        let sections = value.as_array().and_then(|all| all.iter().map(size).collect::<Option<Vec<_>>>());
        let sections = sections.ok_or_else(|| self.error(KEY, "is not a list of sizes"))?;
        Ok(Some(Value::Array(Array::U32(sections))))
    }

    fn yarn(&self) -> Result<[(&'static str, Value); 3]> {
        let factor = self.required("factor")?;
        self.check_value("beta_fast", 32.0)?;
        self.check_value("beta_slow", 1.0)?;
        self.check_value(ATTENTION_FACTOR, 1.0 + 0.1 * factor.ln())?;
        for key in ["mscale", "mscale_all_dim"] {
            if self.own(key).is_some() {
                return Err(self.error(key, "is set, but is not supported"));
            }
        }
        if self.own("truncate").is_some_and(|value| *value != true) {
            return Err(self.error("truncate", "is not true, which is not supported"));
        }
        let [scaling_type, factor] = scaling("yarn", factor);
        // The conversion saturates, and the key's range is checked when it is read.
        let original = Value::U64(self.original_context()? as u64);
        Ok([scaling_type, factor, ("rope.scaling.original_context_length", original)])
    }

    /// Returns the keys for LongRoPE's attention factor and the context before stretching.
    fn longrope(&self) -> Result<[(&'static str, Value); 2]> {
        let original = self.original_context()?;
        let factor = match self.own("factor") {
            Some(_) => self.required("factor")?,
            None => self.required("max_position_embeddings")? / original,
        };
        let attention_factor = if self.own(ATTENTION_FACTOR).is_some() {
            self.required(ATTENTION_FACTOR)?
        } else if factor > 1.0 {
            (1.0 + factor.ln() / original.ln()).sqrt()
        } else {
            1.0
        };
        // The conversion saturates, and the key's range is checked when it is read.
        let original = ("rope.scaling.original_context_length", Value::U64(original as u64));
        Ok([original, ("rope.scaling.attn_factor", Value::F32(attention_factor as f32))])
    }

    /// Returns LongRoPE's divisors of the frequencies in `short` or `long` contexts.
    fn longrope_factors(&self, contexts: &str) -> Result<TensorInfo> {
        let name = format!("{contexts}_factor");
        let error = || self.error(&name, "is not a list of numbers above 0");
        let factors = self.own(&name).and_then(Json::as_array).ok_or_else(error)?;
        let factor = |factor: &Json| Some(factor.as_f64()? as f32).filter(|factor| factor.is_normal() && *factor > 0.0);
        let factors: Vec<f32> = factors.iter().map(factor).collect::<Option<_>>().ok_or_else(error)?;
        if factors.is_empty() {
            return Err(error());
        }
        Ok(in_memory(&format!("rope_factors_{contexts}.weight"), &factors))
    }

    /// Returns Llama 3.1's divisors of the frequencies: `factor` for long waves, 1 for short ones,
    /// and a blend between.
    fn llama3_divisors(&self, theta: f64, head_dim: u32) -> Result<TensorInfo> {
        let factor = self.required("factor")?;
        let low = self.required("low_freq_factor")?;
        let high = self.required("high_freq_factor")?;
        let context = self.original_context()?;
        let divisor = |i: u32| {
            let wave_length = TAU * theta.powf(f64::from(2 * i) / f64::from(head_dim));
            match context / wave_length {
                turns if turns > high => 1.0,
                turns if turns < low => factor,
                turns => {
                    let blend = (turns - low) / (high - low);
                    1.0 / ((1.0 - blend) / factor + blend)
                }
            }
        };
        let divisors: Vec<f32> = (0..head_dim / 2).map(|i| divisor(i) as f32).collect();
        if divisors.is_empty() || !divisors.iter().all(|&divisor| divisor.is_finite() && divisor > 0.0) {
            let what = "is `llama3`, but its factors give a divisor that is not a finite number above 0";
            return Err(self.error("rope_type", what));
        }
        Ok(in_memory("rope_freqs.weight", &divisors))
    }

    /// Returns Gemma 4's divisors of the frequencies: only the first pairs of a head are rotated,
    /// with the frequencies that they have if the whole head is rotated.
    fn proportional_divisors(&self, head_dim: u32) -> Result<TensorInfo> {
        /// The divisor that llama.cpp's converter gives pairs that are not rotated.
        const NOT_ROTATED: f32 = 1e30;
        self.check_value("factor", 1.0)?;
        let rotated = (self.partial(1.0)? * f64::from(head_dim) / 2.0) as u32;
        let divisors: Vec<f32> = (0..head_dim / 2).map(|i| if i < rotated { 1.0 } else { NOT_ROTATED }).collect();
        Ok(in_memory("rope_freqs.weight", &divisors))
    }

    /// Returns the rotated part of a head, from 0 to 1.
    fn partial(&self, default: f64) -> Result<f64> {
        let part = self.float(PARTIAL)?.unwrap_or(default);
        if part > 0.0 && part <= 1.0 {
            return Ok(part);
        }
        Err(self.error(PARTIAL, format!("is {part}, but must be above 0 and at most 1")))
    }
}

fn in_memory(name: &str, row: &[f32]) -> TensorInfo {
    TensorInfo::in_memory(name.into(), DType::F32, vec![row.len()], bytemuck::cast_slice(row))
}

/// Returns the number of elements in a head from the checkpoint's other GGUF keys.
fn head_dim(settings: &Settings, key_values: &[(&'static str, Value)]) -> Result<u32> {
    let value = |name: &str| key_values.iter().find(|(key, _)| *key == name).and_then(|(_, value)| value.to_u64());
    let width_over_heads = || value("embedding_length")?.checked_div(value("attention.head_count")?);
    let dim = value("attention.key_length").or_else(width_over_heads).and_then(|dim| u32::try_from(dim).ok());
    dim.filter(|dim| (2..=MAX_HEAD_DIM).contains(dim))
        .ok_or_else(|| settings.error("head_dim", format!("is not from 2 to {MAX_HEAD_DIM}")))
}
