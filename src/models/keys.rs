//! The metadata of one architecture, each number held to a range.
//!
//! A key that makes another model of it must not be overlooked: what the family has not read by the time that the graph
//! is wired is refused by name.

use std::{cell::RefCell, collections::HashSet, ops::Range};

use crate::{
    Error, Result,
    gguf::{Array, Gguf, Value},
};

/// The longest context that is believed.
pub(super) const MAX_CONTEXT: usize = 1 << 31;

/// The widest rows that are believed.
pub(super) const MAX_WIDTH: usize = 1 << 24;

/// Keys with which the same tensors compute something else; 0 stands for nothing.
const TELLING: [&str; 9] = [
    "attention.scale",
    "attention.sliding_window",
    "attn_logit_softcapping",
    "embedding_scale",
    "expert_count",
    "final_logit_softcapping",
    "logit_scale",
    "nextn_predict_layers",
    "residual_scale",
];

/// Looks up keys of one architecture, `ARCHITECTURE.KEY`.
pub(super) struct Keys<'a> {
    pub gguf: &'a Gguf,
    pub architecture: &'a str,
    /// The most positions that a sequence will have, if the model was trained for so many.
    pub positions: usize,
    /// Those that have been asked for.
    read: RefCell<HashSet<String>>,
}

impl<'a> Keys<'a> {
    pub fn new(gguf: &'a Gguf, positions: usize) -> Result<Self> {
        Ok(Self { gguf, architecture: gguf.architecture()?, positions, read: RefCell::default() })
    }

    fn full(&self, key: &str) -> String {
        let full = format!("{}.{key}", self.architecture);
        self.read.borrow_mut().insert(full.clone());
        full
    }

    pub fn error(&self, key: &str, what: impl Into<String>) -> Error {
        Error::metadata(self.full(key), what)
    }

