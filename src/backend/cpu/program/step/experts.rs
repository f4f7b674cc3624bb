//! How a thread does its share of each stage of a layer of experts.

use super::context::Walk;
use crate::{
    backend::cpu::{
        kernels::{product::Input, quantize::Activations},
        program::{
            experts::{Experts, Slots, Stage},
            task::stretch,
        },
        threads::pool::Worker,
    },
    quant::ROWS,
};

impl Walk<'_> {
    /// Does this thread's share of a stage, which is task `index` of the step.
    ///
    /// # Safety
    /// As for [`Walk::perform`].
    pub(crate) unsafe fn experts(&self, index: usize, stage: Stage, experts: &Experts, worker: Worker<'_>) {
        let slots = self.slots_of(experts);
        // SAFETY: the stages come in order, with all threads meeting where one reads what others wrote.
        unsafe {
            match stage {
                Stage::Group if worker.number > 0 => {}
                Stage::Group => slots.group(|row| self.row(experts.weights, row)),
                Stage::Spread => {
                    worker.share(self.rows(experts.x.rows)).for_each(|row| self.spread(experts, &slots, row))
                }
                Stage::GateUp => self.gate_up(index, experts, &slots, worker),
                Stage::Quantize if !experts.down.matrix.is_quantized() => {}
                Stage::Quantize => {
                    let share = worker.share(slots.count());
                    share.for_each(|slot| (self.kernels.quantize)(slots.gated.row(slot), &slots.coded_gated, slot));
                }
                Stage::Down => self.down(index, experts, &slots, worker),
                Stage::Sum => worker.share(self.rows(experts.out.rows)).for_each(|row| self.sum(experts, &slots, row)),
            }
        }
    }

    fn slots_of(&self, experts: &Experts) -> Slots {
        Slots::new(self.experts, experts.sizes, self.rows(experts.x.rows))
    }

    /// How many experts a stage after the first reads the matrices of.
    pub(crate) fn active_experts(&self, experts: &Experts) -> usize {
        // SAFETY: the caller's thread has been at the first stage, where it alone groups.
        unsafe { self.slots_of(experts).active().len() }
    }

    unsafe fn spread(&self, experts: &Experts, slots: &Slots, row: usize) {
        let x = self.row(experts.x, row);
        let matrices = [&experts.gate.matrix, &experts.up.matrix];
        // SAFETY: a row's slots are its own.
        unsafe {
            if matrices.iter().any(|matrix| matrix.is_quantized()) {
                let mut to = slots.of_row(row);
                if let Some(first) = to.next() {
                    (self.kernels.quantize)(x, &slots.coded, first);
                    to.for_each(|slot| slots.coded.copy(first, slot));
                }
            }
            if !matrices.iter().all(|matrix| matrix.is_quantized()) {
                slots.of_row(row).for_each(|slot| slots.plain.row(slot).copy_from_nonoverlapping(x, experts.x.width));
            }
        }
    }

    /// Calls `each` for groups of sixteen rows of the experts that have slots, expert by expert: with the expert, the
    /// group and the expert's slots.
    unsafe fn each_group(
        &self,
        index: usize,
        [groups, bytes]: [usize; 2],
        slots: &Slots,
        worker: Worker<'_>,
        each: impl Fn(usize, usize, std::ops::Range<usize>),
    ) {
        // SAFETY: the slots were grouped before.
        let (active, count) = unsafe { (slots.active(), slots.count()) };
        let step = stretch(groups, bytes, count.div_ceil(active.len().max(1)));
        worker.each_part(index, active.len() * groups, step, |pieces| {
            for piece in pieces {
                let expert = active[piece / groups] as usize;
                // SAFETY: as above.
                each(expert, piece % groups, unsafe { slots.of_expert(expert) });
            }
        });
    }

    unsafe fn gate_up(&self, index: usize, experts: &Experts, slots: &Slots, worker: Worker<'_>) {
        let Experts { gate, up, .. } = experts;
        let c: *mut f32 = self.scratch[worker.number].as_ptr().cast();
        let times = self.kernels.activate(experts.spec.activation).times;
        let work = [gate.groups(), experts.bytes_each(Stage::GateUp)];
        // SAFETY: the scratch holds two results of sixteen rows; a group's results are this thread's alone.
        unsafe {
            self.each_group(index, work, slots, worker, |expert, group, own| {
                let tokens = own.len();
                let plain = slots.plain.row(own.start);
                let input = Input { quantized: slots.coded.from(own.start), plain, stride: slots.plain.stride, tokens };
                let c_up = c.add(ROWS * tokens);
                (self.kernels.product)(&gate.matrix, gate.group(expert, group), &input, c);
                (self.kernels.product)(&up.matrix, up.group(expert, group), &input, c_up);
                times(c, c_up, c, ROWS * tokens);
                let first = group * ROWS;
                let len = ROWS.min(slots.gated.width - first);
                for (token, slot) in own.enumerate() {
                    slots.gated.row(slot).add(first).copy_from_nonoverlapping(c.add(token * ROWS), len);
                }
            });
        }
    }

    unsafe fn down(&self, index: usize, experts: &Experts, slots: &Slots, worker: Worker<'_>) {
        let down = &experts.down;
        let c: *mut f32 = self.scratch[worker.number].as_ptr().cast();
        let work = [down.groups(), experts.bytes_each(Stage::Down)];
        // SAFETY: as in `gate_up`.
        unsafe {
            self.each_group(index, work, slots, worker, |expert, group, own| {
                let quantized: Activations = slots.coded_gated.from(own.start);
                let plain = slots.gated.row(own.start);
                let input = Input { quantized, plain, stride: slots.gated.stride, tokens: own.len() };
                (self.kernels.product)(&down.matrix, down.group(expert, group), &input, c);
                let first = group * ROWS;
                for (token, slot) in own.enumerate() {
                    let (from, to) = (c.add(token * ROWS), slots.results.row(slot).add(first));
                    let weight = slots.weight(slot);
                    (0..ROWS.min(slots.results.width - first)).for_each(|i| *to.add(i) = weight * *from.add(i));
                }
            });
        }
    }

    unsafe fn sum(&self, experts: &Experts, slots: &Slots, row: usize) {
        let (out, width) = (self.row(experts.out, row), experts.out.width);
        // SAFETY: the row is this thread's.
        unsafe {
            out.write_bytes(0, width);
            slots.of_row(row).for_each(|slot| (self.kernels.add)(out, slots.results.row(slot), out, width));
        }
    }
}
