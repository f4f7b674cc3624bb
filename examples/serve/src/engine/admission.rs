//! Bounds the requests that the server works for at a time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Counts the requests whose bodies are read, and that wait or run.
pub struct Admissions {
    count: Arc<AtomicUsize>,
    most: usize,
}

/// The place of a request, which dropping gives back.
pub struct Admission(Arc<AtomicUsize>);

impl Admissions {
    /// Returns a counter of up to `most` requests.
    pub fn new(most: usize) -> Self {
        Self { count: Arc::default(), most }
    }

    /// Returns a place, unless there are too many requests.
    pub fn admit(&self) -> Option<Admission> {
        let add = |count| (count < self.most).then_some(count + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Admission(self.count.clone()))
    }

    /// Returns the number of places taken.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
