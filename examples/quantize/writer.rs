//! Writes the header of a GGUF file: keys, and a table of tensors.

use std::io::{self, Write};

use inkstone::gguf::{Array, Value};

/// The alignment of tensors in bytes, which is GGUF's default.
pub const ALIGNMENT: usize = 32;

/// A tensor of a file that is written.
pub struct Entry<'n> {
    pub name: &'n str,
    /// Outermost dimension first.
    pub shape: &'n [usize],
    /// The GGUF number of its type (`ggml_type`).
    pub number: u32,
    pub byte_len: usize,
}

/// Returns the header of a file with these keys and tensors, up to the data of the first tensor.
/// Each tensor is followed by zeros up to a multiple of [`ALIGNMENT`].
pub fn header<'k>(keys: &[(&'k str, &'k Value)], tensors: &[Entry]) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend([tensors.len() as u64, keys.len() as u64].map(u64::to_le_bytes).as_flattened());
    for (key, value) in keys {
        text(key, &mut out);
        out.extend(number_of(value).to_le_bytes());
        put(value, &mut out);
    }
    let mut offset = 0;
    for tensor in tensors {
        text(tensor.name, &mut out);
        out.extend((tensor.shape.len() as u32).to_le_bytes());
        out.extend(tensor.shape.iter().rev().flat_map(|length| (*length as u64).to_le_bytes()));
        out.extend(tensor.number.to_le_bytes());
        out.extend((offset as u64).to_le_bytes());
        offset += tensor.byte_len.next_multiple_of(ALIGNMENT);
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    out
}

/// Writes the zeros after a tensor.
pub fn pad(byte_len: usize, out: &mut impl Write) -> io::Result<()> {
    out.write_all(&[0; ALIGNMENT][..byte_len.next_multiple_of(ALIGNMENT) - byte_len])
}

fn text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

macro_rules! numbers {
    ($($variant:ident = $number:literal),*) => {
        /// Returns the GGUF number of a value's type (`gguf_metadata_value_type`).
        fn number_of(value: &Value) -> u32 {
            match value {
                $(Value::$variant(_) => $number,)*
                Value::Bool(_) => BOOL,
                Value::String(_) => STRING,
                Value::Array(_) => ARRAY,
            }
        }

        fn put(value: &Value, out: &mut Vec<u8>) {
            match value {
                $(Value::$variant(number) => out.extend(number.to_le_bytes()),)*
                Value::Bool(value) => out.push(u8::from(*value)),
                Value::String(string) => text(string, out),
                Value::Array(array) => put_array(array, out),
            }
        }

        fn put_array(array: &Array, out: &mut Vec<u8>) {
            let number = match array {
                $(Array::$variant(_) => $number,)*
                Array::Bool(_) => BOOL,
                Array::String(_) => STRING,
                Array::Array(_) => ARRAY,
            };
            out.extend(u32::to_le_bytes(number));
            out.extend((array.len() as u64).to_le_bytes());
            match array {
                $(Array::$variant(numbers) => out.extend(numbers.iter().flat_map(|number| number.to_le_bytes())),)*
                Array::Bool(values) => out.extend(values.iter().map(|value| u8::from(*value))),
                Array::String(strings) => strings.iter().for_each(|string| text(string, out)),
                Array::Array(arrays) => arrays.iter().for_each(|array| put_array(array, out)),
            }
        }
    };
}

const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;
numbers! { U8 = 0, I8 = 1, U16 = 2, I16 = 3, U32 = 4, I32 = 5, F32 = 6, U64 = 10, I64 = 11, F64 = 12 }
