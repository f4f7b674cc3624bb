//! Reads the metadata of one architecture, and checks every number against a range.
//!
//! A key that changes the computation must not be overlooked: [`Keys::refuse_unhandled_keys`]
//! refuses such a key by name if the family has not read it.

use std::{cell::RefCell, collections::HashSet, ops::Range};

use super::vision::ImageInputs;
use crate::{
    Error, Result,
    gguf::{Array, Gguf, Value},
};

/// The longest context that is accepted, in positions.
pub(super) const MAX_CONTEXT: usize = 1 << 31;

/// The widest rows that are accepted, in elements.
pub(super) const MAX_WIDTH: usize = 1 << 24;

/// Keys that change the computation without changing the shape of any tensor. The value 0 is the
/// same as no key.
const SEMANTIC_KEYS: [&str; 9] = [
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

/// Looks up keys of one architecture, `ARCHITECTURE.KEY`, by `KEY`.
pub(super) struct Keys<'a> {
    pub gguf: &'a Gguf,
    pub architecture: &'a str,
    /// The largest number of positions that a sequence will have. It may exceed the model's context
    /// length, which is a limit too.
    pub positions: usize,
    /// The rows of images that the model takes in the place of tokens; `None` for text alone.
    pub images: Option<ImageInputs>,
    /// The full names of the keys that have been looked up.
    read: RefCell<HashSet<String>>,
}

impl<'a> Keys<'a> {
    pub fn new(gguf: &'a Gguf, positions: usize, images: Option<ImageInputs>) -> Result<Self> {
        Ok(Self { gguf, architecture: gguf.architecture()?, positions, images, read: RefCell::default() })
    }

    /// Looks up the keys of a vision encoder, `clip.vision.KEY`.
    pub fn vision(gguf: &'a Gguf) -> Self {
        let read = RefCell::default();
        Self { gguf, architecture: "clip.vision", positions: usize::MAX, images: None, read }
    }

    /// Returns the full name of a key, and records that it has been looked up.
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

    /// Reads an integer from 1 to `max`.
    pub fn size(&self, key: &str, max: usize) -> Result<usize> {
        let value = self.optional_size(key, max)?;
        self.required(key, value)
    }

    /// Reads an integer from 1 to `max`, or `None` if the key is absent.
    pub fn optional_size(&self, key: &str, max: usize) -> Result<Option<usize>> {
        let value = self.gguf.usize(&self.full(key))?;
        value.map(|size| self.check_size(key, size, max)).transpose()
    }

    /// Reads an integer from 0 to `max`; an absent key is 0.
    pub fn count(&self, key: &str, max: usize) -> Result<usize> {
        let count = self.gguf.usize(&self.full(key))?.unwrap_or(0);
        if count <= max { Ok(count) } else { Err(self.error(key, format!("is {count}, but must be from 0 to {max}"))) }
    }

    /// Returns `size`, the value of `key`, if it is from 1 to `max`.
    pub fn check_size(&self, key: &str, size: usize, max: usize) -> Result<usize> {
        if (1..=max).contains(&size) {
            Ok(size)
        } else {
            Err(self.error(key, format!("is {size}, but must be from 1 to {max}")))
        }
    }

    /// Reads an integer from 1 to `max` for each layer: from an array, or one integer for all.
    /// Returns `None` if the key is absent.
    pub fn per_layer(&self, key: &str, layers: usize, max: usize) -> Result<Option<Vec<usize>>> {
        let Some(Value::Array(array)) = self.gguf.get(&self.full(key)) else {
            return Ok(self.optional_size(key, max)?.map(|size| vec![size; layers]));
        };
        let sizes = integers(array).ok_or_else(|| self.error(key, "is an array with elements that are not sizes"))?;
        if sizes.len() != layers {
            return Err(self.error(key, format!("has {} entries for {layers} layers", sizes.len())));
        }
        sizes.into_iter().map(|size| self.check_size(key, size, max)).collect::<Result<_>>().map(Some)
    }

    /// Reads an integer from 0 to `max` for each layer like [`per_layer`](Self::per_layer).
    pub fn counts_per_layer(&self, key: &str, layers: usize, max: usize) -> Result<Option<Vec<usize>>> {
        let Some(Value::Array(array)) = self.gguf.get(&self.full(key)) else {
            return self.per_layer(key, layers, max);
        };
        let counts = integers(array).filter(|counts| counts.len() == layers && counts.iter().all(|n| *n <= max));
        let counts = counts.ok_or_else(|| {
            self.error(key, format!("is not an array of {layers} numbers from 0 to {max}, one for each layer"))
        })?;
        Ok(Some(counts))
    }

    /// Reads an array of integers, or `None` if the key is absent.
    pub fn sizes(&self, key: &str) -> Result<Option<Vec<usize>>> {
        match self.gguf.get(&self.full(key)) {
            None => Ok(None),
            Some(Value::Array(array)) => integers(array)
                .filter(|sizes| sizes.iter().all(|size| *size <= MAX_WIDTH))
                .map(Some)
                .ok_or_else(|| self.error(key, "is an array with elements that are not sizes")),
            Some(_) => Err(self.error(key, "is not an array")),
        }
    }

