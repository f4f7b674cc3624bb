//! What a rendering may make in all. Texts and lists that a template has let go count on, as nobody says when it does.

use std::io;

use minijinja::{
    Error, ErrorKind, State,
    value::{Value, ValueKind},
};

/// The most bytes that a template may write, or make at once: more than any context holds.
pub(super) const MAX_TEXT: usize = 64 << 20;

/// The most bytes of texts and lists that one rendering may make: every text is made a few times on its way.
pub(super) const MAX_MADE: usize = 5 * MAX_TEXT;

/// How deep lists and dicts may nest.
pub(super) const MAX_DEPTH: usize = 64;

/// What an item takes in a list.
pub(super) const ITEM: usize = size_of::<Value>();

/// What an item takes that is a list itself.
pub(super) const ITEM_LIST: usize = 5 * ITEM;

/// What was written so far.
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

/// The bytes made so far, a state's extension.
#[derive(Default)]
struct Made(usize);

/// Counts what is about to be made.
pub(super) fn spend(state: &mut State, bytes: usize) -> Result<(), Error> {
    let Made(made) = state.get_or_insert_extension_with(Made::default);
    *made = made.saturating_add(bytes);
    if *made <= MAX_MADE {
        return Ok(());
    }
    let what = format!("makes more than {} MB of texts and lists", MAX_MADE >> 20);
    Err(Error::new(ErrorKind::InvalidOperation, what))
}

/// Refuses a text of more bytes than a template may write.
pub(super) fn check_text(length: Option<usize>) -> Result<(), Error> {
    if length.is_some_and(|length| length <= MAX_TEXT) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidOperation, format!("a text is longer than {} MB", MAX_TEXT >> 20)))
}

/// What a text takes, or a list without what is in it. Nothing else grows.
pub(super) fn size(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        ValueKind::Seq | ValueKind::Iterable => items(value).saturating_mul(ITEM),
        _ => 0,
    }
}

/// What a value's text takes with all that is in it, and room for each item; an error where that is more than a template may
/// write. A list may have itself within it many times over, and take no room.
pub(super) fn text_size(value: &Value) -> Result<usize, Error> {
    let mut left = MAX_TEXT;
    check_text(take(value, &mut left, 0).then_some(0))?;
    Ok(MAX_TEXT - left)
}

/// Takes a value's text off what is left; `false` where it is more.
fn take(value: &Value, left: &mut usize, depth: usize) -> bool {
    let length = value.as_str().map_or(0, str::len) + if depth > 0 { ITEM } else { 0 };
    if length > *left || depth > MAX_DEPTH {
        return false;
    }
    *left -= length;
    let mut inside = |value: &Value| take(value, left, depth + 1);
    match (value.kind(), value.try_iter()) {
        (ValueKind::Seq | ValueKind::Iterable, Ok(mut items)) => items.all(|item| inside(&item)),
        (ValueKind::Map, Ok(mut names)) => {
            names.all(|name| inside(&name) && value.get_item(&name).is_ok_and(|value| inside(&value)))
        }
        (ValueKind::Seq | ValueKind::Iterable | ValueKind::Map, Err(_)) => false,
        _ => true,
    }
}

/// How many items a list has, counted where it does not say.
fn items(list: &Value) -> usize {
    list.len().unwrap_or_else(|| list.try_iter().map_or(0, |items| items.take(MAX_MADE / ITEM + 1).count()))
}
