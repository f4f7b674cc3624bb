//! Stores an array of strings, such as a vocabulary.

use std::fmt;

use super::read::{ByteReader, Parsed, ReadElement, ReadElements};

/// An array of strings in a single allocation: a vocabulary has hundreds of thousands of short
/// strings.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    /// End of each string in `text`, in bytes.
    ends: Vec<usize>,
}

impl Strings {
    /// Returns the number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the string at `index`, counted from 0.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..end])
    }

    /// Returns an iterator over all strings, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.text[std::mem::replace(&mut start, end)..end])
    }
}

impl ReadElements for Strings {
    fn read(reader: &mut ByteReader, count: u64, _depth: usize) -> Parsed<Self> {
        reader.expect(count, String::MIN_BYTES)?;
        let mut strings = Self::default();
        for index in 0..count {
            let text = reader.text().map_err(|what| format!("(element {index}) {what}"))?;
            strings.text.try_reserve(text.len()).map_err(|e| e.to_string())?;
            strings.text.push_str(text);
            strings.ends.try_reserve(1).map_err(|e| e.to_string())?;
            strings.ends.push(strings.text.len());
        }
        Ok(strings)
    }
}

impl<'t> FromIterator<&'t str> for Strings {
    fn from_iter<I: IntoIterator<Item = &'t str>>(texts: I) -> Self {
        let mut strings = Self::default();
        for text in texts {
            strings.text.push_str(text);
            strings.ends.push(strings.text.len());
        }
        strings
    }
}

impl fmt::Debug for Strings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
