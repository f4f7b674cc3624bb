//! Reads GGUF files: the metadata and tensors of a model, as llama.cpp's tools write them.
//!
//! In comes a path, out comes a [`Gguf`]: typed metadata and, for each tensor, a name, type, shape and mapped bytes.
//! Files come from strangers, so every count, length, offset and product is checked here, once, before it is used;
//! whoever holds a [`Gguf`] need not check again. What the keys and tensors mean is not known here.
//!
//! The format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. Versions 2 and 3, little-endian, whole or
//! split.

mod map;
mod metadata;
mod part;
mod read;
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

#[cfg(feature = "safetensors")]
pub(crate) use map::Map;
use metadata::Metadata;
pub use metadata::{Array, Value};
use part::Part;
pub(crate) use read::quoted;
pub use strings::Strings;
pub use tensor::TensorInfo;
pub use tensor_type::TensorType;

use crate::{Error, Result};

/// A model in GGUF's terms, mapped into memory and checked: a file, or what a directory of safetensors becomes in
/// [`models::open`](crate::models::open). Clones share the mapping.
///
/// ```no_run
/// let gguf = inkstone::gguf::Gguf::open("Qwen3-4B-Q4_K_M.gguf")?;
/// println!("{} with {} tensors", gguf.architecture()?, gguf.tensors().len());
/// # Ok::<(), inkstone::Error>(())
/// ```
#[derive(Clone)]
pub struct Gguf(Arc<Model>);

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

struct Model {
    path: PathBuf,
    origin: Origin,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

impl Gguf {
    /// Maps the file at `path`, with the other parts of a split model where this is the first, and checks them.
    ///
    /// Nobody may change or shorten the files while they are mapped: the system would show the change, or end the
    /// process. To replace a model, write a new file and rename it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] where a file cannot be read, [`Error::InvalidFile`] where it is no sound GGUF file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let invalid = |what: &str| Error::InvalidFile { path: path.into(), what: what.into() };
        if path.is_dir() {
            return Err(invalid("is a directory: name the .gguf file in it, or use `from_path`"));
        }
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            return Err(invalid("is one file of a model: name the directory that holds it, with config.json"));
        }
        let Part { version, metadata, tensors } = split::join(path, Part::open(path)?)?;
        Self::new(path, Origin::File { version }, metadata, tensors)
    }

    /// A model of another format, with the metadata and tensors that a file would have.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidFile`] where a key or a tensor is there twice.
    pub(crate) fn translated(path: &Path, keys: Vec<(String, Value)>, tensors: Vec<TensorInfo>) -> Result<Self> {
        let metadata = Metadata::new(keys).map_err(|what| Error::InvalidFile { path: path.into(), what })?;
        Self::new(path, Origin::Directory, metadata, tensors)
    }

    fn new(path: &Path, origin: Origin, metadata: Metadata, tensors: Vec<TensorInfo>) -> Result<Self> {
        let mut index = HashMap::new();
        for (position, tensor) in tensors.iter().enumerate() {
            if index.insert(tensor.name.clone(), position).is_some() {
                let what = format!("tensor {} is in two parts of the model", quoted(&tensor.name));
                return Err(Error::InvalidFile { path: path.into(), what });
            }
        }
        Ok(Self(Arc::new(Model { path: path.into(), origin, metadata, tensors, index })))
    }

    /// The path that was opened: the model's only file, its first part, or its directory.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns whether the model comes from a GGUF file or from a directory of safetensors.
    pub fn origin(&self) -> Origin {
        self.0.origin
    }

    /// Returns the version of the format, 2 or 3, or `None` for a directory of safetensors.
    pub fn version(&self) -> Option<u32> {
        match self.0.origin {
            Origin::File { version } => Some(version),
            Origin::Directory => None,
        }
    }

    /// Every key and value, in the file's order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.metadata.iter()
    }

    /// The value of `key`, of whatever type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.metadata.get(key)
    }

    /// Every tensor, in the file's order, over all parts of a split model.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.0.tensors
    }

    /// The tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.0.index.get(name).map(|&position| &self.0.tensors[position])
    }

    /// The bytes of a tensor: its rows one after the other, each of whole blocks. They are where the file has them, the
    /// first at a multiple of 8, but for a stack of experts that a directory has one by one, which is copied.
    pub fn bytes<'a>(&self, tensor: &'a TensorInfo) -> Cow<'a, [u8]> {
        tensor.bytes(0..tensor.byte_len())
    }
}

/// Look-ups that expect a type: `Ok(None)` where the key is absent, [`Error::Metadata`] where it holds something else.
impl Gguf {
    /// An integer of any type that is not negative.
    pub fn u64(&self, key: &str) -> Result<Option<u64>> {
        self.typed(key, "an integer of 0 or more", Value::to_u64)
    }

    /// As [`u64`](Self::u64), in the range of `usize`.
    pub fn usize(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "an integer of 0 or more that fits a usize", |value| value.to_u64()?.try_into().ok())
    }

    /// As [`u64`](Self::u64), in the range of `u32`.
    pub fn u32(&self, key: &str) -> Result<Option<u32>> {
        self.typed(key, "an integer from 0 to 4294967295", |value| value.to_u64()?.try_into().ok())
    }

    /// A float of either width, rounded to single precision.
    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a float", |value| match *value {
            Value::F32(number) => Some(number),
            Value::F64(number) => Some(number as f32),
            _ => None,
        })
    }

    /// A bool.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a bool", |value| if let Value::Bool(value) = *value { Some(value) } else { None })
    }

    /// A string.
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", |value| if let Value::String(text) = value { Some(text.as_str()) } else { None })
    }

    /// An array of any type.
    pub fn array(&self, key: &str) -> Result<Option<&Array>> {
        self.typed(key, "an array", |value| if let Value::Array(array) = value { Some(array) } else { None })
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<&Strings>> {
        self.typed(key, "an array of strings", |value| match value {
            Value::Array(Array::String(strings)) => Some(strings),
            _ => None,
        })
    }

    /// The value of a look-up that must not be absent: `gguf.required(key, gguf.u32(key))`.
    pub fn required<T>(&self, key: &str, value: Result<Option<T>>) -> Result<T> {
        value?.ok_or_else(|| Error::metadata(key, format!("is missing in {}", self.0.path.display())))
    }

    /// The model's family, `general.architecture`.
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
                let what =
                    format!("is {value} ({}) in {}: {expected} is wanted", value.type_name(), self.0.path.display());
                Err(Error::metadata(key, what))
            }
        }
    }
}

/// Hints to the operating system about a tensor's bytes. They change speed and resident memory, never a result, so
/// where the system lacks them or refuses them nothing is reported.
impl Gguf {
    /// Says that a range of the tensor's bytes will be read soon, so that reading ahead from the disk can start.
    pub fn will_need(&self, tensor: &TensorInfo, range: Range<usize>) {
        tensor.will_need(range);
    }

    /// Says that a range of the tensor's bytes has been read (into a copy, say), so that its pages can be given back.
    /// They are read from the file again if they are needed after all.
    pub fn done_with(&self, tensor: &TensorInfo, range: Range<usize>) {
        tensor.done_with(range);
    }
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gguf({}, {} tensors)", self.0.path.display(), self.0.tensors.len())
    }
}
