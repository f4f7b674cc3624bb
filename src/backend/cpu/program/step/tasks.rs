//! Runs the tasks of a step in order.

use super::context::StepContext;
use crate::{
    Result,
    backend::cpu::{
        program::{
            profile::{PREPARE, Profile, WAIT},
            task::Task,
        },
        threads::pool::Worker,
    },
};

/// Does a thread's share of all tasks, and measures their times in `profile`.
///
/// # Errors
/// If a weight cannot be read. The other threads still finish their shares.
///
/// # Safety
/// - `tasks` belong to the plan that `context` was made for.
/// - `Bounds` has checked the step, and memory and cache have room for it.
/// - Every thread of the call runs this function with the same tasks and context.
/// - Only thread 0 has a profile.
pub(crate) unsafe fn run_tasks(
    tasks: &[(&'static str, Task)],
    context: &StepContext<'_>,
    worker: Worker<'_>,
    mut profile: Option<&mut Profile>,
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
            let all_arrived = worker.wait();
            record(WAIT, None);
            if !all_arrived {
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
                Task::Quantize { x } => self.quantize(*x, worker),
                Task::Product(product) => self.product(index, product, worker),
                Task::Binary { op, a, b, out } => self.binary(*op, *a, b, *out, worker),
                Task::Activate { activation, x, out } => self.activate(*activation, *x, *out, worker),
                Task::SoftCap { cap, x, out } => self.soft_cap(*cap, *x, *out, worker),
                Task::Clamp { lower, upper, x, out } => self.clamp([*lower, *upper], *x, *out, worker),
                Task::Concat { operands, out } => self.concat(operands, *out, worker),
                Task::LayerNorm { x, w, b, eps, out } => self.layer_norm(*x, [w, b], *eps, *out, worker),
                Task::JoinRows { count, x, out } => self.join_rows(*count, *x, *out, worker),
                Task::InputRows { out } => self.input_rows(*out, worker),
                Task::MixRows { mix, first, x, out } => self.mix_rows(*mix, *first, *x, *out, worker),
                Task::Interpolate { table, taps, out } => return self.interpolate(table, *taps, *out, worker),
                Task::Slice { slice, x, out } => self.slice(*slice, *x, *out, worker),
                Task::RmsNorm { x, w, eps, out } => self.rms_norm(*x, w, *eps, *out, worker),
                Task::AddRmsNorm(task) => self.add_rms_norm(task, worker),
                Task::Rope { spec, x, angles, out } => self.rope(spec, *x, *angles, *out, worker),
                Task::Route { top_k, logits, out } => self.route(*top_k, *logits, *out, worker),
                Task::Experts(stage, layer) => self.experts(index, *stage, layer, worker),
                Task::Append { spec, k, v } => self.append(spec, *k, *v, worker),
                Task::Attend { spec, q, out } => self.attend(index, spec, *q, *out, worker),
                Task::ShortConv { spec, x, w, out } => self.short_conv(index, spec, *x, w, *out, worker),
                Task::GatedDelta(delta) => self.gated_delta(index, delta, worker),
                Task::Select { x, out } => self.select(*x, *out, worker),
            }
        }
        Ok(())
    }
}
