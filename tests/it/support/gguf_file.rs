//! A small writer of GGUF files for tests: sound ones by default, and any field of them wrong on
//! demand.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use inkstone::gguf::{Array, Gguf, Value};

/// A file to be written.
#[derive(Clone, Debug)]
pub struct GgufFile {
    pub version: u32,
    /// Key, number of the value's type, the value as it stands in the file.
    pub keys: Vec<(Vec<u8>, u32, Vec<u8>)>,
    pub tensors: Vec<Tensor>,
    /// What the data is padded to; a file that declares another alignment needs a key as well.
    pub alignment: usize,
}

/// A tensor to be written.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    /// Innermost first, as in the file.
    pub dimensions: Vec<u64>,
    pub number: u32,
    /// Its offset in the data; after the one before where `None`.
    pub offset: Option<u64>,
    pub data: Vec<u8>,
}

impl GgufFile {
    /// Version 3, with nothing in it.
    pub fn new() -> Self {
        Self { version: 3, keys: Vec::new(), tensors: Vec::new(), alignment: 32 }
    }

    /// Returns a file with the keys and tensors of another one, in F32 or F16.
    pub fn of(gguf: &Gguf) -> Self {
        let file = gguf.metadata().fold(Self::new(), |file, (key, value)| {
            let (number, bytes) = stored(value);
            file.key(key, number, bytes)
        });
        gguf.tensors().iter().fold(file, |file, tensor| {
            let number = if tensor.dtype.name() == "F16" { 1 } else { 0 };
            let dimensions: Vec<_> = tensor.shape.iter().rev().map(|size| *size as u64).collect();
            file.tensor(&tensor.name, &dimensions, number, gguf.bytes(tensor))
        })
    }

    pub fn key(mut self, key: &str, type_number: u32, value: impl AsRef<[u8]>) -> Self {
        self.keys.push((key.into(), type_number, value.as_ref().into()));
        self
    }

    pub fn string(self, key: &str, text: &str) -> Self {
        self.key(key, 8, string(text))
    }

    pub fn u32(self, key: &str, number: u32) -> Self {
        self.key(key, 4, number.to_le_bytes())
    }

    /// An array of elements of the type with this number, given as they stand in the file.
    pub fn array(self, key: &str, type_number: u32, elements: &[Vec<u8>]) -> Self {
        self.key(key, 9, array(type_number, elements))
    }

    pub fn tensor(mut self, name: &str, dimensions: &[u64], number: u32, data: impl AsRef<[u8]>) -> Self {
        let (name, dimensions, data) = (name.into(), dimensions.into(), data.as_ref().into());
        self.tensors.push(Tensor { name, dimensions, number, offset: None, data });
        self
    }

    /// Gives the last tensor this offset, wherever its bytes are written.
    pub fn at(mut self, offset: u64) -> Self {
        self.tensors.last_mut().expect("a tensor to place").offset = Some(offset);
        self
    }

    /// The file's bytes up to the padding before the data.
    pub fn header(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(self.version.to_le_bytes());
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend((self.keys.len() as u64).to_le_bytes());
        for (key, type_number, value) in &self.keys {
            file.extend((key.len() as u64).to_le_bytes());
            file.extend(key);
            file.extend(type_number.to_le_bytes());
            file.extend(value);
        }
        let mut next = 0;
        for tensor in &self.tensors {
            file.extend(string(&tensor.name));
            file.extend((tensor.dimensions.len() as u32).to_le_bytes());
            file.extend(tensor.dimensions.iter().flat_map(|length| length.to_le_bytes()));
            file.extend(tensor.number.to_le_bytes());
            file.extend(tensor.offset.unwrap_or(next).to_le_bytes());
            next += tensor.data.len().next_multiple_of(self.alignment) as u64;
        }
        file
    }

    /// The whole file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut file = self.header();
        for tensor in &self.tensors {
            file.resize(file.len().next_multiple_of(self.alignment), 0);
            file.extend(&tensor.data);
        }
        file
    }
}

/// A string as it stands in a file.
pub fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// An array as it stands in a file.
pub fn array(type_number: u32, elements: &[Vec<u8>]) -> Vec<u8> {
    let mut array = type_number.to_le_bytes().to_vec();
    array.extend((elements.len() as u64).to_le_bytes());
    array.extend(elements.concat());
    array
}

/// A folder of one test's own, removed in the end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("gguf-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, and says where.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        // A new file rather than a shortened one: some file systems write the latter to disk before
        // they go on.
        let _ = fs::remove_file(&path);
        fs::write(&path, bytes).expect("a file for the test");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays behind lies in the build folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the number of a value's type, and the value as it stands in a file.
fn stored(value: &Value) -> (u32, Vec<u8>) {
    match value {
        Value::U32(number) => (4, number.to_le_bytes().into()),
        Value::F32(number) => (6, number.to_le_bytes().into()),
        Value::Bool(value) => (7, vec![u8::from(*value)]),
        Value::String(text) => (8, string(text)),
        Value::Array(Array::Bool(values)) => {
            (9, array(7, &values.iter().map(|value| vec![u8::from(*value)]).collect::<Vec<_>>()))
        }
        Value::Array(Array::I32(numbers)) => (9, array(5, &bytes_of(numbers.iter().map(|n| n.to_le_bytes())))),
        Value::Array(Array::U32(numbers)) => (9, array(4, &bytes_of(numbers.iter().map(|n| n.to_le_bytes())))),
        Value::Array(Array::F32(numbers)) => (9, array(6, &bytes_of(numbers.iter().map(|n| n.to_le_bytes())))),
        Value::Array(Array::String(texts)) => (9, array(8, &texts.iter().map(string).collect::<Vec<_>>())),
        other => panic!("{other}"),
    }
}

fn bytes_of(elements: impl Iterator<Item = [u8; 4]>) -> Vec<Vec<u8>> {
    elements.map(Vec::from).collect()
}
