//! Groups the tokens of a step by their experts.
//!
//! Each (token, expert) pair has a *slot*. The slots of an expert follow one another, so its
//! matrices are read once for all of them, in the order of memory. Slots are ordered by expert,
//! then by token; the results of a token are added up in the order of its experts. The result of a
//! token is thus the same bit for bit, for any other tokens in the step.

use std::{ops::Range, slice};

use super::buffer::row_stride;
use crate::{
    backend::cpu::{
        kernels::{quantize::Q8Activations, rows::StridedRows},
        memory::aligned::AlignedBytes,
    },
    graph::Op,
    plan::{Operand, PlanStep},
};

/// Marks the end of a row's slots.
const NO_SLOT: u32 = u32::MAX;

/// The sizes that determine the memory of a layer of experts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertSizes {
    experts: usize,
    top_k: usize,
    /// Width of the layer's input and output.
    pub hidden: usize,
    /// Width between the matrices of an expert.
    pub ffn: usize,
    /// Whether gate or up is quantized.
    q8_input: bool,
    /// Whether gate or up has floats.
    f32_input: bool,
    /// Whether down is quantized.
    q8_gated: bool,
}

impl ExpertSizes {
    /// Returns the sizes of a step that is a layer of experts.
    pub fn of(step: &PlanStep) -> Option<Self> {
        let (Op::Experts(spec), [gate_up @ .., down]) = (&step.op, step.matrices()) else { return None };
        let is_float = |operand: &Operand| match operand {
            Operand::Weight { dtype, .. } => dtype.is_float(),
            Operand::Tokens | Operand::Constant(_) | Operand::Slot(_) => false,
        };
        let Operand::Weight { shape, .. } = down else { return None };
        Some(Self {
            experts: spec.experts,
            top_k: spec.top_k,
            hidden: step.outputs.first()?.shape.width,
            ffn: shape.width,
            q8_input: !gate_up.iter().all(is_float),
            f32_input: gate_up.iter().any(is_float),
            q8_gated: !is_float(down),
        })
    }

    /// Returns the bytes of memory for steps of up to `rows` rows.
    pub fn bytes(&self, rows: usize) -> usize {
        SlotLayout::new(self, rows).end
    }
}

/// The layout of that memory: offsets in bytes.
struct SlotLayout {
    /// `[experts + 1]` u32: the first slot of each expert.
    first_slots: usize,
    /// `[1 + experts]` u32: the number of experts with slots, and these experts.
    active: usize,
    /// `[rows, top_k]` u32: the slots of a row, then [`NO_SLOT`].
    row_slots: usize,
    /// `[slots]` f32.
    weights: usize,
    q8_input: usize,
    f32_input: usize,
    gated: usize,
    q8_gated: usize,
    results: usize,
    end: usize,
}

impl SlotLayout {
    fn new(sizes: &ExpertSizes, rows: usize) -> Self {
        let slots = rows * sizes.top_k;
        let mut end = 0;
        let mut place = |bytes: usize| {
            let start = end;
            end += bytes.next_multiple_of(AlignedBytes::ALIGN);
            start
        };
        let f32_rows = |width, is_used| if is_used { 4 * slots * row_stride(width) } else { 0 };
        let q8_rows = |width, is_used| if is_used { Q8Activations::bytes(slots, width) } else { 0 };
        Self {
            first_slots: place(4 * (sizes.experts + 1)),
            active: place(4 * (sizes.experts + 1)),
            row_slots: place(4 * slots),
            weights: place(4 * slots),
            q8_input: place(q8_rows(sizes.hidden, sizes.q8_input)),
            f32_input: place(f32_rows(sizes.hidden, sizes.f32_input)),
            gated: place(f32_rows(sizes.ffn, true)),
            q8_gated: place(q8_rows(sizes.ffn, sizes.q8_gated)),
            results: place(f32_rows(sizes.hidden, true)),
            end,
        }
    }
}

/// The slots of a layer of experts in a step. The threads divide them as the stages say.
pub(crate) struct ExpertSlots {
    sizes: ExpertSizes,
    rows: usize,
    first_slots: *mut u32,
    active: *mut u32,
    row_slots: *mut u32,
    weights: *mut f32,
    /// `[slots, hidden]`: the rows in int8.
    pub q8_input: Q8Activations,
    /// `[slots, hidden]`: the rows in f32.
    pub f32_input: StridedRows,
    /// `[slots, ffn]`: the activated products of gate and up.
    pub gated: StridedRows,
    /// `[slots, ffn]`: the same in int8.
    pub q8_gated: Q8Activations,
    /// `[slots, hidden]`: the products of down, times the weights.
    pub results: StridedRows,
}

impl ExpertSlots {
    /// Lays out a step of `rows` rows in memory of [`ExpertSizes::bytes`] for at least that many
    /// rows.
    pub fn new(memory: &AlignedBytes, sizes: ExpertSizes, rows: usize) -> Self {
        let layout = SlotLayout::new(&sizes, rows);
        debug_assert!(layout.end <= memory.len());
        let at = |offset: usize| memory.as_ptr().wrapping_add(offset);
        let f32_rows = |offset, width| StridedRows { start: at(offset).cast(), stride: row_stride(width) };
        let slots = rows * sizes.top_k;
        Self {
            sizes,
            rows,
            first_slots: at(layout.first_slots).cast(),
            active: at(layout.active).cast(),
            row_slots: at(layout.row_slots).cast(),
            weights: at(layout.weights).cast(),
            q8_input: Q8Activations::at(at(layout.q8_input), slots, sizes.hidden),
            f32_input: f32_rows(layout.f32_input, sizes.hidden),
            gated: f32_rows(layout.gated, sizes.ffn),
            q8_gated: Q8Activations::at(at(layout.q8_gated), slots, sizes.ffn),
            results: f32_rows(layout.results, sizes.hidden),
        }
    }

