//! Reads numbers, strings and arrays from untrusted bytes.
//!
//! In come the file's bytes, out come owned values or the words for what is wrong; the caller adds the file, key or
//! tensor. Every length is compared with the bytes that remain before anything is allocated or skipped, so memory
//! stays proportional to the file, whatever its counts claim.

/// A value, or what is wrong, in words that follow the name of a key or tensor.
pub(super) type Parsed<T> = Result<T, String>;

/// A position in the file's bytes.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The offset of the next byte from the start of the file.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Refuses a count of things, each at least `min_bytes` long, that the rest of the file cannot hold.
    pub(super) fn expect(&self, count: u64, min_bytes: usize) -> Parsed<usize> {
        let room = (self.bytes.len() - self.at) / min_bytes;
        match usize::try_from(count) {
            Ok(count) if count <= room => Ok(count),
            _ => Err(format!(
                "needs {} bytes at byte {}, but the file ends at byte {}: it is truncated or damaged",
                u128::from(count) * min_bytes as u128,
                self.at,
                self.bytes.len()
            )),
        }
    }

    /// The next `count` elements of `size` bytes each.
    fn take(&mut self, count: u64, size: usize) -> Parsed<&'a [u8]> {
        let end = self.at + self.expect(count, size)? * size;
        let bytes = &self.bytes[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    /// The next string.
    pub(super) fn text(&mut self) -> Parsed<&'a str> {
        let len = self.read()?;
        str::from_utf8(self.take(len, 1)?).map_err(|e| format!("is not UTF-8: {e}"))
    }

    /// The next number, string or other element.
    pub(super) fn read<T: Element>(&mut self) -> Parsed<T> {
        T::read(self, 0)
    }
}

/// What metadata can hold, alone or in an array.
pub(super) trait Element: Sized {
    /// The fewest bytes that one takes in the file.
    const MIN_BYTES: usize;

    /// Reads one, which lies in `depth` arrays.
    fn read(cursor: &mut Cursor, depth: usize) -> Parsed<Self>;

    /// Reads `count` of them, each in `depth` arrays.
    fn read_many(cursor: &mut Cursor, count: u64, depth: usize) -> Parsed<Vec<Self>> {
        cursor.expect(count, Self::MIN_BYTES)?;
        // Room is made for what is read, not for what is claimed: nested arrays could claim it at every level.
        let mut elements = Vec::new();
        for index in 0..count {
            let element = Self::read(cursor, depth).map_err(|what| format!("(element {index}) {what}"))?;
            elements.try_reserve(1).map_err(|e| e.to_string())?;
            elements.push(element);
        }
        Ok(elements)
    }
}

/// The elements of an array.
pub(super) trait Elements: Sized {
    /// Reads `count` elements, each in `depth` arrays.
    fn read(cursor: &mut Cursor, count: u64, depth: usize) -> Parsed<Self>;
}

impl<T: Element> Elements for Vec<T> {
    fn read(cursor: &mut Cursor, count: u64, depth: usize) -> Parsed<Self> {
        T::read_many(cursor, count, depth)
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Element for $number {
            const MIN_BYTES: usize = size_of::<Self>();

            fn read(cursor: &mut Cursor, _depth: usize) -> Parsed<Self> {
                let mut bytes = [0; size_of::<Self>()];
                bytes.copy_from_slice(cursor.take(1, Self::MIN_BYTES)?);
                Ok(Self::from_le_bytes(bytes))
            }

            fn read_many(cursor: &mut Cursor, count: u64, _depth: usize) -> Parsed<Vec<Self>> {
                let (numbers, _) = cursor.take(count, Self::MIN_BYTES)?.as_chunks();
                let mut elements = Vec::new();
                elements.try_reserve_exact(numbers.len()).map_err(|e| e.to_string())?;
                elements.extend(numbers.iter().map(|&bytes| Self::from_le_bytes(bytes)));
                Ok(elements)
            }
        }
    )*};
}

numbers!(u8, i8, u16, i16, u32, i32, f32, u64, i64, f64);

impl Element for bool {
    const MIN_BYTES: usize = 1;

    fn read(cursor: &mut Cursor, depth: usize) -> Parsed<Self> {
        match u8::read(cursor, depth)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("is a bool of value {other}, neither 0 nor 1")),
        }
    }
}

impl Element for String {
    const MIN_BYTES: usize = size_of::<u64>();

    fn read(cursor: &mut Cursor, _depth: usize) -> Parsed<Self> {
        let text = cursor.text()?;
        let mut string = Self::new();
        string.try_reserve_exact(text.len()).map_err(|e| e.to_string())?;
        string.push_str(text);
        Ok(string)
    }
}

/// A name from the file, fit for a message: clipped, and with control characters escaped.
pub(crate) fn quoted(name: &str) -> String {
    const LONGEST: usize = 96;
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("`{}…`", name[..end].escape_debug()),
        None => format!("`{}`", name.escape_debug()),
    }
}
