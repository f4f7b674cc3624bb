//! Reads the metadata of a GGUF file: its keys and their typed values.
//!
//! The macro `value_types` lists each value type with its number in the file, and generates the
//! enums, the type names and the parsing. Keys are stored in file order, for listing, with an index
//! for look-up.

use std::{collections::HashMap, fmt};

use super::{
    read::{ByteReader, DAMAGED_OR_NEWER, Parsed, ReadElement, ReadElements, quoted},
    strings::Strings,
};

/// Minimum size of a key and its value in bytes: the key's length, one character, value type,
/// value.
const MIN_ENTRY_BYTES: usize = 8 + 1 + 4 + 1;

/// Maximum nesting depth of arrays. Each level costs a stack frame; real files have a depth of 1.
const MAX_DEPTH: usize = 8;

macro_rules! value_types {
    ($($variant:ident($type:ty, $array:ty) = $number:literal, $name:literal;)*) => {
        /// The value of a metadata key.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Value { $(#[doc = concat!("A value of type `", $name, "`.")] $variant($type)),* }

        /// An array in the metadata, whose elements all have one type.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Array { $(#[doc = concat!("Elements of type `", $name, "`.")] $variant($array)),* }

        impl Value {
            /// Returns the name of the value's type, for example `u32`.
            pub fn type_name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name),* }
            }

            /// Reads a value of the type with this GGUF number (`gguf_metadata_value_type`).
            pub(super) fn read(reader: &mut ByteReader, number: u32) -> Parsed<Self> {
                match number {
                    $($number => reader.read().map(Self::$variant),)*
                    _ => Err(format!("has the unknown value type {number}: {DAMAGED_OR_NEWER}")),
                }
            }
        }

        impl Array {
            /// Returns the name of the element type, for example `u32`.
            pub fn type_name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name),* }
            }

            /// Returns the number of elements.
            pub fn len(&self) -> usize {
                match self { $(Self::$variant(elements) => elements.len()),* }
            }

            fn read_elements(reader: &mut ByteReader, number: u32, count: u64, depth: usize) -> Parsed<Self> {
                match number {
                    $($number => ReadElements::read(reader, count, depth).map(Self::$variant),)*
                    _ => Err(format!("has elements of the unknown value type {number}: {DAMAGED_OR_NEWER}")),
                }
            }
        }
    };
}

value_types! {
    U8(u8, Vec<u8>) = 0, "u8";
    I8(i8, Vec<i8>) = 1, "i8";
    U16(u16, Vec<u16>) = 2, "u16";
    I16(i16, Vec<i16>) = 3, "i16";
    U32(u32, Vec<u32>) = 4, "u32";
    I32(i32, Vec<i32>) = 5, "i32";
    F32(f32, Vec<f32>) = 6, "f32";
    Bool(bool, Vec<bool>) = 7, "bool";
    String(String, Strings) = 8, "string";
    Array(Array, Vec<Array>) = 9, "array";
    U64(u64, Vec<u64>) = 10, "u64";
    I64(i64, Vec<i64>) = 11, "i64";
    F64(f64, Vec<f64>) = 12, "f64";
}

impl Value {
    /// Converts an integer of any type to `u64`. Returns `None` for other types and negative
    /// numbers.
    pub(crate) fn to_u64(&self) -> Option<u64> {
        match *self {
            Self::U8(n) => Some(n.into()),
            Self::U16(n) => Some(n.into()),
            Self::U32(n) => Some(n.into()),
            Self::U64(n) => Some(n),
            Self::I8(n) => n.try_into().ok(),
            Self::I16(n) => n.try_into().ok(),
            Self::I32(n) => n.try_into().ok(),
            Self::I64(n) => n.try_into().ok(),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::String(_) | Self::Array(_) => None,
        }
    }
}

/// Shows numbers in full, strings quoted and shortened, and arrays as element type and length.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(n) => n.fmt(f),
            Self::U16(n) => n.fmt(f),
            Self::U32(n) => n.fmt(f),
            Self::U64(n) => n.fmt(f),
            Self::I8(n) => n.fmt(f),
            Self::I16(n) => n.fmt(f),
            Self::I32(n) => n.fmt(f),
            Self::I64(n) => n.fmt(f),
            Self::F32(n) => n.fmt(f),
            Self::F64(n) => n.fmt(f),
            Self::Bool(b) => b.fmt(f),
            Self::String(text) => f.write_str(&quoted(text)),
            Self::Array(array) => write!(f, "[{}; {}]", array.type_name(), array.len()),
        }
    }
}

impl Array {
    /// Returns whether the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl ReadElement for Array {
    // Element type and count.
    const MIN_BYTES: usize = size_of::<u32>() + size_of::<u64>();

    fn read(reader: &mut ByteReader, depth: usize) -> Parsed<Self> {
        if depth == MAX_DEPTH {
            return Err(format!("has arrays nested deeper than {MAX_DEPTH} levels"));
        }
        let number = reader.read()?;
        let count = reader.read()?;
        Self::read_elements(reader, number, count, depth + 1)
    }
}

/// Keys and values in file order, with an index by key.
#[derive(Default)]
pub(super) struct Metadata {
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    /// Creates metadata from `entries`, and refuses duplicate keys.
    pub(super) fn new(entries: Vec<(String, Value)>) -> Parsed<Self> {
        let mut metadata = Self::default();
        for (key, value) in entries {
            metadata.add(key, value)?;
        }
        Ok(metadata)
    }

    /// Reads `count` keys and their values.
    pub(super) fn read(reader: &mut ByteReader, count: u64) -> Parsed<Self> {
        reader.expect(count, MIN_ENTRY_BYTES).map_err(|what| format!("a key count of {count} {what}"))?;
        let mut metadata = Self::default();
        for number in 1..=count {
            let key: String = reader.read().map_err(|what| format!("metadata key {number} of {count} {what}"))?;
            let value = reader.read().and_then(|type_number| Value::read(reader, type_number));
            let value = value.map_err(|what| format!("metadata key {} {what}", quoted(&key)))?;
            if key.is_empty() {
                return Err(format!("metadata key {number} of {count} is empty"));
            }
            metadata.add(key, value)?;
        }
        Ok(metadata)
    }

    fn add(&mut self, key: String, value: Value) -> Parsed<()> {
        if self.get(&key).is_some() {
            return Err(format!("metadata key {} occurs twice", quoted(&key)));
        }
        self.push(key, value);
        Ok(())
    }

    fn push(&mut self, key: String, value: Value) {
        self.index.insert(key.clone(), self.entries.len());
        self.entries.push((key, value));
    }

    /// Adds the keys of another shard. Keys in `per_shard` describe a single shard and are skipped;
    /// all other keys must have the same value in every shard.
    pub(super) fn merge(&mut self, shard: Self, per_shard: &[&str]) -> Parsed<()> {
        for (key, value) in shard.entries {
            match self.get(&key) {
                _ if per_shard.contains(&key.as_str()) => {}
                None => self.push(key, value),
                Some(first) if *first == value => {}
                Some(first) => {
                    return Err(format!("metadata key {} is {value}, but {first} in the first shard", quoted(&key)));
                }
            }
        }
        Ok(())
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&index| &self.entries[index].1)
    }

    /// Returns the integer value of a key that describes the file itself, not the model.
    pub(super) fn file_integer(&self, key: &str) -> Parsed<Option<u64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.to_u64() {
            Some(number) => Ok(Some(number)),
            None => Err(format!("metadata key `{key}` is {value}: expected an integer of 0 or more")),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }
}
