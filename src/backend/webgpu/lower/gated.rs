//! Lowers gates of rows.

use super::{Form, Forms, GpuLowering, OutputForms, place, strided, workgroups};
use crate::{
    Result,
    backend::webgpu::{
        kernel::{Kernel, Resource, Workgroups},
        kernels::{BoundBuffer, Function, GatedKernel, Norm},
    },
    graph::Activation,
    plan::PlanStep,
    quant::UNIT,
};

/// The elements of a group without a norm.
const GROUP: usize = 256;

impl GpuLowering<'_> {
    /// Pushes the kernel that multiplies rows with a gate, and norms their groups before if `norm`
    /// has the epsilon.
    pub(super) fn gated_rows(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        output: &OutputForms,
        activation: Activation,
        norm: Option<f32>,
    ) -> Result<()> {
        let (x, gate) = (place(&step.inputs[0])?, place(&step.inputs[1])?);
        let width = x.shape.width;
        let (len, norm) = match norm {
            Some(eps) => {
                let len = self.vector(&step.inputs[2])?.len();
                (len, Some(Norm::new(len, eps, self.vector_resource(&step.inputs[2])?)))
            }
            None => (GROUP.min(width), None),
        };
        // Blocks of int8 must not cross groups.
        let writes_q8 = output.forms.contains(&Form::Q8) && width.is_multiple_of(UNIT) && len.is_multiple_of(UNIT);
        let others: Forms = output.forms.iter().copied().filter(|form| !writes_q8 || *form != Form::Q8).collect();
        let kernel = GatedKernel {
            workgroup: self.head_workgroup(len),
            subgroup: self.traits.subgroup,
            width,
            len,
            function: Function(activation),
            norm,
            x: strided(&x),
            gate: strided(&gate),
            y: (!others.is_empty()).then(|| strided(&output.place)),
            y_q8: writes_q8.then(|| BoundBuffer(Resource::Q8(output.place.slot.index()))),
        };
        let groups = [Workgroups::Fixed(width.div_ceil(len)), workgroups(x.shape.rows, 1), Workgroups::Fixed(1)];
        self.push(op, Kernel::new(kernel, groups));
        self.convert(op, &OutputForms { place: output.place, forms: others });
        Ok(())
    }
}
