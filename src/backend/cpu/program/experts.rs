//! A mixture of experts: how tokens are grouped by them, and what their products work in.
//!
//! A token that an expert takes has a *slot*. The slots of one expert follow one another, so its matrices are read once
//! for all of them, in the order in which memory has them. Slots are numbered expert by expert and in each token by
//! token; a token's results are added up in the order of its experts. What becomes of a token is thus the same bit for
//! bit, whatever else is in the step.

use std::{ops::Range, slice, sync::Arc};

use super::task::{self, Buffer};
use crate::{
    Error, Result,
    backend::cpu::{
        kernels::quantize::Activations,
        memory::aligned::AlignedBytes,
        weights::{matrix::Matrix, prepare::Prepared},
    },
    graph::{ExpertsSpec, Op},
    plan::{Operand, PlanStep},
};

/// What the threads do one after the other, meeting in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// One of them finds each expert's tokens.
    Group,
    /// Rows are written to their slots, in 8 bits where the matrices want that.
    Spread,
    /// Gate and up of each expert's slots, activated and multiplied.
    GateUp,
    /// The products in 8 bits, where the matrices that are left want that.
    Quantize,
    /// Down of each expert's slots, times the slot's weight.
    Down,
    /// Each token's slots added up.
    Sum,
}

impl Stage {
    /// All, in order, by the names that they have in profiles.
    pub const ALL: [(&'static str, Self); 6] = [
        ("group", Self::Group),
        ("spread", Self::Spread),
        ("experts_gate_up", Self::GateUp),
        ("quantize", Self::Quantize),
        ("experts_down", Self::Down),
        ("sum", Self::Sum),
    ];
}

/// One kind of matrix of all experts in a stack.
pub(crate) struct Part {
    pub matrix: Arc<Matrix>,
    /// The number in the stack of the first expert's.
    first: usize,
    /// From one expert's to the next one's.
    every: usize,
}

impl Part {
    /// The number of pieces of work that an expert is: groups of sixteen rows.
    pub fn groups(&self) -> usize {
        self.matrix.stack().groups_each()
    }

    /// Group `group` of an expert, among those of the stack.
    pub fn group(&self, expert: usize, group: usize) -> usize {
        (self.first + self.every * expert) * self.groups() + group
    }
}

/// A layer of experts.
pub(crate) struct Experts {
    pub spec: ExpertsSpec,
    pub x: Buffer,
    pub weights: Buffer,
    pub gate: Part,
    pub up: Part,
    pub down: Part,
    pub out: Buffer,
    pub sizes: Sizes,
}

impl Experts {
    pub fn new(step: &PlanStep, spec: ExpertsSpec, prepared: &Prepared, out: Buffer) -> Result<Self> {
        let matrix = |index: usize| prepared.matrix(&step.matrices()[index], step.stacked(index));
        let alone = |index| Ok(Part { matrix: matrix(index)?, first: 0, every: 1 });
        let [gate, up] = match step.matrices().len() {
            2 => {
                let both = matrix(0)?;
                [0, 1].map(|first| Part { matrix: both.clone(), first, every: 2 })
            }
            _ => [alone(0)?, alone(1)?],
        };
        let down = alone(step.matrices().len() - 1)?;
        let [x, weights] = [task::buffer(&step.inputs[0])?, task::buffer(&step.inputs[1])?];
        let sizes = Sizes::of(step).ok_or_else(|| Error::Graph("experts without matrices".into()))?;
        Ok(Self { spec, x, weights, gate, up, down, out, sizes })
    }

    /// The bytes of weights that a stage reads of each expert that has tokens.
    pub fn bytes_each(&self, stage: Stage) -> usize {
        match stage {
            Stage::GateUp => self.gate.matrix.bytes_each() + self.up.matrix.bytes_each(),
            Stage::Down => self.down.matrix.bytes_each(),
            Stage::Group | Stage::Spread | Stage::Quantize | Stage::Sum => 0,
        }
    }
}

/// What the memory that a layer of experts works in depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    experts: usize,
    used: usize,
    hidden: usize,
    ffn: usize,
    /// Whether gate or up wants rows in 8 bits, and whether one wants them as they are.
    coded: bool,
    plain: bool,
    /// Whether down wants rows in 8 bits.
    coded_down: bool,
}

impl Sizes {
    /// Those of a step that has experts.
    pub fn of(step: &PlanStep) -> Option<Self> {
        let (Op::Experts(spec), [first @ .., down]) = (&step.op, step.matrices()) else { return None };
        let is_float = |operand: &Operand| match operand {
            Operand::Weight { dtype, .. } => dtype.is_float(),
            Operand::Tokens | Operand::Constant(_) | Operand::Slot(_) => false,
        };
        let Operand::Weight { shape, .. } = down else { return None };
        Some(Self {
            experts: spec.experts,
            used: spec.top_k,
            hidden: step.outputs.first()?.shape.width,
            ffn: shape.width,
            coded: !first.iter().all(is_float),
            plain: first.iter().any(is_float),
            coded_down: !is_float(down),
        })
    }

