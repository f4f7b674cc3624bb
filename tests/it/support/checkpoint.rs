//! The tiny models as directories of safetensors: the weights of their GGUF files, laid out and
//! named as tests/data/checkpoints, which transformers has written and was held to, says.

use std::{
    fs,
    path::{Path, PathBuf},
};

use inkstone::gguf::Gguf;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{data, gguf_file::Folder, tiny::Tiny};

/// A directory to be written.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Every file but those of tensors.
    pub files: Vec<(String, Vec<u8>)>,
    pub tensors: Vec<Tensor>,
}

/// A tensor to be written.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    /// As the header has it.
    pub dtype: String,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

impl Checkpoint {
    pub fn of(tiny: Tiny) -> Self {
        let folder = data(&format!("checkpoints/{}", tiny.0));
        let gguf = Gguf::open(tiny.path()).unwrap();
        let mut files = vec![];
        let mut tensors = vec![];
        for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let entry = entry.unwrap();
            let (name, bytes) = (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap());
            if name == "tensors.txt" {
                tensors = str::from_utf8(&bytes).unwrap().lines().map(|line| tensor(&gguf, line)).collect();
            } else {
                files.push((name, bytes));
            }
        }
        Self { files, tensors }
    }

    /// Adds tensors of the GGUF file, by lines as those of tensors.txt.
    pub fn add(&mut self, tiny: Tiny, lines: impl IntoIterator<Item = String>) {
        let gguf = Gguf::open(tiny.path()).unwrap();
        self.tensors.extend(lines.into_iter().map(|line| tensor(&gguf, &line)));
    }

    /// A file as JSON.
    pub fn json(&self, name: &str) -> Map<String, Value> {
        let (_, bytes) = self.files.iter().find(|(file, _)| file == name).unwrap();
        serde_json::from_slice(bytes).unwrap()
    }

    /// Puts a file in the place of the one with its name, if there is one.
    pub fn with_file(mut self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        self.files.retain(|(file, _)| file != name);
        self.files.push((name.into(), bytes.as_ref().into()));
        self
    }

    /// Sets a key of a JSON file; `None` takes it away.
    pub fn with(self, file: &str, key: &str, value: impl Into<Option<Value>>) -> Self {
        let mut object = self.json(file);
        match value.into() {
            Some(value) => object.insert(key.into(), value),
            None => object.remove(key),
        };
        self.with_file(file, serde_json::to_vec(&object).unwrap())
    }

    /// Stores the tensors as F32 or BF16 whose names this holds for, and which are not so already.
    pub fn stored_as(mut self, dtype: &str, wanted: impl Fn(&str) -> bool) -> Self {
        for tensor in self.tensors.iter_mut().filter(|tensor| wanted(&tensor.name) && tensor.dtype != dtype) {
            let elements = tensor.elements().into_iter();
            tensor.data = match dtype {
                "F32" => elements.flat_map(f32::to_le_bytes).collect(),
                "BF16" => elements.flat_map(|x| half::bf16::from_f32(x).to_le_bytes()).collect(),
                "F16" => elements.flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect(),
                other => panic!("{other}"),
            };
            tensor.dtype = dtype.into();
        }
        self
    }

    /// Writes the directory, with all tensors in one file, and says where.
    pub fn write(&self, folder: &Folder) -> PathBuf {
        self.write_files(folder);
        folder.write("model.safetensors", file(&self.tensors));
        folder.path().into()
    }

    /// As [`write`](Self::write), with the tensors in several files and an index.
    pub fn write_sharded(&self, folder: &Folder, shards: usize) -> PathBuf {
        self.write_files(folder);
        let mut map = Map::new();
        for (n, tensors) in self.tensors.chunks(self.tensors.len().div_ceil(shards)).enumerate() {
            let name = format!("model-{:05}-of-{shards:05}.safetensors", n + 1);
            folder.write(&name, file(tensors));
            map.extend(tensors.iter().map(|tensor| (tensor.name.clone(), name.clone().into())));
        }
        let index = json!({ "metadata": { "total_size": 1 }, "weight_map": map });
        folder.write("model.safetensors.index.json", index.to_string());
        folder.path().into()
    }

    fn write_files(&self, folder: &Folder) {
        for (name, bytes) in &self.files {
            folder.write(name, bytes);
        }
    }
}

impl Tensor {
    /// Puts each element, in single precision, through `f`.
    fn map(&mut self, f: fn(f32) -> f32) {
        assert_eq!(self.dtype, "F32");
        self.data = self.elements().into_iter().flat_map(|x| f(x).to_le_bytes()).collect();
    }

    pub fn elements(&self) -> Vec<f32> {
        let halves = self.data.chunks_exact(2).map(|bytes| bytes.try_into().unwrap());
        match self.dtype.as_str() {
            "F16" => halves.map(|bytes| half::f16::from_le_bytes(bytes).to_f32()).collect(),
            "BF16" => halves.map(|bytes| half::bf16::from_le_bytes(bytes).to_f32()).collect(),
            "F32" => self.data.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect(),
            other => panic!("{other}"),
        }
    }
}

