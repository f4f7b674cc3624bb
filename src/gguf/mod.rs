//! Reads GGUF files: the metadata and tensors of a model, as llama.cpp's tools write them.
//!
//! [`Gguf::open`] returns typed metadata and, for each tensor, its name, type, shape and mapped
//! bytes. Files are untrusted: every count, length, offset and product is checked here, once,
//! before it is used, so users of a [`Gguf`] need no further checks. This module does not interpret
//! keys or tensors.
//!
//! Supports versions 2 and 3 of the
//! [format](https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), little-endian, in one file
//! or split into shards.

mod fault;
mod fingerprint;
mod map;
mod metadata;
mod read;
mod shard;
mod split;
mod strings;
mod table;
mod tensor;
mod tensor_type;

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

pub(crate) use fault::{Fault, FaultKind};
pub(crate) use fingerprint::Fingerprint;
#[cfg(feature = "safetensors")]
pub(crate) use map::Map;
use metadata::Metadata;
pub use metadata::{Array, Value};
pub(crate) use read::quoted;
use shard::Shard;
pub use strings::Strings;
pub use tensor::TensorInfo;
pub use tensor_type::TensorType;

use crate::{Error, Result};

/// The metadata and tensors of a model, mapped into memory and checked.
///
/// Read from a GGUF file by [`open`](Self::open), or translated from a directory of safetensors by
/// [`models::open`](crate::models::open). Clones share the mapping.
///
/// ```no_run
/// let gguf = inkstone::gguf::Gguf::open("Qwen3-4B-Q4_K_M.gguf")?;
/// println!("{} with {} tensors", gguf.architecture()?, gguf.tensors().len());
/// # Ok::<(), inkstone::Error>(())
/// ```
#[derive(Clone)]
pub struct Gguf(Arc<Contents>);

/// The source of a [`Gguf`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A GGUF file, whole or split.
    File {
        /// The version of the format, 2 or 3.
        version: u32,
    },
    /// A directory of safetensors, translated into GGUF keys and tensor names.
    Directory,
}

struct Contents {
    path: PathBuf,
    origin: Origin,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

impl Gguf {
    /// Maps and checks the file at `path`. If it is the first shard of a split model, also maps the
    /// other shards, which must lie in the same directory.
    ///
    /// The files must not be modified or truncated while they are mapped: modified bytes become
    /// visible in the weights, and reading truncated bytes ends the process. To replace a model,
    /// write a new file and rename it.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read, [`Error::InvalidFile`] if it is not a valid GGUF
    /// file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let (gguf, faults) = Self::open_header(path.as_ref())?;
        faults.into_iter().next().map_or(Ok(gguf), |fault| Err(fault.error))
    }

    /// Opens the file at `path` like [`open`](Self::open), but returns its faults beside what could
    /// be read in spite of them, if its header could. Tensors of unknown types, and tensors whose
    /// data is missing, have no bytes; tensors that are malformed are left out.
    ///
    /// # Errors
    /// As [`open`](Self::open), if the header cannot be read.
    pub(crate) fn open_header(path: &Path) -> Result<(Self, Vec<Fault>)> {
        let invalid = |what: &str| Error::InvalidFile { path: path.into(), what: what.into() };
        if path.is_dir() {
            return Err(invalid(
                "is a directory: pass a .gguf file, or load a directory of safetensors with `from_path`",
            ));
        }
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            return Err(invalid("is a safetensors file: pass the directory that contains it and config.json"));
        }
        let Shard { version, metadata, tensors, faults } = split::join(path, Shard::open(path)?);
        match Self::new(path, Origin::File { version }, metadata, tensors) {
            Ok(gguf) => Ok((gguf, faults)),
            Err(error) => Err(faults.into_iter().next().map_or(error, |fault| fault.error)),
        }
    }

    /// Creates a `Gguf` for a model of another format from its translated metadata and tensors.
    ///
    /// # Errors
    /// [`Error::InvalidFile`] if a key or a tensor occurs twice.
    pub(crate) fn translated(path: &Path, keys: Vec<(String, Value)>, tensors: Vec<TensorInfo>) -> Result<Self> {
        let metadata = Metadata::new(keys).map_err(|what| Error::InvalidFile { path: path.into(), what })?;
        Self::new(path, Origin::Directory, metadata, tensors)
    }

    /// Returns the same model with further tensors, and with these keys in the place of its own.
    ///
    /// # Errors
    /// [`Error::InvalidFile`] if a tensor occurs twice.
    pub(crate) fn extended(
        &self,
        keys: Vec<(String, Value)>,
        tensors: impl IntoIterator<Item = TensorInfo>,
    ) -> Result<Self> {
        let Contents { path, origin, metadata, tensors: own, .. } = &*self.0;
        let kept = metadata.iter().filter(|(key, _)| !keys.iter().any(|(new, _)| new == key));
        let kept: Vec<_> = kept.map(|(key, value)| (key.to_owned(), value.clone())).collect();
        let metadata = Metadata::new(kept.into_iter().chain(keys).collect());
        let metadata = metadata.map_err(|what| Error::InvalidFile { path: path.clone(), what })?;
        Self::new(path, *origin, metadata, own.iter().cloned().chain(tensors).collect())
    }

    fn new(path: &Path, origin: Origin, metadata: Metadata, tensors: Vec<TensorInfo>) -> Result<Self> {
        let mut index = HashMap::new();
        for (position, tensor) in tensors.iter().enumerate() {
            if index.insert(tensor.name.clone(), position).is_some() {
                let what = format!("tensor {} occurs in two shards of the model", quoted(&tensor.name));
                return Err(Error::InvalidFile { path: path.into(), what });
            }
        }
        Ok(Self(Arc::new(Contents { path: path.into(), origin, metadata, tensors, index })))
    }

    /// Returns the path that was opened: the model's file, its first shard, or its directory.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns whether the model comes from a GGUF file or from a directory of safetensors.
    pub fn origin(&self) -> Origin {
        self.0.origin
    }

    /// Returns the GGUF version, 2 or 3, or `None` for a directory of safetensors.
    pub fn version(&self) -> Option<u32> {
        match self.0.origin {
            Origin::File { version } => Some(version),
            Origin::Directory => None,
        }
    }

    /// Returns an iterator over all keys and values, in file order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.metadata.iter()
    }

    /// Returns the value of `key`, of any type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.metadata.get(key)
    }

    /// Returns all tensors in file order, of all shards of a split model.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.0.tensors
    }

    /// Returns the tensor named `name`.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.0.index.get(name).map(|&position| &self.0.tensors[position])
    }

    /// Returns the bytes of a tensor: its rows in order, each of whole blocks.
    ///
    /// They are borrowed from the mapped file and aligned to 8 bytes. A stack of experts that a
    /// directory of safetensors stores as separate tensors is copied.
    pub fn bytes<'a>(&self, tensor: &'a TensorInfo) -> Cow<'a, [u8]> {
        tensor.bytes(0..tensor.byte_len())
    }
}