    /// The bytes that steps of up to `rows` rows work in.
    pub fn bytes(&self, rows: usize) -> usize {
        Places::new(self, rows).end
    }
}

/// Where everything lies in that memory, in bytes from its start.
struct Places {
    /// `[experts + 1]`: each expert's first slot.
    starts: usize,
    /// `[1 + experts]`: how many experts have slots, and which.
    active: usize,
    /// `[rows, used]`: the slots of a row, as many as there are and then [`NONE`].
    slots: usize,
    /// `[slots]`: their weights.
    weights: usize,
    coded: usize,
    plain: usize,
    gated: usize,
    coded_gated: usize,
    results: usize,
    end: usize,
}

impl Places {
    fn new(sizes: &Sizes, rows: usize) -> Self {
        let slots = rows * sizes.used;
        let mut end = 0;
        let mut place = |bytes: usize| {
            let start = end;
            end += bytes.next_multiple_of(AlignedBytes::ALIGN);
            start
        };
        let floats = |width| 4 * slots * task::row_stride(width);
        let codes = |width, wanted| if wanted { Activations::bytes(slots, width) } else { 0 };
        Self {
            starts: place(4 * (sizes.experts + 1)),
            active: place(4 * (sizes.experts + 1)),
            slots: place(4 * slots),
            weights: place(4 * slots),
            coded: place(codes(sizes.hidden, sizes.coded)),
            plain: place(if sizes.plain { floats(sizes.hidden) } else { 0 }),
            gated: place(floats(sizes.ffn)),
            coded_gated: place(codes(sizes.ffn, sizes.coded_down)),
            results: place(floats(sizes.hidden)),
            end,
        }
    }
}

/// Says that a row has no more slots.
const NONE: u32 = u32::MAX;

/// Rows of floats, one for each slot.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    start: *mut f32,
    pub stride: usize,
    pub width: usize,
}

impl Rows {
    pub fn row(&self, slot: usize) -> *mut f32 {
        self.start.wrapping_add(slot * self.stride)
    }
}

/// A step's memory for a layer of experts. The threads divide it among themselves as the stages say.
pub(crate) struct Slots {
    sizes: Sizes,
    rows: usize,
    starts: *mut u32,
    active: *mut u32,
    slots: *mut u32,
    weights: *mut f32,
    /// The rows in 8 bits.
    pub coded: Activations,
    /// The rows as they are.
    pub plain: Rows,
    /// What gate and up come to.
    pub gated: Rows,
    /// The same in 8 bits.
    pub coded_gated: Activations,
    /// What down comes to, times the weights.
    pub results: Rows,
}

impl Slots {
    /// Lays a step of so many rows out in memory of [`Sizes::bytes`] for as many or more.
    pub fn new(memory: &AlignedBytes, sizes: Sizes, rows: usize) -> Self {
        let places = Places::new(&sizes, rows);
        debug_assert!(places.end <= memory.len());
        let at = |place: usize| memory.as_ptr().wrapping_add(place);
        let floats = |place, width| Rows { start: at(place).cast(), stride: task::row_stride(width), width };
        let slots = rows * sizes.used;
        Self {
            sizes,
            rows,
            starts: at(places.starts).cast(),
            active: at(places.active).cast(),
            slots: at(places.slots).cast(),
            weights: at(places.weights).cast(),
            coded: Activations::at(at(places.coded), slots, sizes.hidden),
            plain: floats(places.plain, sizes.hidden),
            gated: floats(places.gated, sizes.ffn),
            coded_gated: Activations::at(at(places.coded_gated), slots, sizes.ffn),
            results: floats(places.results, sizes.hidden),
        }
    }

    /// Gives every row's experts their slots; `row` gives a row's weights.
    ///
    /// # Safety
    /// Nobody else uses the memory meanwhile, and rows have a weight for each expert.
    pub unsafe fn group(&self, row: impl Fn(usize) -> *const f32) {
        let Sizes { experts, used, .. } = self.sizes;
        // SAFETY: the places are as large as `Places` says; the rest is by the caller.
        unsafe {
            let starts = slice::from_raw_parts_mut(self.starts, experts + 1);
            let active = slice::from_raw_parts_mut(self.active, experts + 1);
            let slots = slice::from_raw_parts_mut(self.slots, self.rows * used);
            let weights = slice::from_raw_parts_mut(self.weights, self.rows * used);
            group(used, |number| slice::from_raw_parts(row(number), experts), starts, slots, weights);
            let taken = (0..experts).filter(|expert| starts[*expert] < starts[expert + 1]);
            let mut count = 0;
            for expert in taken {
                count += 1;
                active[count] = expert as u32;
            }
            active[0] = count as u32;
        }
    }

    /// The experts that have slots.
    ///
    /// # Safety
    /// For this and all below: `group` has been called, and nobody calls it meanwhile.
    pub unsafe fn active(&self) -> &[u32] {
        // SAFETY: the first says how many follow.
        unsafe { slice::from_raw_parts(self.active.add(1), *self.active as usize) }
    }