/// A tensor of the checkpoint, by its line of tensors.txt.
fn tensor(gguf: &Gguf, line: &str) -> Tensor {
    let [name, stored, how @ ..] = &line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
    let stored = gguf.tensor(stored).unwrap_or_else(|| panic!("{line}"));
    let dtype = stored.dtype.name().into();
    let tensor = Tensor { name: name.to_string(), dtype, shape: stored.shape.clone(), data: gguf.bytes(stored).into() };
    undo(tensor, how)
}

/// The tensor before the converter did `how` to it.
fn undo(mut tensor: Tensor, how: &[&str]) -> Tensor {
    let numbers = |words: &[&str]| words.iter().map(|word| word.parse().unwrap()).collect::<Vec<usize>>();
    let rows = tensor.shape[0];
    match how {
        ["as-is"] | [] => {}
        ["permuted", heads] => tensor.data = unpermuted(&tensor.data, rows, heads.parse().unwrap()),
        ["plus-one"] => tensor.map(|x| x - 1.0),
        ["minus-exp", rest @ ..] => {
            tensor.map(|x| (-x).ln());
            return undo(tensor, rest);
        }
        ["kernel", rest @ ..] => {
            tensor = undo(tensor, rest);
            tensor.shape.insert(1, 1);
        }
        ["row"] => tensor.shape.insert(0, 1),
        ["number", number] => {
            let each = tensor.data.len() / tensor.shape.remove(0);
            tensor.data = tensor.data.chunks_exact(each).nth(number.parse().unwrap()).unwrap().to_vec();
        }
        ["tiled", sizes @ ..] => {
            let [keys, dim, first] = numbers(sizes)[..] else { panic!("{how:?}") };
            let row_bytes = tensor.data.len() / rows;
            let heads = untiled(&tensor.data[first * row_bytes..], keys, dim * row_bytes);
            tensor.data.truncate(first * row_bytes);
            tensor.data.extend(heads);
        }
        ["tiled-columns", sizes @ ..] => {
            let [keys, dim] = numbers(sizes)[..] else { panic!("{how:?}") };
            let element = tensor.data.len() / tensor.shape.iter().product::<usize>();
            let rows = tensor.data.chunks_exact(tensor.data.len() / rows);
            tensor.data = rows.flat_map(|row| untiled(row, keys, dim * element)).collect();
        }
        _ => panic!("{how:?}"),
    }
    tensor
}

/// Heads of so many bytes: those that lay as far apart as there are `keys`, one after the other.
fn untiled(heads: &[u8], keys: usize, head_bytes: usize) -> Vec<u8> {
    let heads: Vec<_> = heads.chunks_exact(head_bytes).collect();
    let of_key = |key: usize| heads.iter().skip(key).step_by(keys);
    (0..keys).flat_map(of_key).copied().flatten().copied().collect()
}

/// Of each head, the even rows and then the odd ones.
fn unpermuted(bytes: &[u8], rows: usize, heads: usize) -> Vec<u8> {
    let row = |n: usize| &bytes[n * bytes.len() / rows..(n + 1) * bytes.len() / rows];
    let dim = rows / heads;
    let of_head = |head: usize| (0..dim).map(move |i| head * dim + if i < dim / 2 { 2 * i } else { 2 * i + 1 - dim });
    (0..heads).flat_map(of_head).flat_map(row).copied().collect()
}

/// A file of these tensors.
pub fn file(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = Map::from_iter([("__metadata__".to_owned(), json!({ "format": "pt" }))]);
    let mut start = 0;
    for Tensor { name, dtype, shape, data } in tensors {
        let end = start + data.len();
        header.insert(name.clone(), json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] }));
        start = end;
    }
    let mut text = Value::from(header).to_string();
    // As transformers pads it.
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    with_header(&text, tensors.iter().flat_map(|tensor| &tensor.data))
}

/// A file with this header, whatever it says.
pub fn with_header<'a>(header: &str, data: impl IntoIterator<Item = &'a u8>) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(data);
    file
}

/// Whether tests/data/checkpoints has this model.
pub fn is_there(tiny: Tiny) -> bool {
    Path::exists(&data(&format!("checkpoints/{}", tiny.0)))
}

/// Returns arbitrary values of a setting: numbers, some of these words, and lists and objects of
/// them with some of these names. Both are regular expressions.
pub fn setting(words: &'static str, names: &'static str) -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(|n| json!(n)),
        any::<f64>().prop_map(|x| json!(x)),
        (0_i64..9).prop_map(|n| json!(n)),
        (0_u32..64).prop_map(|bit| json!(1_u64 << bit)),
    ];
    let leaf = prop_oneof![
        4 => number,
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        2 => words.prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 4, move |inner| {
        let object = prop::collection::vec((names, inner.clone()), 0..5);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            object.prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}
