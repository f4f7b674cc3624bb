//! Returns the failures of the `tokenizers` crate as errors: it panics on files that contradict
//! themselves, and drops the errors of normalizers.

use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
};

thread_local! {
    /// The error of the last normalizer that failed on this thread.
    static DROPPED: Cell<Option<String>> = const { Cell::new(None) };
}

/// Keeps the error of a normalizer for [`catch_failures`].
pub(super) fn keep_error(error: &tokenizers::Error) {
    DROPPED.set(Some(error.to_string()));
}

/// Calls code of the crate, and returns a panic and an error that it dropped as errors.
pub(super) fn catch_failures<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    DROPPED.set(None);
    // Unwind safe: the call's result is lost, and of a tokenizer it changes the cache alone, which
    // is locked.
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        Err(format!("the `tokenizers` crate cannot run this tokenizer.json: {}", message(&*panic)))
    });
    DROPPED.take().map_or(result, Err)
}

/// Returns the message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}
