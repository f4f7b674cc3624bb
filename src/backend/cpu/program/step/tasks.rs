//! Runs the tasks of a step in order.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::context::StepContext;
use crate::{
    Result,
    backend::{
        StepProgress,
        cpu::{
            program::{
                profile::{PREPARE, Profile, WAIT},
                task::Task,
            },
            threads::pool::Worker,
        },
    },
};

/// The work of the caller's thread besides its share of the tasks.
#[derive(Default)]
pub(crate) struct CallersWork<'a, 'f> {
    /// Measures the times of the tasks.
    pub profile: Option<&'a mut Profile>,
    /// Reports the number of finished tasks, and can stop the step.
    pub progress: Option<&'a mut StepProgress<'f>>,
}

// SAFETY: a step gives it to thread 0 only, which is the thread of the caller.
unsafe impl Send for CallersWork<'_, '_> {}

/// The task before which all threads of a step stop.
pub(crate) struct StopPoint(AtomicUsize);

impl Default for StopPoint {
    fn default() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }
}

impl StopPoint {
    /// Returns whether the step has stopped.
    pub fn is_reached(&self) -> bool {
        self.0.load(Relaxed) != usize::MAX
    }

    /// Stops all threads at the barrier before a task. Thread 0 must not have arrived there.
    fn set(&self, task: usize) {
        self.0.store(task, Relaxed);
    }

    /// Returns whether a thread stops after the barrier before this task. Another thread may have
    /// set a later barrier already.
    fn is_at(&self, task: usize) -> bool {
        self.0.load(Relaxed) == task
    }
}

/// Does a thread's share of all tasks up to the stop point.
///
/// # Errors
/// If a weight cannot be read. The other threads still finish their shares.
///
/// # Safety
/// - `tasks` belong to the plan that `context` was made for.
/// - `Bounds` has checked the step, and memory and cache have room for it.
/// - Every thread of the call runs this function with the same tasks and context.
/// - Only thread 0 has work of the caller.
pub(crate) unsafe fn run_tasks(
    tasks: &[(&'static str, Task)],
    context: &StepContext<'_>,
    worker: Worker<'_>,
    CallersWork { mut profile, mut progress }: CallersWork<'_, '_>,
    stop: &StopPoint,
) -> Result<()> {
    let mut record = |op, task: Option<&Task>| {
        if let Some(profile) = &mut profile {
            // SAFETY: this is thread 0, which groups the tokens of experts, and has done its share.
            let bytes = task.map_or(0, |task| unsafe { context.bytes_read(task) });
            profile.record(op, bytes);
        }
    };
    record(PREPARE, None);
    let mut result = Ok(());
    for (index, (op, task)) in tasks.iter().enumerate() {
        if index > 0 && tasks[index - 1].1.needs_barrier_before(task) {
            if let Some(progress) = &mut progress
                && !progress(index, tasks.len())
            {
                stop.set(index);
            }
            let all_arrived = worker.wait();
            record(WAIT, None);
            if !all_arrived || stop.is_at(index) {
                break;
            }
        }
        // After an error the thread still meets the other threads at the barriers.
        if result.is_ok() {
            // SAFETY: by the caller; threads meet where a task reads the results of another thread.
            result = unsafe { context.run_task(index, task, worker) };
            record(op, Some(task));
        }
    }
    result
}

impl StepContext<'_> {
    /// Does a thread's share of task number `index`.
    ///
    /// # Errors
    /// If a weight cannot be read.
    ///
    /// # Safety
    /// As [`run_tasks`]; and all threads are at this task, or at another with no barrier in
    /// between.
    unsafe fn run_task(&self, index: usize, task: &Task, worker: Worker<'_>) -> Result<()> {
        // SAFETY: by the caller.
        unsafe {
            match task {
                Task::Embed { table, out } => return self.embed(table, *out, worker),
                Task::Angles { angles, index } => self.compute_angles(angles, *index, worker),
                Task::Quantize { x, heads } => self.quantize(*x, *heads, worker),
                Task::Product(product) => self.product(index, product, worker),
                Task::Binary { op, a, b, out } => self.binary(*op, *a, b, *out, worker),
                Task::Activate { activation, x, out } => self.activate(*activation, *x, *out, worker),
                Task::SoftCap { cap, x, out } => self.soft_cap(*cap, *x, *out, worker),
                Task::Clamp { lower, upper, x, out } => self.clamp([*lower, *upper], *x, *out, worker),
                Task::Concat { operands, groups, out } => self.concat(operands, *groups, *out, worker),
                Task::LayerNorm(norm) => self.layer_norm(norm, worker),
                Task::JoinRows { count, x, out } => self.join_rows(*count, *x, *out, worker),
                Task::InputRows { out } => self.input_rows(*out, worker),
                Task::Temper { temper, x, out } => self.temper(*temper, *x, *out, worker),
                Task::MixStreams { outputs, x, weights, out } => {
                    self.mix_streams(*outputs, [*x, *weights], *out, worker);
                }
                Task::Deviation { centered, x, out } => self.deviation(*centered, *x, *out, worker),
                Task::MixRows { mix, first, x, out } => self.mix_rows(*mix, *first, *x, *out, worker),
                Task::Interpolate { table, taps, out } => return self.interpolate(table, *taps, *out, worker),
                Task::Slice { slice, x, out } => self.slice(*slice, *x, *out, worker),
                Task::RmsNorm { x, w, eps, out } => self.rms_norm(*x, w, *eps, *out, worker),
                Task::AddRmsNorm(task) => self.add_rms_norm(task, worker),
                Task::Rope { spec, x, angles, out } => self.rope(spec, *x, *angles, *out, worker),
                Task::Route { spec, logits, bias, out } => self.route(spec, *logits, bias.as_deref(), *out, worker),
                Task::Experts(stage, layer) => self.experts(index, *stage, layer, worker),
                Task::Append { spec, k, v } => self.append(spec, *k, *v, worker),
                Task::Attend { spec, q, sinks, out } => {
                    self.attend(index, spec, [*q, *out], sinks.as_deref(), worker);
                }
                Task::ShortConv(conv) => self.short_conv(index, conv, worker),
                Task::GatedDelta(delta) => self.gated_delta(index, delta, worker),
                Task::StateScan(scan) => self.state_scan(index, scan, worker),
                Task::Select { x, out } => self.select(*x, *out, worker),
            }
        }
        Ok(())
    }
}