    /// Reads a boolean for each layer: from an array, or from an integer `n` that stands for false
    /// in the last of each `n` layers and true in all other layers. `period` replaces an absent
    /// key.
    pub fn pattern(&self, key: &str, layers: usize, period: usize) -> Result<Vec<bool>> {
        if let Some(Value::Array(_)) = self.gguf.get(&self.full(key)) {
            return self.flags(key, layers);
        }
        let period = self.optional_size(key, u32::MAX as usize)?.unwrap_or(period);
        Ok((1..=layers).map(|number| !number.is_multiple_of(period)).collect())
    }

    /// Reads an array of a boolean for each layer.
    pub fn flags(&self, key: &str, layers: usize) -> Result<Vec<bool>> {
        match self.gguf.get(&self.full(key)) {
            Some(Value::Array(Array::Bool(flags))) if flags.len() == layers => Ok(flags.clone()),
            _ => Err(self.error(key, format!("is not an array of {layers} booleans, one for each layer"))),
        }
    }

    /// Reads the width between the two halves of an expert.
    pub fn expert_width(&self) -> Result<Option<usize>> {
        self.optional_size("expert_feed_forward_length", MAX_WIDTH)
    }

    /// Reads the size of the sliding window, in positions.
    pub fn window(&self) -> Result<Option<usize>> {
        self.optional_size("attention.sliding_window", MAX_CONTEXT)
    }

    /// Reads a float in `range`; an absent key is `default`, or an error without a default.
    pub fn float(&self, key: &str, range: Range<f32>, default: Option<f32>) -> Result<f32> {
        let value = self.optional_float(key, range)?.or(default);
        self.required(key, value)
    }

    /// Reads a float in `range`, or `None` if the key is absent.
    pub fn optional_float(&self, key: &str, range: Range<f32>) -> Result<Option<f32>> {
        let value = self.gguf.f32(&self.full(key))?;
        if let Some(value) = value.filter(|value| !range.contains(value)) {
            let what = format!("is {value}, but must be at least {} and below {}", range.start, range.end);
            return Err(self.error(key, what));
        }
        Ok(value)
    }

    /// Reads a float above 0; an absent key is `default`, and 0 is `None`.
    pub fn factor(&self, key: &str, default: Option<f32>) -> Result<Option<f32>> {
        Ok(self.optional_float(key, 0.0..f32::MAX)?.or(default).filter(|factor| *factor != 0.0))
    }

    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        self.gguf.str(&self.full(key))
    }

    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.gguf.bool(&self.full(key))
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.gguf.get(&self.full(key))
    }

    pub fn has(&self, key: &str) -> bool {
        self.gguf.get(&self.full(key)).is_some()
    }

    /// Returns whether the key is absent or 0.
    pub fn is_zero(&self, key: &str) -> bool {
        self.gguf.get(&self.full(key)).is_none_or(|value| value.to_u64() == Some(0) || *value == Value::F32(0.0))
    }

    /// Checks that the key is absent, 0 or the `supported` value.
    pub fn expect(&self, key: &str, supported: u64) -> Result<()> {
        let Some(value) = self.gguf.get(&self.full(key)) else { return Ok(()) };
        let is_supported = value.to_u64() == Some(supported) || *value == Value::F32(supported as f32);
        if is_supported || self.is_zero(key) {
            return Ok(());
        }
        Err(self.error(key, format!("is {value}, but only {supported} is supported for this architecture")))
    }

    /// Refuses a file that sets one of [`SEMANTIC_KEYS`] that the family has not read.
    pub fn refuse_unhandled_keys(&self) -> Result<()> {
        for key in SEMANTIC_KEYS {
            let read = self.read.borrow().contains(&format!("{}.{key}", self.architecture));
            if !read && !self.is_zero(key) {
                let what = "is set, but is not supported for this architecture, and the model would compute something \
                            else without it";
                return Err(self.error(key, what));
            }
        }
        Ok(())
    }
}

/// Returns the elements of an array of integers, or `None` for another type or a negative element.
fn integers(array: &Array) -> Option<Vec<usize>> {
    fn all<T: Copy + TryInto<usize>>(numbers: &[T]) -> Option<Vec<usize>> {
        numbers.iter().map(|&number| number.try_into().ok()).collect()
    }
    match array {
        Array::U8(numbers) => all(numbers),
        Array::I8(numbers) => all(numbers),
        Array::U16(numbers) => all(numbers),
        Array::I16(numbers) => all(numbers),
        Array::U32(numbers) => all(numbers),
        Array::I32(numbers) => all(numbers),
        Array::U64(numbers) => all(numbers),
        Array::I64(numbers) => all(numbers),
        Array::F32(_) | Array::F64(_) | Array::Bool(_) | Array::String(_) | Array::Array(_) => None,
    }
}
