//! Compiles kernels ahead of their first step, on threads of its own: otherwise that step would
//! wait for the driver's compiler, a second and more.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use super::{
    context::Context,
    parallel,
    program::{KernelIndex, Kernels},
};
use crate::Error;

/// Largest number of threads that compile.
const THREADS: usize = 16;

/// Threads that compile kernels. Dropping them ends each after the kernel at hand.
pub(super) struct WarmUp {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WarmUp {
    /// Starts to compile kernels.
    pub fn start(context: &Arc<Context>, kernels: Vec<(Arc<Kernels>, KernelIndex)>) -> Self {
        let (context, stop) = (context.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let compile = move || {
            // The step that needs the kernel returns the error.
            let compile = |(kernels, index): (Arc<Kernels>, _)| match stopped.load(Relaxed) {
                true => Err(Error::Cancelled),
                false => kernels.pipeline(&context, index).map(drop),
            };
            _ = parallel::for_each(kernels, THREADS, compile, |()| ());
        };
        // Without a thread, the first step compiles its kernels.
        Self { stop, thread: thread::Builder::new().name("inkstone-kernels".into()).spawn(compile).ok() }
    }

    /// Returns whether the kernels are compiled.
    pub fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for WarmUp {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // Compilation returns its errors, and does not panic.
            _ = thread.join();
        }
    }
}
