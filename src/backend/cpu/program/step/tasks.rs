//! The walk of a thread through the tasks of a step.

use super::context::Walk;
use crate::{
    Result,
    backend::cpu::{
        kernels::{quantize::Activations, rope, route::route},
        program::{
            profile::{PREPARE, Profile, WAIT},
            task::Task,
        },
        threads::pool::Worker,
    },
};

/// Does this thread's share of all tasks.
pub(crate) fn walk_tasks(
    tasks: &[(&'static str, Task)],
    walk: &Walk<'_>,
    worker: Worker<'_>,
    mut profile: Option<&mut Profile>,
) -> Result<()> {
    let mut lap = |op, task: Option<&Task>| {
        if let Some(profile) = &mut profile {
            profile.lap(op, task.map_or(0, |task| walk.bytes_of(task)));
        }
    };
    lap(PREPARE, None);
    let mut result = Ok(());
    for (index, (op, task)) in tasks.iter().enumerate() {
        if index > 0 && tasks[index - 1].1.must_wait_before(task) {
            let all_came = worker.wait();
            lap(WAIT, None);
            if !all_came {
                break;
            }
        }
        // A thread that failed goes on to meet the others at the barriers.
        if result.is_ok() {
            // SAFETY: `make_ready` checked the step, the threads share each task's work without overlap, and meet
            // where the next task reads what others wrote.
            result = unsafe { walk.perform(index, task, worker) };
            lap(op, Some(task));
        }
    }
    result
}

impl Walk<'_> {
    /// Does this thread's share of a task, which is number `index` of the step.
    ///
    /// # Safety
    /// The step fits the memory, the cache pages and the tasks, and all threads are at the same task or at one that
    /// needs no barrier before it.
    pub unsafe fn perform(&self, index: usize, task: &Task, worker: Worker<'_>) -> Result<()> {
        let kernels = self.kernels;
        // SAFETY: rows are divided among the threads; widths are those that the plan's shapes promise.
        unsafe {
            match task {
                Task::Embed { table, out } => return self.embed(table, *out, worker),
                Task::Angles { frequencies, index } => {
                    let (table, width) = self.angles[*index];
                    for token in worker.share(self.step.tokens.len()) {
                        let out = std::slice::from_raw_parts_mut(table.add(token * width), width);
                        rope::angles(self.position(token), frequencies, out);
                    }
                }
                Task::Quantize { x } => {
                    let rows = self.rows(x.rows);
                    debug_assert!(Activations::bytes(rows, x.width) <= self.activations.len());
                    let to = Activations::new(self.activations, rows, x.width);
                    worker.share(rows).for_each(|row| (kernels.quantize)(self.row(*x, row), &to, row));
                }
                Task::Product(product) => self.product(index, product, worker),
                Task::Binary { op, a, b, out } => self.binary(*op, *a, b, *out, worker),
                Task::Activate { activation, x, out } => {
                    for row in worker.share(self.rows(out.rows)) {
                        (kernels.activate(*activation).alone)(self.row(*x, row), self.row(*out, row), out.width);
                    }
                }
                Task::SoftCap { cap, x, out } => {
                    for row in worker.share(self.rows(out.rows)) {
                        (kernels.soft_cap)(self.row(*x, row), *cap, self.row(*out, row), out.width);
                    }
                }
                Task::Slice { first, len, every, x, out } => self.slice([*first, *len, *every], *x, *out, worker),
                Task::RmsNorm { x, w, eps, out } => {
                    for row in worker.share(self.rows(out.rows)) {
                        let [x, out_row] = [self.row(*x, row), self.row(*out, row)];
                        for at in (0..out.width).step_by(w.len()) {
                            (kernels.rms_norm)(x.add(at), w.as_ptr(), *eps, out_row.add(at), w.len());
                        }
                    }
                }
                Task::AddRmsNorm { a, b, w, eps, sum, out } => {
                    for row in worker.share(self.rows(out.rows)) {
                        let sum = self.row(*sum, row);
                        (kernels.add)(self.row(*a, row), self.row(*b, row), sum, out.width);
                        (kernels.rms_norm)(sum, w.as_ptr(), *eps, self.row(*out, row), out.width);
                    }
                }
                Task::Rope { spec, x, angles, out } => {
                    for row in worker.share(self.rows(out.rows)) {
                        let angles = self.angles(*angles, row);
                        rope::rotate(*spec, self.row(*x, row), angles, self.row(*out, row), out.width);
                    }
                }
                Task::Route { used, logits, out } => {
                    let mut taken = Vec::with_capacity(*used);
                    for row in worker.share(self.rows(out.rows)) {
                        let logits = std::slice::from_raw_parts(self.row(*logits, row), out.width);
                        let out = std::slice::from_raw_parts_mut(self.row(*out, row), out.width);
                        route(logits, *used, &mut taken, out);
                    }
                }
                Task::Experts(stage, experts) => self.experts(index, *stage, experts, worker),
                Task::Append { spec, k, v } => self.append(spec, *k, *v, worker),
                Task::Attend { spec, q, out } => self.attend(index, spec, *q, *out, worker),
                Task::ShortConv { spec, x, w, out } => self.short_conv(index, spec, *x, w, *out, worker),
                Task::GatedDelta(delta) => self.gated_delta(index, delta, worker),
                Task::Select { x, out } => {
                    for row in worker.share(self.step.outputs.len()) {
                        let from = self.row(*x, self.step.outputs[row]);
                        self.row(*out, row).copy_from_nonoverlapping(from, out.width);
                    }
                }
            }
        }
        Ok(())
    }
}
