//! An array of strings, as vocabularies have them.

use std::fmt;

use super::read::{Cursor, Element, Elements, Parsed};

/// The strings of an array, in one piece of memory: a vocabulary has hundreds of thousands, each too short for an
/// allocation of its own.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl Strings {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`, counted from 0.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..end])
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.text[std::mem::replace(&mut start, end)..end])
    }
}

impl Elements for Strings {
    fn read(cursor: &mut Cursor, count: u64, _depth: usize) -> Parsed<Self> {
        cursor.expect(count, String::MIN_BYTES)?;
        let mut strings = Self::default();
        for index in 0..count {
            let text = cursor.text().map_err(|what| format!("(element {index}) {what}"))?;
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