    /// Assigns the slots; `row_weights` gives the `[experts]` weights of a row.
    ///
    /// # Safety
    /// No other thread uses the memory meanwhile, and `row_weights` returns readable rows.
    pub unsafe fn group(&self, row_weights: impl Fn(usize) -> *const f32) {
        let ExpertSizes { experts, top_k, .. } = self.sizes;
        // SAFETY: by the caller; the parts are as large as `SlotLayout` says.
        unsafe {
            let first_slots = slice::from_raw_parts_mut(self.first_slots, experts + 1);
            let active = slice::from_raw_parts_mut(self.active, experts + 1);
            let row_slots = slice::from_raw_parts_mut(self.row_slots, self.rows * top_k);
            let weights = slice::from_raw_parts_mut(self.weights, self.rows * top_k);
            let row_weights = |row| slice::from_raw_parts(row_weights(row), experts);
            group(top_k, row_weights, first_slots, row_slots, weights);
            let with_slots = (0..experts).filter(|expert| first_slots[*expert] < first_slots[expert + 1]);
            let mut count = 0;
            for expert in with_slots {
                count += 1;
                active[count] = expert as u32;
            }
            active[0] = count as u32;
        }
    }

    /// Returns the experts that have slots.
    ///
    /// # Safety
    /// [`group`](Self::group) has been called for this step, and no thread calls it meanwhile.
    pub unsafe fn active(&self) -> &[u32] {
        // SAFETY: by the caller, the first element counts those that follow.
        unsafe { slice::from_raw_parts(self.active.add(1), *self.active as usize) }
    }

    /// Returns the slots of an expert.
    ///
    /// # Safety
    /// As [`active`](Self::active), and `expert` is below the number of experts.
    pub unsafe fn of_expert(&self, expert: usize) -> Range<usize> {
        // SAFETY: by the caller; the array has an entry more than experts.
        unsafe { *self.first_slots.add(expert) as usize..*self.first_slots.add(expert + 1) as usize }
    }

    /// Returns the number of slots.
    ///
    /// # Safety
    /// As [`active`](Self::active).
    pub unsafe fn count(&self) -> usize {
        // SAFETY: by the caller; the last entry is the end of all slots.
        unsafe { *self.first_slots.add(self.sizes.experts) as usize }
    }

    /// Returns the slots of a row, in the order of its experts.
    ///
    /// # Safety
    /// As [`active`](Self::active), and `row` is below the number of rows.
    pub unsafe fn of_row(&self, row: usize) -> impl Iterator<Item = usize> {
        let top_k = self.sizes.top_k;
        // SAFETY: by the caller; each row has `top_k` entries.
        let slots = unsafe { slice::from_raw_parts(self.row_slots.add(row * top_k), top_k) };
        slots.iter().take_while(|slot| **slot != NO_SLOT).map(|slot| *slot as usize)
    }

    /// Returns the weight of a slot.
    ///
    /// # Safety
    /// As [`active`](Self::active), and `slot` is below [`count`](Self::count).
    pub unsafe fn weight(&self, slot: usize) -> f32 {
        // SAFETY: by the caller.
        unsafe { *self.weights.add(slot) }
    }
}

/// Numbers the slots: writes the slots of each row to `row_slots` `[rows, top_k]`, the first slot
/// of each expert and the end of all to `first_slots`, and the weight of each slot to `weights`. Of
/// more than `top_k` experts with a weight, a row gets the first ones.
fn group<'a>(
    top_k: usize,
    row_weights: impl Fn(usize) -> &'a [f32],
    first_slots: &mut [u32],
    row_slots: &mut [u32],
    weights: &mut [f32],
) {
    first_slots.fill(0);
    row_slots.fill(NO_SLOT);
    for (row, slots) in row_slots.chunks_exact_mut(top_k).enumerate() {
        let chosen = row_weights(row).iter().enumerate().filter(|(_, weight)| **weight != 0.0);
        // The numbers of the experts, until the slots are known below.
        for (slot, (expert, _)) in slots.iter_mut().zip(chosen) {
            *slot = expert as u32;
            first_slots[expert + 1] += 1;
        }
    }
    let mut sum = 0;
    for first in first_slots.iter_mut() {
        sum += *first;
        *first = sum;
    }
    let mut next = first_slots.to_vec();
    for (row, slots) in row_slots.chunks_exact_mut(top_k).enumerate() {
        for slot in slots.iter_mut().take_while(|slot| **slot != NO_SLOT) {
            let expert = *slot as usize;
            *slot = next[expert];
            next[expert] += 1;
            weights[*slot as usize] = row_weights(row)[expert];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_ordered_by_expert_and_then_by_row() {
        let rows: [&[f32]; 4] = [&[0.0, 0.25, 0.75, 0.0], &[0.0; 4], &[1.0, 0.0, 2.0, 3.0], &[0.0, f32::NAN, 0.0, 0.0]];
        let (mut first_slots, mut row_slots, mut weights) = ([9; 5], [9; 8], [9.0; 8]);
        group(2, |row| rows[row], &mut first_slots, &mut row_slots, &mut weights);
        // The third row has three experts with a weight, and the last is left out.
        assert_eq!(first_slots, [0, 1, 3, 5, 5]);
        assert_eq!(row_slots, [1, 3, NO_SLOT, NO_SLOT, 0, 4, 2, NO_SLOT]);
        assert_eq!(
            (weights[..2].to_vec(), weights[2].is_nan(), weights[3..5].to_vec()),
            (vec![1.0, 0.25], true, vec![0.75, 2.0])
        );
    }
}
