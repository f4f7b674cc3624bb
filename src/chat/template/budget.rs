//! Limits the memory of one rendering: its output, and all texts and lists that it creates.
//!
//! Values count even after the template has dropped them, because minijinja does not report drops.

use std::io;

use minijinja::{
    Error, ErrorKind, State,
    value::{Value, ValueKind},
};

/// The largest size in bytes of a rendered prompt or of one text: more than any context holds.
pub(super) const MAX_TEXT: usize = 64 << 20;

/// The largest total size in bytes of texts and lists that one rendering may create. Each text is
/// copied a few times while it is rendered.
pub(super) const MAX_TOTAL: usize = 5 * MAX_TEXT;

/// The largest width of padding in characters, or number of parts of a list, that a template may
/// request.
pub(super) const MAX_WIDTH: usize = 9999;

/// The deepest nesting of lists and dicts.
pub(super) const MAX_DEPTH: usize = 64;

/// The size in bytes of an item in a list.
pub(super) const ITEM: usize = size_of::<Value>();

/// The size in bytes of an item that is a short list itself.
pub(super) const ITEM_LIST: usize = 5 * ITEM;

/// The rendered prompt so far, limited to [`MAX_TEXT`] bytes.
#[derive(Default)]
pub(super) struct Output {
    pub bytes: Vec<u8>,
}

impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_TEXT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Number of bytes spent so far; an extension of minijinja's state.
#[derive(Default)]
struct SpentBytes(usize);

/// Adds the size of a value that is about to be created. An error if the budget is exceeded.
pub(super) fn spend(state: &mut State, bytes: usize) -> Result<(), Error> {
    let SpentBytes(spent) = state.get_or_insert_extension_with(SpentBytes::default);
    *spent = spent.saturating_add(bytes);
    if *spent <= MAX_TOTAL {
        return Ok(());
    }
    let what = format!(
        "makes more than {} MB of texts and lists: shorten the conversation or correct the template",
        MAX_TOTAL >> 20
    );
    Err(Error::new(ErrorKind::InvalidOperation, what))
}

/// Returns an error for a text longer than [`MAX_TEXT`]; `None` is a length that overflowed.
pub(super) fn check_text(length: Option<usize>) -> Result<(), Error> {
    if length.is_some_and(|length| length <= MAX_TEXT) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidOperation,
        format!("a text is longer than {} MB: shorten the conversation or correct the template", MAX_TEXT >> 20),
    ))
}

/// Returns an error for a width or a number of parts over [`MAX_WIDTH`].
pub(super) fn check_width(width: Option<usize>) -> Result<(), Error> {
    if width.is_none_or(|width| width <= MAX_WIDTH) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidOperation, format!("a width or count is more than {MAX_WIDTH}")))
}

/// Returns the size in bytes of a text, or of a list without its items' contents; 0 for other
/// values, whose size is bounded.
pub(super) fn size(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        ValueKind::Seq | ValueKind::Iterable => item_count(value).saturating_mul(ITEM),
        _ => 0,
    }
}

/// Returns the size in bytes of a value's text, contents included, with [`ITEM`] bytes for each
/// item. An error if it exceeds [`MAX_TEXT`]: values can share contents, so that a small value has
/// a text of exponential size.
pub(super) fn text_size(value: &Value) -> Result<usize, Error> {
    let mut remaining = MAX_TEXT;
    check_text(subtract_text(value, &mut remaining, 0).then_some(0))?;
    Ok(MAX_TEXT - remaining)
}

/// Subtracts the size of a value's text from `remaining`; returns false if it is larger.
fn subtract_text(value: &Value, remaining: &mut usize, depth: usize) -> bool {
    let length = value.as_str().map_or(0, str::len) + if depth > 0 { ITEM } else { 0 };
    if length > *remaining || depth > MAX_DEPTH {
        return false;
    }
    *remaining -= length;
    let mut fits = |value: &Value| subtract_text(value, remaining, depth + 1);
    match (value.kind(), value.try_iter()) {
        (ValueKind::Seq | ValueKind::Iterable, Ok(mut items)) => items.all(|item| fits(&item)),
        (ValueKind::Map, Ok(mut names)) => {
            names.all(|name| fits(&name) && value.get_item(&name).is_ok_and(|value| fits(&value)))
        }
        (ValueKind::Seq | ValueKind::Iterable | ValueKind::Map, Err(_)) => false,
        _ => true,
    }
}

/// Returns the number of items of a list, counted up to the budget if the list does not know it.
fn item_count(list: &Value) -> usize {
    list.len().unwrap_or_else(|| list.try_iter().map_or(0, |items| items.take(MAX_TOTAL / ITEM + 1).count()))
}