    /// An expert's slots.
    ///
    /// # Safety
    /// As [`Self::active`], and there is such an expert.
    pub unsafe fn of_expert(&self, expert: usize) -> Range<usize> {
        // SAFETY: there is one more than there are experts.
        unsafe { *self.starts.add(expert) as usize..*self.starts.add(expert + 1) as usize }
    }

    /// How many slots there are.
    ///
    /// # Safety
    /// As [`Self::active`].
    pub unsafe fn count(&self) -> usize {
        // SAFETY: as in `of_expert`.
        unsafe { *self.starts.add(self.sizes.experts) as usize }
    }

    /// A row's slots, in the order of its experts.
    ///
    /// # Safety
    /// As [`Self::active`], and there is such a row.
    pub unsafe fn of_row(&self, row: usize) -> impl Iterator<Item = usize> {
        // SAFETY: each row has as many places.
        let slots = unsafe { slice::from_raw_parts(self.slots.add(row * self.sizes.used), self.sizes.used) };
        slots.iter().take_while(|slot| **slot != NONE).map(|slot| *slot as usize)
    }

    /// A slot's weight.
    ///
    /// # Safety
    /// As [`Self::active`], and there is such a slot.
    pub unsafe fn weight(&self, slot: usize) -> f32 {
        // SAFETY: by the caller.
        unsafe { *self.weights.add(slot) }
    }
}

/// Numbers the slots: their rows' in `slots`, `used` for each, and each expert's first in `starts`, with the end of all.
fn group<'a>(
    used: usize,
    row: impl Fn(usize) -> &'a [f32],
    starts: &mut [u32],
    slots: &mut [u32],
    weights: &mut [f32],
) {
    starts.fill(0);
    slots.fill(NONE);
    for (number, slots) in slots.chunks_exact_mut(used).enumerate() {
        let taken = row(number).iter().enumerate().filter(|(_, weight)| **weight != 0.0);
        for (slot, (expert, _)) in slots.iter_mut().zip(taken) {
            *slot = expert as u32;
            starts[expert + 1] += 1;
        }
    }
    let mut sum = 0;
    for start in starts.iter_mut() {
        sum += *start;
        *start = sum;
    }
    let mut next = starts.to_vec();
    for (number, slots) in slots.chunks_exact_mut(used).enumerate() {
        for slot in slots.iter_mut().take_while(|slot| **slot != NONE) {
            let expert = *slot as usize;
            *slot = next[expert];
            next[expert] += 1;
            weights[*slot as usize] = row(number)[expert];
        }
    }
}

/// The softmax over the `used` largest of `logits`, in their places; 0 elsewhere. `taken` is room to work in.
pub(crate) fn route(logits: &[f32], used: usize, taken: &mut Vec<(usize, f32)>, out: &mut [f32]) {
    taken.clear();
    for (index, logit) in logits.iter().enumerate() {
        // One that is not a number comes before all others, so that it is seen.
        let place = taken.iter().position(|(_, other)| other < logit || logit.is_nan()).unwrap_or(taken.len());
        if place < used {
            taken.truncate(used - 1);
            taken.insert(place, (index, *logit));
        }
    }
    let largest = taken[0].1;
    taken.iter_mut().for_each(|(_, logit)| *logit = (*logit - largest).exp());
    let sum: f32 = taken.iter().map(|(_, power)| power).sum();
    out.fill(0.0);
    taken.iter().for_each(|(index, power)| out[*index] = power / sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_taken_and_of_equal_ones_the_first() {
        let check = |logits: &[f32], used, expected: &[f32]| {
            let mut out = vec![9.0; logits.len()];
            route(logits, used, &mut vec![], &mut out);
            let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6 || a.is_nan() && b.is_nan();
            assert!(out.iter().zip(expected).all(near), "{logits:?}: {out:?}");
        };
        let third = 3f32.ln();
        check(&[0.0, third, -5.0, 0.0], 2, &[0.25, 0.75, 0.0, 0.0]);
        check(&[1.0, 2.0, 2.0, 2.0], 1, &[0.0, 1.0, 0.0, 0.0]);
        check(&[7.0], 1, &[1.0]);
        check(&[100.0, 100.0, -100.0], 3, &[0.5, 0.5, 0.0]);
        check(&[0.0, f32::NAN, 1.0], 1, &[0.0, f32::NAN, 0.0]);
    }

    #[test]
    fn slots_follow_experts_and_then_rows() {
        let rows: [&[f32]; 4] = [&[0.0, 0.25, 0.75, 0.0], &[0.0; 4], &[1.0, 0.0, 2.0, 3.0], &[0.0, f32::NAN, 0.0, 0.0]];
        let (mut starts, mut slots, mut weights) = ([9; 5], [9; 8], [9.0; 8]);
        group(2, |row| rows[row], &mut starts, &mut slots, &mut weights);
        // The third row has one more than two, and the last of them is left out.
        assert_eq!(starts, [0, 1, 3, 5, 5]);
        assert_eq!(slots, [1, 3, NONE, NONE, 0, 4, 2, NONE]);
        assert_eq!(
            (weights[..2].to_vec(), weights[2].is_nan(), weights[3..5].to_vec()),
            (vec![1.0, 0.25], true, vec![0.75, 2.0])
        );
    }
}
