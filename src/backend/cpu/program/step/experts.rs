//! Layers of experts: threads divide rows, slots, or the groups of rows of the experts' matrices.

use std::ops::Range;

use super::context::StepContext;
use crate::{
    backend::cpu::{
        kernels::product::Input,
        program::{
            expert_slots::ExpertSlots,
            experts::{ExpertMatrix, ExpertStage, ExpertsLayer},
            task::groups_at_once,
        },
        threads::{pool::Worker, work_queue::QueuedTask},
    },
    quant::ROWS,
};

/// Adds `biases` to each of `tokens` groups of [`ROWS`] numbers.
///
/// # Safety
/// `c` has the numbers, which no other thread uses; there are at most [`ROWS`] biases.
unsafe fn add_to_each(c: *mut f32, biases: &[f32], tokens: usize) {
    for token in 0..tokens {
        for (i, bias) in biases.iter().enumerate() {
            // SAFETY: by the caller.
            unsafe { *c.add(token * ROWS + i) += bias };
        }
    }
}

impl StepContext<'_> {
    /// Does a thread's share of a stage, which is task number `index`.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn experts(&self, index: usize, stage: ExpertStage, layer: &ExpertsLayer, worker: Worker<'_>) {
        let slots = self.expert_slots(layer);
        // SAFETY: by the caller; the stages run in order, with barriers between them.
        unsafe {
            match stage {
                ExpertStage::Group if worker.number > 0 => {}
                ExpertStage::Group => slots.group(|row| self.row(layer.weights, row)),
                ExpertStage::Spread => {
                    let rows = worker.share(self.row_count(layer.x.rows));
                    rows.for_each(|row| self.spread(layer, &slots, row));
                }
                ExpertStage::GateUp => self.gate_up(index, layer, &slots, worker),
                ExpertStage::Quantize if !layer.down.matrix.is_quantized() => {}
                ExpertStage::Quantize => {
                    let share = worker.share(slots.count());
                    share.for_each(|slot| (self.kernels.quantize)(slots.gated.row(slot), &slots.q8_gated, slot));
                }
                ExpertStage::Down => self.down(index, layer, &slots, worker),
                ExpertStage::Sum => {
                    let rows = worker.share(self.row_count(layer.out.rows));
                    rows.for_each(|row| self.sum_slots(layer, &slots, row));
                }
            }
        }
    }

    /// Copies a row to its slots, in the forms that gate and up read.
    ///
    /// # Safety
    /// As [`experts`](Self::experts), and the row is this thread's alone.
    unsafe fn spread(&self, layer: &ExpertsLayer, slots: &ExpertSlots, row: usize) {
        let x = self.row(layer.x, row);
        let matrices = [&layer.gate.matrix, &layer.up.matrix];
        // SAFETY: by the caller; no other row has these slots.
        unsafe {
            if matrices.iter().any(|matrix| matrix.is_quantized()) {
                let mut of_row = slots.of_row(row);
                if let Some(first) = of_row.next() {
                    (self.kernels.quantize)(x, &slots.q8_input, first);
                    of_row.for_each(|slot| slots.q8_input.copy(first, slot));
                }
            }
            if !matrices.iter().all(|matrix| matrix.is_quantized()) {
                let copy = |slot| slots.f32_input.row(slot).copy_from_nonoverlapping(x, layer.x.width);
                slots.of_row(row).for_each(copy);
            }
        }
    }

    /// Multiplies the slots of each expert with gate and up, activates and multiplies the results.
    ///
    /// # Safety
    /// As [`experts`](Self::experts).
    unsafe fn gate_up(&self, index: usize, layer: &ExpertsLayer, slots: &ExpertSlots, worker: Worker<'_>) {
        let ExpertsLayer { gate, up, .. } = layer;
        let c = self.scratch(worker);
        let gated = self.kernels.glu(layer.spec.glu);
        let bytes = layer.bytes_per_expert(ExpertStage::GateUp);
        // SAFETY: by the caller; the scratch holds two results of sixteen rows, and a group's
        // columns are this thread's alone.
        unsafe {
            self.for_each_group(index, gate, bytes, slots, worker, |expert, group, of_expert| {
                let tokens = of_expert.len();
                let q8 = slots.q8_input.skip(of_expert.start);
                let input = Input { q8, f32: slots.f32_input.skip(of_expert.start), tokens };
                let c_up = c.add(ROWS * tokens);
                (self.kernels.product)(&gate.matrix, gate.group(expert, group), &input, c);
                if gate.is_same(up) {
                    c_up.copy_from_nonoverlapping(c, ROWS * tokens);
                } else {
                    (self.kernels.product)(&up.matrix, up.group(expert, group), &input, c_up);
                }
                let first = group * ROWS;
                let len = ROWS.min(layer.sizes.ffn - first);
                if let Some(biases) = &layer.biases {
                    let [of_gate, of_up] = biases.gate_up(expert, first);
                    add_to_each(c, &of_gate[..len], tokens);
                    add_to_each(c_up, &of_up[..len], tokens);
                }
                gated(c, c_up, c, ROWS * tokens);
                for (token, slot) in of_expert.enumerate() {
                    slots.gated.row(slot).add(first).copy_from_nonoverlapping(c.add(token * ROWS), len);
                }
            });
        }
    }

    /// Multiplies the slots of each expert with down, and by the weight of the slot.
    ///
    /// # Safety
    /// As [`experts`](Self::experts).
    unsafe fn down(&self, index: usize, layer: &ExpertsLayer, slots: &ExpertSlots, worker: Worker<'_>) {
        let down = &layer.down;
        let c = self.scratch(worker);
        let bytes = layer.bytes_per_expert(ExpertStage::Down);
        // SAFETY: as in `gate_up`.
        unsafe {
            self.for_each_group(index, down, bytes, slots, worker, |expert, group, of_expert| {
                let (q8, f32) = (slots.q8_gated.skip(of_expert.start), slots.gated.skip(of_expert.start));
                let input = Input { q8, f32, tokens: of_expert.len() };
                (self.kernels.product)(&down.matrix, down.group(expert, group), &input, c);
                let first = group * ROWS;
                let len = ROWS.min(layer.sizes.hidden - first);
                if let Some(biases) = &layer.biases {
                    add_to_each(c, &biases.down(expert, first)[..len], of_expert.len());
                }
                for (token, slot) in of_expert.enumerate() {
                    let (from, to) = (c.add(token * ROWS), slots.results.row(slot).add(first));
                    let weight = slots.weight(slot);
                    (0..len).for_each(|i| *to.add(i) = weight * *from.add(i));
                }
            });
        }
    }

    /// Calls `work` with the expert, the group and the expert's slots, for each group of sixteen
    /// rows of the experts that have slots. `bytes` are those that an expert's matrices have.
    ///
    /// # Safety
    /// As [`experts`](Self::experts), after [`ExpertStage::Group`].
    unsafe fn for_each_group(
        &self,
        index: usize,
        matrix: &ExpertMatrix,
        bytes: usize,
        slots: &ExpertSlots,
        worker: Worker<'_>,
        work: impl Fn(usize, usize, Range<usize>),
    ) {
        // SAFETY: by the caller.
        let (active, count) = unsafe { (slots.active(), slots.count()) };
        let groups = matrix.groups();
        let at_once = groups_at_once(groups, bytes, count.div_ceil(active.len().max(1)));
        let task = QueuedTask { number: index, pieces: active.len() * groups, at_once };
        worker.take_from(task, |pieces| {
            for piece in pieces {
                let expert = active[piece / groups] as usize;
                // SAFETY: by the caller; there is such an expert.
                work(expert, piece % groups, unsafe { slots.of_expert(expert) });
            }
        });
    }

    /// Adds up the slots of a row.
    ///
    /// # Safety
    /// As [`experts`](Self::experts), and the row is this thread's alone.
    unsafe fn sum_slots(&self, layer: &ExpertsLayer, slots: &ExpertSlots, row: usize) {
        let (out, width) = (self.row(layer.out, row), layer.out.width);
        // SAFETY: by the caller.
        unsafe {
            out.write_bytes(0, width);
            slots.of_row(row).for_each(|slot| (self.kernels.add)(out, slots.results.row(slot), out, width));
        }
    }
}
