//! Compiles kernels ahead of their first step, on a thread of its own: otherwise that step would
//! wait for the driver's compiler, a second and more.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use super::{context::Context, kernel::Kernel, program::GpuProgram};

/// A thread that compiles kernels. Dropping it ends the thread after the kernel at hand.
pub(super) struct WarmUp {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WarmUp {
    /// Starts to compile all kernels of some programs.
    pub fn start<'a>(context: &Arc<Context>, programs: impl IntoIterator<Item = &'a GpuProgram>) -> Self {
        let commands = programs.into_iter().flat_map(|program| &program.commands);
        let kernels: Vec<_> =
            commands.flat_map(|command| command.variants.iter().map(|kernel| (command.op, kernel.clone()))).collect();
        let (context, stop) = (context.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let compile = move || {
            for (op, kernel) in kernels {
                if stopped.load(Relaxed) || compile(&context, op, &kernel).is_err() {
                    // The step that needs the kernel returns the error.
                    return;
                }
            }
        };
        // Without a thread, the first step compiles its kernels.
        Self { stop, thread: thread::Builder::new().name("inkstone-kernels".into()).spawn(compile).ok() }
    }

    /// Returns whether the thread has ended.
    pub fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

fn compile(context: &Context, op: &str, kernel: &Kernel) -> crate::Result<()> {
    context.pipeline(op, &kernel.source(&context.templates)?, &kernel.writes()).map(drop)
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
