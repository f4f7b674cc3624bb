//! The future for the result of a request.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use futures_channel::oneshot::Receiver;

use super::{StopOnDrop, ended};
use crate::{Result, generate::StopHandle};

/// The result of a request to an [`AsyncRunner`](crate::AsyncRunner): a future of `Result<T>`.
///
/// The request runs even if the future is not polled. Dropping the future stops the request, or
/// cancels it if it has not started.
#[must_use = "a future that is dropped stops its request"]
pub struct Reply<T> {
    result: Receiver<Result<T>>,
    stop: StopOnDrop,
}

impl<T> Reply<T> {
    pub(super) fn new(result: Receiver<Result<T>>) -> Self {
        Self { result, stop: StopOnDrop::default() }
    }

    pub(super) fn stop_handle(&self) -> StopHandle {
        self.stop.handle()
    }
}

impl<T> Future for Reply<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.result).poll(context).map(|result| result.unwrap_or_else(|_| Err(ended())))
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}
