//! How positions are encoded: `rope_theta` with `rope_scaling`, or `rope_parameters`, as transformers 5 has it.

use std::f64::consts::TAU;

use serde_json::{Map as Object, Value as Json};

use super::{Checkpoint, config::Settings};
use crate::{
    DType, Error, Result,
    gguf::{TensorInfo, Value},
};

/// The largest head that is believed.
const MAX_HEAD_DIM: u32 = 1 << 12;

/// How much of a head is rotated.
const PARTIAL: &str = "partial_rotary_factor";

/// What queries and keys grow by.
const GROWTH: &str = "attention_factor";

/// The two kinds of layers, which may each have an object of parameters.
const FULL: &str = "full_attention";
const WINDOWS: &str = "sliding_attention";

/// Rotary embedding in GGUF's terms.
pub(super) struct Rope {
    /// Without the architecture's name.
    pub keys: Vec<(&'static str, Value)>,
    /// What each frequency is divided by: one row, or one for short contexts and one for long ones.
    pub divisors: Vec<TensorInfo>,
}

/// What the settings say, or where they do not, the family.
pub(super) fn read(settings: &Settings, checkpoint: &Checkpoint, own: &[(&'static str, Value)]) -> Result<Rope> {
    let mut parameters = Parameters::new(settings)?;
    let head_dim = || head_dim(settings, own);
    let mut keys = vec![];
    if let Some(base) = checkpoint.rope_theta_of_windows {
        keys.push(("rope.freq_base_swa", Value::F32(parameters.base_of_windows()?.map_or(base, |base| base as f32))));
        parameters = parameters.part(FULL)?.unwrap_or(parameters);
    }
    if let Some(kind) = [FULL, WINDOWS].into_iter().find(|kind| parameters.own(kind).is_some()) {
        return Err(parameters.error(kind, "differs from other layers, which is not built yet for this architecture"));
    }
    let theta = parameters.float("rope_theta")?.unwrap_or(checkpoint.rope_theta);
    keys.push(("rope.freq_base", Value::F32(theta as f32)));
    let kind = parameters.kind()?;
    match checkpoint.partial_rotary_factor {
        Some(usual) => {
            let rotated = parameters.partial(usual)? * f64::from(head_dim()?);
            keys.push(("rope.dimension_count", Value::U32(rotated as u32)));
        }
        None if kind == "proportional" => {}
        None => parameters.only(PARTIAL, 1.0)?,
    }
    let divisors = match kind {
        "default" => vec![],
        "linear" => {
            keys.extend(scaling("linear", parameters.required("factor")?));
            vec![]
        }
        "yarn" => {
            keys.extend(parameters.yarn()?);
            vec![]
        }
        // As the first configs call it.
        "longrope" | "su" => {
            keys.extend(parameters.longrope()?);
            vec![parameters.factors("short")?, parameters.factors("long")?]
        }
        "llama3" => vec![parameters.divisors(theta, head_dim()?)?],
        "proportional" => vec![parameters.proportional(head_dim()?)?],
        other => {
            let what = format!(
                "is `{}`, which is not built yet: default, linear, yarn, longrope, llama3 and proportional are",
                other.escape_debug()
            );
            return Err(parameters.error("rope_type", what));
        }
    };
    Ok(Rope { keys, divisors })
}

/// The setting that a key of GGUF comes from.
pub(super) fn setting_for(key: &str) -> Option<&'static str> {
    match key {
        "rope.freq_base" => Some("rope_theta"),
        "rope.freq_base_swa" => Some("rope_local_base_freq"),
        "rope.dimension_count" => Some(PARTIAL),
        "rope.scaling.attn_factor" => Some("rope_parameters.attention_factor"),
        "rope.scaling.type" => Some("rope_parameters.rope_type"),
        "rope.scaling.factor" => Some("rope_parameters.factor"),
        "rope.scaling.original_context_length" => Some("original_max_position_embeddings"),
        _ => None,
    }
}

fn scaling(kind: &str, factor: f64) -> [(&'static str, Value); 2] {
    [("rope.scaling.type", Value::String(kind.into())), ("rope.scaling.factor", Value::F32(factor as f32))]
}

/// The object of parameters, if there is one, and the settings beside it, which some of them stand among.
#[derive(Clone, Copy)]
struct Parameters<'a> {
    settings: &'a Settings<'a>,
    /// What the object is called.
    name: &'static str,
    object: Option<&'a Object<String, Json>>,
}

impl<'a> Parameters<'a> {
    fn new(settings: &'a Settings<'a>) -> Result<Self> {
        for name in ["rope_scaling", "rope_parameters"] {
            if let Some(value) = settings.get(name) {
                let object = value.as_object().ok_or_else(|| settings.error(name, "is no object"))?;
                return Ok(Self { settings, name, object: Some(object) });
            }
        }
        Ok(Self { settings, name: "rope_parameters", object: None })
    }

    /// What is said of layers of one kind, where they have an object of their own in this one.
    fn part(&self, name: &'static str) -> Result<Option<Self>> {
        let Some(value) = self.own(name) else { return Ok(None) };
        let object = value.as_object().ok_or_else(|| self.error(name, "is no object"))?;
        Ok(Some(Self { settings: self.settings, name, object: Some(object) }))
    }

    /// The base of layers with a window, which are otherwise plain.
    fn base_of_windows(&self) -> Result<Option<f64>> {
        const BASE: &str = "rope_theta";
        let Some(part) = self.part(WINDOWS)? else { return self.settings.float("rope_local_base_freq") };
        if part.kind()? != "default" {
            return Err(part.error("rope_type", "is not `default`, which is not built yet for layers with a window"));
        }
        part.own(BASE).map(|base| base.as_f64().ok_or_else(|| part.error(BASE, "is no number"))).transpose()
    }

    fn own(&self, key: &str) -> Option<&'a Json> {
        self.object?.get(key).filter(|value| !value.is_null())
    }

    fn error(&self, key: &str, what: impl AsRef<str>) -> Error {
        self.settings.error(&format!("{}.{key}", self.name), what)
    }

    fn kind(&self) -> Result<&'a str> {
        match self.own("rope_type").or_else(|| self.own("type")) {
            None => Ok("default"),
            Some(value) => value.as_str().ok_or_else(|| self.error("rope_type", "is no name")),
        }
    }