    pub fn required<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        let key = self.full(key);
        self.gguf.required(&key, Ok(value))
    }

    /// A number from 1 to `max`, which must be there.
    pub fn size(&self, key: &str, max: usize) -> Result<usize> {
        let value = self.optional_size(key, max)?;
        self.required(key, value)
    }

    /// A number from 1 to `max`.
    pub fn optional_size(&self, key: &str, max: usize) -> Result<Option<usize>> {
        let value = self.gguf.usize(&self.full(key))?;
        value.map(|n| self.check_size(key, n, max)).transpose()
    }

    /// A number from 0 to `max`, which is 0 where the key is absent.
    pub fn count(&self, key: &str, max: usize) -> Result<usize> {
        match self.gguf.usize(&self.full(key))?.unwrap_or(0) {
            n if n <= max => Ok(n),
            n => Err(self.error(key, format!("is {n}, but must be from 0 to {max}"))),
        }
    }

    pub fn check_size(&self, key: &str, n: usize, max: usize) -> Result<usize> {
        if (1..=max).contains(&n) {
            Ok(n)
        } else {
            Err(self.error(key, format!("is {n}, but must be from 1 to {max}")))
        }
    }

    /// For each layer a number from 1 to `max`: the same for all, or an array.
    pub fn per_layer(&self, key: &str, layers: usize, max: usize) -> Result<Option<Vec<usize>>> {
        let Some(Value::Array(array)) = self.gguf.get(&self.full(key)) else {
            return Ok(self.optional_size(key, max)?.map(|n| vec![n; layers]));
        };
        let numbers = integers(array).ok_or_else(|| self.error(key, "is an array of something else than sizes"))?;
        if numbers.len() != layers {
            return Err(self.error(key, format!("has {} entries for {layers} layers", numbers.len())));
        }
        numbers.into_iter().map(|n| self.check_size(key, n, max)).collect::<Result<_>>().map(Some)
    }

    /// For each layer yes or no: an array, or a number `n` where the last of each `n` layers differs from the others,
    /// which are a yes.
    pub fn pattern(&self, key: &str, layers: usize, period: usize) -> Result<Vec<bool>> {
        if let Some(Value::Array(_)) = self.gguf.get(&self.full(key)) {
            return self.flags(key, layers);
        }
        let period = self.optional_size(key, u32::MAX as usize)?.unwrap_or(period);
        Ok((1..=layers).map(|n| !n.is_multiple_of(period)).collect())
    }

    /// For each layer yes or no.
    pub fn flags(&self, key: &str, layers: usize) -> Result<Vec<bool>> {
        match self.gguf.get(&self.full(key)) {
            Some(Value::Array(Array::Bool(flags))) if flags.len() == layers => Ok(flags.clone()),
            _ => Err(self.error(key, format!("is no array of {layers} booleans"))),
        }
    }

    /// Elements between the two halves of an expert.
    pub fn expert_width(&self) -> Result<Option<usize>> {
        self.optional_size("expert_feed_forward_length", MAX_WIDTH)
    }

    /// The window of layers that do not see all positions.
    pub fn window(&self) -> Result<Option<usize>> {
        self.optional_size("attention.sliding_window", MAX_CONTEXT)
    }

    /// A float in `range`, or `default` where the key is absent; an error where there is no default.
    pub fn float(&self, key: &str, range: Range<f32>, default: Option<f32>) -> Result<f32> {
        let value = self.optional_float(key, range)?.or(default);
        self.required(key, value)
    }

    /// A float in `range`.
    pub fn optional_float(&self, key: &str, range: Range<f32>) -> Result<Option<f32>> {
        match self.gguf.f32(&self.full(key))? {
            Some(value) if !range.contains(&value) => {
                Err(self
                    .error(key, format!("is {value}, but must be at least {} and below {}", range.start, range.end)))
            }
            value => Ok(value),
        }
    }

    /// A float above 0, or `default` where the key is absent; 0 stands for none.
    pub fn factor(&self, key: &str, default: Option<f32>) -> Result<Option<f32>> {
        Ok(self.optional_float(key, 0.0..f32::MAX)?.or(default).filter(|factor| *factor != 0.0))
    }

    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        self.gguf.str(&self.full(key))
    }

    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.gguf.bool(&self.full(key))
    }

    pub fn has(&self, key: &str) -> bool {
        self.gguf.get(&self.full(key)).is_some()
    }

    /// Whether the key is absent or 0, which stands for nothing.
    pub fn is_zero(&self, key: &str) -> bool {
        self.gguf.get(&self.full(key)).is_none_or(|value| value.to_u64() == Some(0) || *value == Value::F32(0.0))
    }

    /// Refuses a number other than `plain`, and other than 0, which stands for nothing.
    pub fn expect(&self, key: &str, plain: u64) -> Result<()> {
        match self.gguf.get(&self.full(key)) {
            Some(value)
                if !self.is_zero(key) && value.to_u64() != Some(plain) && *value != Value::F32(plain as f32) =>
            {
                Err(self.error(key, format!("is {value}, which is not built yet for this architecture: {plain} is")))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what the file asks for and nobody has read.
    pub fn refuse_unread(&self) -> Result<()> {
        for key in TELLING {
            let read = self.read.borrow().contains(&format!("{}.{key}", self.architecture));
            if !read && !self.is_zero(key) {
                let what = "is not built yet for this architecture: 0, or a file without the key, is";
                return Err(self.error(key, what));
            }
        }
        Ok(())
    }
}

fn integers(array: &Array) -> Option<Vec<usize>> {
    fn all<T: Copy + TryInto<usize>>(numbers: &[T]) -> Option<Vec<usize>> {
        numbers.iter().map(|&n| n.try_into().ok()).collect()
    }
    match array {
        Array::U8(n) => all(n),
        Array::I8(n) => all(n),
        Array::U16(n) => all(n),
        Array::I16(n) => all(n),
        Array::U32(n) => all(n),
        Array::I32(n) => all(n),
        Array::U64(n) => all(n),
        Array::I64(n) => all(n),
        Array::F32(_) | Array::F64(_) | Array::Bool(_) | Array::String(_) | Array::Array(_) => None,
    }
}
