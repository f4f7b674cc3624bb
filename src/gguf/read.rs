//! Reads numbers, strings and arrays from untrusted bytes.
//!
//! Errors are strings to which the caller prepends the file, key or tensor. Every length is
//! compared with the number of remaining bytes before memory is allocated or bytes are skipped, so
//! memory use is proportional to the file size even if a count in the file is wrong.

/// A value, or an error message that continues a sentence starting with the name of a key or
/// tensor.
pub(super) type Parsed<T> = Result<T, String>;

/// The end of every error about a number that this crate does not know.
pub(super) const DAMAGED_OR_NEWER: &str = "the file is damaged, or needs a newer version of inkstone";

/// A read position in the bytes of a file.
pub(super) struct ByteReader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> ByteReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// Returns the offset of the next byte from the start of the file.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Converts `count` to `usize`, or returns an error if the rest of the file is too short for
    /// that number of elements of at least `min_bytes` bytes each.
    pub(super) fn expect(&self, count: u64, min_bytes: usize) -> Parsed<usize> {
        let most = (self.bytes.len() - self.position) / min_bytes;
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(format!(
                "needs {} bytes at byte {}, but the file ends at byte {}: it is truncated or damaged",
                u128::from(count) * min_bytes as u128,
                self.position,
                self.bytes.len()
            )),
        }
    }

    /// Returns the bytes of the next `count` elements of `size` bytes each.
    fn take(&mut self, count: u64, size: usize) -> Parsed<&'a [u8]> {
        let end = self.position + self.expect(count, size)? * size;
        let bytes = &self.bytes[self.position..end];
        self.position = end;
        Ok(bytes)
    }

    /// Reads the next string.
    pub(super) fn text(&mut self) -> Parsed<&'a str> {
        let len = self.read()?;
        str::from_utf8(self.take(len, 1)?).map_err(|e| format!("is not UTF-8: {e}"))
    }

    /// Reads the next number, string or array.
    pub(super) fn read<T: ReadElement>(&mut self) -> Parsed<T> {
        T::read(self, 0)
    }
}

/// A type that metadata can contain, as a value or as the elements of an array.
pub(super) trait ReadElement: Sized {
    /// Minimum size in the file, in bytes.
    const MIN_BYTES: usize;

    /// Reads an element nested in `depth` arrays.
    fn read(reader: &mut ByteReader, depth: usize) -> Parsed<Self>;

    /// Reads `count` elements, each nested in `depth` arrays.
    fn read_many(reader: &mut ByteReader, count: u64, depth: usize) -> Parsed<Vec<Self>> {
        reader.expect(count, Self::MIN_BYTES)?;
        // Grown per element: reserving `count` would let nested arrays reserve memory at every
        // level.
        let mut elements = Vec::new();
        for index in 0..count {
            let element = Self::read(reader, depth).map_err(|what| format!("(element {index}) {what}"))?;
            elements.try_reserve(1).map_err(|e| e.to_string())?;
            elements.push(element);
        }
        Ok(elements)
    }
}

/// A container for the elements of an array.
pub(super) trait ReadElements: Sized {
    /// Reads `count` elements, each nested in `depth` arrays.
    fn read(reader: &mut ByteReader, count: u64, depth: usize) -> Parsed<Self>;
}

impl<T: ReadElement> ReadElements for Vec<T> {
    fn read(reader: &mut ByteReader, count: u64, depth: usize) -> Parsed<Self> {
        T::read_many(reader, count, depth)
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl ReadElement for $number {
            const MIN_BYTES: usize = size_of::<Self>();

            fn read(reader: &mut ByteReader, _depth: usize) -> Parsed<Self> {
                let mut bytes = [0; size_of::<Self>()];
                bytes.copy_from_slice(reader.take(1, Self::MIN_BYTES)?);
                Ok(Self::from_le_bytes(bytes))
            }

            fn read_many(reader: &mut ByteReader, count: u64, _depth: usize) -> Parsed<Vec<Self>> {
                let (numbers, _) = reader.take(count, Self::MIN_BYTES)?.as_chunks();
                let mut elements = Vec::new();
                elements.try_reserve_exact(numbers.len()).map_err(|e| e.to_string())?;
                elements.extend(numbers.iter().map(|&bytes| Self::from_le_bytes(bytes)));
                Ok(elements)
            }
        }
    )*};
}

numbers!(u8, i8, u16, i16, u32, i32, f32, u64, i64, f64);

impl ReadElement for bool {
    const MIN_BYTES: usize = 1;

    fn read(reader: &mut ByteReader, depth: usize) -> Parsed<Self> {
        match u8::read(reader, depth)? {
            0 => Ok(false),
            1 => Ok(true),
            byte => Err(format!("is a bool stored as {byte}: expected 0 or 1")),
        }
    }
}

impl ReadElement for String {
    const MIN_BYTES: usize = size_of::<u64>();

    fn read(reader: &mut ByteReader, _depth: usize) -> Parsed<Self> {
        let text = reader.text()?;
        let mut string = Self::new();
        string.try_reserve_exact(text.len()).map_err(|e| e.to_string())?;
        string.push_str(text);
        Ok(string)
    }
}

/// Formats a name from the file for an error message: shortened, with control characters escaped.
pub(crate) fn quoted(name: &str) -> String {
    const MAX_CHARS: usize = 96;
    match name.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("`{}…`", name[..end].escape_debug()),
        None => format!("`{}`", name.escape_debug()),
    }
}