    fn float(&self, key: &str) -> Result<Option<f64>> {
        match self.own(key) {
            None => self.settings.float(key),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| self.error(key, "is no number")),
        }
    }

    /// A number above 0.
    fn required(&self, key: &str) -> Result<f64> {
        match self.float(key)? {
            Some(value) if value > 0.0 => Ok(value),
            Some(value) => Err(self.error(key, format!("is {value}, but must be above 0"))),
            None => Err(self.error(key, "is missing")),
        }
    }

    /// Refuses any other value than this, which is what an absent one means.
    fn only(&self, key: &str, wanted: f64) -> Result<()> {
        match self.float(key)? {
            Some(value) if (value - wanted).abs() > 1e-6 * wanted => {
                Err(self.error(key, format!("is {value}, which is not built yet: {wanted} is")))
            }
            _ => Ok(()),
        }
    }

    /// The context length before stretching. As in transformers, what stands beside the object counts first.
    fn original_context(&self) -> Result<f64> {
        const KEY: &str = "original_max_position_embeddings";
        match self.settings.float(KEY)? {
            Some(length) if length > 0.0 => Ok(length),
            Some(length) => Err(self.settings.error(KEY, format!("is {length}, but must be above 0"))),
            None if self.own(KEY).is_some() => self.required(KEY),
            None => self.required("max_position_embeddings"),
        }
    }

    fn yarn(&self) -> Result<[(&'static str, Value); 3]> {
        let factor = self.required("factor")?;
        self.only("beta_fast", 32.0)?;
        self.only("beta_slow", 1.0)?;
        self.only(GROWTH, 1.0 + 0.1 * factor.ln())?;
        for key in ["mscale", "mscale_all_dim"] {
            if self.own(key).is_some() {
                return Err(self.error(key, "is not built yet"));
            }
        }
        if self.own("truncate").is_some_and(|value| *value != true) {
            return Err(self.error("truncate", "is not true, which is not built yet"));
        }
        let [kind, factor] = scaling("yarn", factor);
        // Above 0, so it is cut to a range and to a whole number, no more; in use it is one.
        Ok([kind, factor, ("rope.scaling.original_context_length", Value::U64(self.original_context()? as u64))])
    }

    /// By how much LongRoPE lets queries and keys grow, and the context before stretching.
    fn longrope(&self) -> Result<[(&'static str, Value); 2]> {
        let original = self.original_context()?;
        let factor = match self.own("factor") {
            Some(_) => self.required("factor")?,
            None => self.required("max_position_embeddings")? / original,
        };
        let usual = if factor > 1.0 { (1.0 + factor.ln() / original.ln()).sqrt() } else { 1.0 };
        let growth = if self.own(GROWTH).is_some() { self.required(GROWTH)? } else { usual };
        // Cut to a range and to a whole number, as it is in use.
        let original = ("rope.scaling.original_context_length", Value::U64(original as u64));
        Ok([original, ("rope.scaling.attn_factor", Value::F32(growth as f32))])
    }

    /// What LongRoPE divides each frequency by in contexts of a kind.
    fn factors(&self, kind: &str) -> Result<TensorInfo> {
        let name = format!("{kind}_factor");
        let wanted = || self.error(&name, "is no list of numbers above 0");
        let factors = self.own(&name).and_then(Json::as_array).ok_or_else(wanted)?;
        let factor = |factor: &Json| Some(factor.as_f64()? as f32).filter(|factor| factor.is_normal() && *factor > 0.0);
        let factors: Vec<f32> = factors.iter().map(factor).collect::<Option<_>>().ok_or_else(wanted)?;
        match factors[..] {
            [] => Err(wanted()),
            _ => Ok(in_memory(&format!("rope_factors_{kind}.weight"), &factors)),
        }
    }

    /// What Llama 3.1 stretches each frequency with: long waves by `factor`, short ones not at all, those between by a blend.
    fn divisors(&self, theta: f64, dim: u32) -> Result<TensorInfo> {
        let [factor, low, high] = ["factor", "low_freq_factor", "high_freq_factor"].map(|key| self.required(key));
        let (factor, low, high, context) = (factor?, low?, high?, self.original_context()?);
        let divisor = |i: u32| {
            let wave = TAU * theta.powf(f64::from(2 * i) / f64::from(dim));
            match context / wave {
                turns if turns > high => 1.0,
                turns if turns < low => factor,
                turns => {
                    let blend = (turns - low) / (high - low);
                    1.0 / ((1.0 - blend) / factor + blend)
                }
            }
        };
        let divisors: Vec<f32> = (0..dim / 2).map(|i| divisor(i) as f32).collect();
        if divisors.is_empty() || !divisors.iter().all(|&divisor| divisor.is_finite() && divisor > 0.0) {
            return Err(self.error("rope_type", "is `llama3`, with factors by which no frequency can be divided"));
        }
        Ok(in_memory("rope_freqs.weight", &divisors))
    }

    /// Gemma 4's: of the pairs of the whole head the first few turn, by frequencies that are those of the whole head.
    fn proportional(&self, head_dim: u32) -> Result<TensorInfo> {
        /// What llama.cpp's converter divides by where a pair does not turn.
        const STILL: f32 = 1e30;
        self.only("factor", 1.0)?;
        let turning = (self.partial(1.0)? * f64::from(head_dim) / 2.0) as u32;
        let divisors: Vec<f32> = (0..head_dim / 2).map(|i| if i < turning { 1.0 } else { STILL }).collect();
        Ok(in_memory("rope_freqs.weight", &divisors))
    }

    /// How much of a head is rotated, and `usually` where it does not say.
    fn partial(&self, usually: f64) -> Result<f64> {
        match self.float(PARTIAL)?.unwrap_or(usually) {
            part if part > 0.0 && part <= 1.0 => Ok(part),
            other => Err(self.error(PARTIAL, format!("is {other}, but must be above 0 and at most 1"))),
        }
    }
}

fn in_memory(name: &str, row: &[f32]) -> TensorInfo {
    TensorInfo::in_memory(name.into(), DType::F32, vec![row.len()], bytemuck::cast_slice(row))
}

/// The elements of a head, by GGUF's keys as far as they are made.
fn head_dim(settings: &Settings, own: &[(&'static str, Value)]) -> Result<u32> {
    let value = |wanted: &str| own.iter().find(|(key, _)| *key == wanted).and_then(|(_, value)| value.to_u64());
    let over_heads = || value("embedding_length")?.checked_div(value("attention.head_count")?);
    let dim = value("attention.key_length").or_else(over_heads).and_then(|dim| u32::try_from(dim).ok());
    let what = || format!("is no size from 2 to {MAX_HEAD_DIM}");
    dim.filter(|dim| (2..=MAX_HEAD_DIM).contains(dim)).ok_or_else(|| settings.error("head_dim", what()))
}