/// Typed look-ups. They return `Ok(None)` if the key is absent, and [`Error::Metadata`] if its
/// value has another type.
impl Gguf {
    /// Returns an integer of any type that is not negative.
    pub fn u64(&self, key: &str) -> Result<Option<u64>> {
        self.typed(key, "an integer of 0 or more", Value::to_u64)
    }

    /// Returns an integer like [`u64`](Self::u64), in the range of `usize`.
    pub fn usize(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "an integer of 0 or more that fits a usize", |value| value.to_u64()?.try_into().ok())
    }

    /// Returns an integer like [`u64`](Self::u64), in the range of `u32`.
    pub fn u32(&self, key: &str) -> Result<Option<u32>> {
        self.typed(key, "an integer from 0 to 4294967295", |value| value.to_u64()?.try_into().ok())
    }

    /// Returns an f32, or an f64 rounded to f32.
    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a float", |value| match *value {
            Value::F32(number) => Some(number),
            Value::F64(number) => Some(number as f32),
            _ => None,
        })
    }

    /// Returns a bool.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a bool", |value| if let Value::Bool(value) = *value { Some(value) } else { None })
    }

    /// Returns a string.
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", |value| if let Value::String(text) = value { Some(text.as_str()) } else { None })
    }

    /// Returns an array of any type.
    pub fn array(&self, key: &str) -> Result<Option<&Array>> {
        self.typed(key, "an array", |value| if let Value::Array(array) = value { Some(array) } else { None })
    }

    /// Returns an array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<&Strings>> {
        self.typed(key, "an array of strings", |value| match value {
            Value::Array(Array::String(strings)) => Some(strings),
            _ => None,
        })
    }

    /// Returns the value of a look-up, or an error if the key is absent:
    /// `gguf.required(key, gguf.u32(key))`.
    ///
    /// # Errors
    /// [`Error::Metadata`] if the key is absent; otherwise the error of the look-up.
    #[doc(hidden)]
    pub fn required<T>(&self, key: &str, value: Result<Option<T>>) -> Result<T> {
        value?.ok_or_else(|| Error::metadata(key, format!("is missing in {}", self.0.path.display())))
    }

    /// Returns the name of the model's family, `general.architecture`.
    ///
    /// # Errors
    /// [`Error::Metadata`] if the key is absent or not a string.
    pub fn architecture(&self) -> Result<&str> {
        const KEY: &str = "general.architecture";
        self.required(KEY, self.str(KEY))
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match convert(value) {
            Some(converted) => Ok(Some(converted)),
            None => {
                let (type_name, path) = (value.type_name(), self.0.path.display());
                Err(Error::metadata(key, format!("is {value} ({type_name}) in {path}: expected {expected}")))
            }
        }
    }
}

/// Hints to the operating system about a tensor's bytes. They change speed and resident memory,
/// never a result. A system that lacks or refuses a hint is therefore not an error.
impl Gguf {
    /// Hints that a range of the tensor's bytes will be read soon, so that read-ahead from the disk
    /// can start.
    #[doc(hidden)]
    pub fn will_need(&self, tensor: &TensorInfo, range: Range<usize>) {
        tensor.will_need(range);
    }

    /// Hints that a range of the tensor's bytes has been read (for example into a copy) and its
    /// pages can be released. Later reads load them from the file again.
    #[doc(hidden)]
    pub fn done_with(&self, tensor: &TensorInfo, range: Range<usize>) {
        tensor.done_with(range);
    }
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gguf({}, {} tensors)", self.0.path.display(), self.0.tensors.len())
    }
}
