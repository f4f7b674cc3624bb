//! Finds the ops that follow a product of more than 16 rows and that its kernel computes as well,
//! before it writes the result: a bias, an activation and a residual.

use super::{Form, GpuLowering, OutputForms};
use crate::{
    Result,
    backend::webgpu::kernel::Resource,
    graph::{Activation, Op},
    plan::{Operand, Place, PlanStep, SlotId},
};

/// The operations on products before they are written: `result = function(product + bias)`, or
/// `result += ..`.
#[derive(Clone, Copy, Default)]
pub(super) struct AfterProduct {
    /// The buffer of the vector that is added to each row.
    pub bias: Option<Resource>,
    pub function: Option<Activation>,
    /// Whether the products are added to the content of the result.
    pub adds: bool,
}

impl GpuLowering<'_> {
    /// Returns the operations that follow the product of this output, and the output of the last
    /// one. Their steps of the plan are then lowered with the product.
    pub(super) fn after_product(
        &mut self,
        product: &PlanStep,
        output: &OutputForms,
    ) -> Result<(AfterProduct, OutputForms)> {
        let mut after = AfterProduct::default();
        let mut last = OutputForms { place: output.place, forms: output.forms.clone() };
        let plan = self.plan;
        while let Some(index) = self.next_use(last.place.slot)
            && !after.adds
            && last.forms == [Form::F32].into()
        {
            let step = &plan.steps()[index];
            // The op's own lowering makes lists of experts.
            if self.forms[index].iter().flatten().any(|form| matches!(form, Form::Selected(_))) {
                break;
            }
            match &step.op {
                Op::Add if after.function.is_none() && after.bias.is_none() && updates(step, &last.place) => {
                    let Some(bias) = self.bias(step, &last.place)? else { break };
                    after.bias = Some(bias);
                }
                Op::Activate(function) if after.function.is_none() && updates(step, &last.place) => {
                    after.function = Some(*function);
                }
                Op::Add if self.adds_to_residual(product, index, &last.place) => after.adds = true,
                _ => break,
            }
            self.lowered.insert(index);
            let forms = std::mem::take(&mut self.forms[index][0]);
            last = OutputForms { place: step.outputs[0], forms };
        }
        Ok((after, last))
    }

    /// Returns the first step after this one that reads or writes a slot, if it is not lowered yet.
    fn next_use(&self, slot: SlotId) -> Option<usize> {
        let steps = self.plan.steps();
        let uses = |step: &PlanStep| reads(step, slot) || step.outputs.iter().any(|output| output.slot == slot);
        (self.step + 1..steps.len()).find(|index| !self.lowered.contains(index) && uses(&steps[*index]))
    }

    /// Returns the vector that a step adds to each row of `x`, if its second operand is one.
    fn bias(&mut self, step: &PlanStep, x: &Place) -> Result<Option<Resource>> {
        match &step.inputs[1] {
            row @ (Operand::Weight { .. } | Operand::Constant(_)) if self.vector(row)?.len() == x.shape.width => {
                self.vector_resource(row).map(Some)
            }
            Operand::Weight { .. } | Operand::Constant(_) | Operand::Tokens | Operand::Slot(_) => Ok(None),
        }
    }

    /// Returns whether step `index` adds `x` to other rows in place, so that the product can do so:
    /// the product has no other result and does not read these rows, no step in between uses them,
    /// and none reads `x` later.
    fn adds_to_residual(&self, product: &PlanStep, index: usize, x: &Place) -> bool {
        let (steps, step) = (self.plan.steps(), &self.plan.steps()[index]);
        let (Operand::Slot(residual), Operand::Slot(added)) = (&step.inputs[0], &step.inputs[1]) else { return false };
        let result = step.outputs[0];
        let in_place = residual.slot == result.slot && added.slot == x.slot && residual.slot != x.slot;
        let later = &steps[index + 1..];
        let overwritten = later.iter().position(|step| step.outputs.iter().any(|output| output.slot == x.slot));
        let is_read =
            later.iter().take(overwritten.map_or(later.len(), |last| last + 1)).any(|step| reads(step, x.slot));
        in_place
            && product.outputs.len() == 1
            && residual.shape == x.shape
            && !reads(product, residual.slot)
            && self.next_use(residual.slot) == Some(index)
            && !is_read
            && (overwritten.is_some() || self.plan.logits().slot != x.slot)
    }
}

/// Returns whether a step replaces the rows `x`, its first operand, by its result.
fn updates(step: &PlanStep, x: &Place) -> bool {
    matches!(&step.inputs[0], Operand::Slot(place) if place.slot == x.slot) && step.outputs[0].slot == x.slot
}

fn reads(step: &PlanStep, slot: SlotId) -> bool {
    step.inputs.iter().any(|input| matches!(input, Operand::Slot(place) if place.slot == slot))
}
