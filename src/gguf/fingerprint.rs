//! Computes a fingerprint of a model's metadata and directory of tensors.

use super::{Array, Gguf, Strings, Value};

/// A 64-bit FNV-1a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    /// Adds bytes.
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Adds a text.
    pub fn add_text(&mut self, text: &str) {
        text.len().feed(self);
        self.add(text.as_bytes());
    }

    /// Returns the hash.
    pub fn value(self) -> u64 {
        self.0
    }
}

impl Gguf {
    /// Returns the fingerprint of all keys with their values, and of the names, types and shapes of
    /// all tensors. The data of tensors is not read.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let mut hash = Fingerprint::default();
        for (key, value) in self.metadata() {
            hash.add_text(key);
            value.feed(&mut hash);
        }
        for tensor in self.tensors() {
            hash.add_text(&tensor.name);
            hash.add_text(tensor.dtype.name());
            tensor.shape.feed(&mut hash);
        }
        hash
    }
}

/// A value that fingerprints include.
trait Feed {
    fn feed(&self, hash: &mut Fingerprint);
}

macro_rules! numbers {
    ($($type:ty),*) => {
        $(impl Feed for $type {
            fn feed(&self, hash: &mut Fingerprint) {
                hash.add(&self.to_le_bytes());
            }
        })*
    };
}

numbers!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

impl Feed for usize {
    fn feed(&self, hash: &mut Fingerprint) {
        (*self as u64).feed(hash);
    }
}

impl Feed for bool {
    fn feed(&self, hash: &mut Fingerprint) {
        u8::from(*self).feed(hash);
    }
}

impl Feed for String {
    fn feed(&self, hash: &mut Fingerprint) {
        hash.add_text(self);
    }
}

impl Feed for Strings {
    fn feed(&self, hash: &mut Fingerprint) {
        self.len().feed(hash);
        self.iter().for_each(|text| hash.add_text(text));
    }
}

impl<T: Feed> Feed for Vec<T> {
    fn feed(&self, hash: &mut Fingerprint) {
        self.len().feed(hash);
        self.iter().for_each(|element| element.feed(hash));
    }
}

macro_rules! variants {
    ($type:ident: $($variant:ident)*) => {
        impl Feed for $type {
            fn feed(&self, hash: &mut Fingerprint) {
                hash.add_text(self.type_name());
                match self {
                    $(Self::$variant(content) => content.feed(hash)),*
                }
            }
        }
    };
}

variants!(Value: U8 I8 U16 I16 U32 I32 F32 Bool String Array U64 I64 F64);
variants!(Array: U8 I8 U16 I16 U32 I32 F32 Bool String Array U64 I64 F64);
