//! Lowers ops on rows: lookups, norms, selections, sums, and conversions between forms.

use super::{Form, Forms, GpuLowering, OutputForms, place, slot, stride, strided, workgroups};
use crate::{
    Result,
    backend::webgpu::{
        kernel::{Kernel, Resource, Workgroups},
        kernels::{
            BoundBuffer, DeviationKernel, ElementKernel, ElementOp, F16Output, F32, GluFunction, Heads, IdRange,
            InputName, LayerNormKernel, MatrixPlanes, MixStreamsKernel, Norm, Operator, Records, Rotation, RowInput,
            RowSource, RowsKernel, SecondOperand, StepRowSource, StepRows, Strided,
        },
    },
    graph::{Glu, RopeSpec, Rows},
    plan::{Operand, Place, PlanStep},
};

const WORKGROUP: u32 = 128;

/// A computation of rows from other rows.
#[derive(Clone, Copy)]
pub(super) enum RowOp {
    /// Copies the rows.
    Copy(Strided),
    /// Copies the rows of the tokens whose logits are computed.
    Select(Strided),
    /// Adds two values.
    Sum([Strided; 2]),
    /// Multiplies two values, the first after an activation.
    Glu(Glu, [Strided; 2]),
}

impl RowOp {
    /// Returns the parameters with the names of the operands' buffers. A buffer that is also an
    /// output has the name `sum` or `y` of that output.
    fn named(self, sum: Option<Strided>, y: Option<Strided>, records: Records) -> RowSource {
        let is = |output: Option<Strided>, rows: Resource| output.is_some_and(|output| output.rows == rows);
        let input = |name: InputName, Strided { stride, rows }: Strided| {
            let name = match rows {
                _ if is(sum, rows) => InputName::Sum,
                _ if is(y, rows) => InputName::Y,
                _ => name,
            };
            RowInput { name, stride, rows }
        };
        match self {
            Self::Copy(a) => RowSource::Copy { a: input(InputName::A, a) },
            Self::Select(a) => RowSource::Select { a: input(InputName::A, a), records },
            Self::Sum([a, b]) => RowSource::Sum { a: input(InputName::A, a), b: input(InputName::B, b) },
            Self::Glu(glu, [a, b]) => {
                RowSource::Glu { function: GluFunction(glu), a: input(InputName::A, a), b: input(InputName::B, b) }
            }
        }
    }
}

/// The buffers of a result in each of its forms.
pub(super) struct RowTarget<'a> {
    pub forms: &'a Forms,
    /// Elements of a row.
    pub width: usize,
    /// The number of rows.
    pub count: Workgroups,
    /// The buffer of the f32 rows.
    pub y: Strided,
    /// The buffer of the int8 rows.
    pub y_q8: Resource,
    /// The buffers of the f16 rows.
    pub y_f16: F16Output,
}

impl<'a> RowTarget<'a> {
    /// Returns the buffers of an output of the plan.
    fn of(output: &'a OutputForms) -> Self {
        let number = output.place.slot.index();
        let y = strided(&output.place);
        let y_f16 = F16Output { stride: y.stride, rows: Resource::F16(number), scales: Resource::F16Scale(number) };
        let count = workgroups(output.place.shape.rows, 1);
        Self { forms: &output.forms, width: output.place.shape.width, count, y, y_q8: Resource::Q8(number), y_f16 }
    }
}

impl GpuLowering<'_> {
    pub(super) fn rms_norm(&mut self, op: &'static str, step: &PlanStep, output: &OutputForms, eps: f32) -> Result<()> {
        let x = place(&step.inputs[0])?;
        let width = self.vector(&step.inputs[1])?.len();
        let norm = Norm::new(width, eps, self.vector_resource(&step.inputs[1])?);
        if width == x.shape.width {
            self.rows(op, RowOp::Copy(strided(&x)), output, Some(norm), None);
            return Ok(());
        }
        let kernel = self.heads(&x, output.place.shape.rows, strided(&output.place), width, Some(norm), None);
        self.push(op, kernel);
        self.convert(op, output);
        Ok(())
    }

    pub(super) fn rope(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        output: &OutputForms,
        spec: &RopeSpec,
    ) -> Result<()> {
        let x = place(&step.inputs[0])?;
        let rotation = self.rotation(spec, &step.inputs[1])?;
        let kernel = self.heads(&x, Rows::Tokens, strided(&output.place), spec.head_dim, None, Some(rotation));
        self.push(op, kernel);
        self.convert(op, output);
        Ok(())
    }

    /// Returns the size of workgroups that norm a head. Without subgroups it determines the order
    /// in which squares are added, so all kernels that norm heads have the same.
    pub(super) fn head_workgroup(&self, head_dim: usize) -> u32 {
        (head_dim as u32).next_power_of_two().clamp(32, self.traits.workgroup.min(256))
    }

    /// Returns the kernel that norms heads, rotates them, or both.
    pub(super) fn heads(
        &self,
        x: &Place,
        rows: Rows,
        y: Strided,
        head_dim: usize,
        norm: Option<Norm>,
        rotation: Option<Rotation>,
    ) -> Kernel {
        let heads = Heads {
            workgroup: self.head_workgroup(head_dim),
            subgroup: self.traits.subgroup,
            head_dim,
            x: Some(strided(x)).filter(|x| x.rows != y.rows),
            y,
            norm,
            rotation,
            records: self.records(),
        };
        Kernel::new(heads, [Workgroups::Fixed(x.shape.width / head_dim), workgroups(rows, 1), Workgroups::Fixed(1)])
    }

    pub(super) fn add_rms_norm(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        outputs: &[OutputForms],
        eps: f32,
    ) -> Result<()> {
        let [a, b] = [place(&step.inputs[0])?, place(&step.inputs[1])?];
        let norm = Norm::new(a.shape.width, eps, self.vector_resource(&step.inputs[2])?);
        let sum = strided(&outputs[0].place);
        self.rows(op, RowOp::Sum([strided(&a), strided(&b)]), &outputs[1], Some(norm), Some(sum));
        self.convert(op, &outputs[0]);
        Ok(())
    }

    pub(super) fn select(&mut self, op: &'static str, step: &PlanStep, output: &OutputForms) -> Result<()> {
        let x = place(&step.inputs[0])?;
        self.rows(op, RowOp::Select(strided(&x)), output, None, None);
        Ok(())
    }

    /// Pushes the lookups of rows in a table: a dispatch for each part of the table, which writes
    /// the rows of the ids in that part.
    pub(super) fn embed(&mut self, op: &'static str, table: &Operand, output: &OutputForms) -> Result<()> {
        let table = self.matrix(table)?;
        for part in &table.parts {
            let ids = IdRange { first: part.first_row, end: part.first_row + part.rows };
            let ids = Some(ids).filter(|_| table.parts.len() > 1);
            let source = RowSource::Embed { table: MatrixPlanes::new(0, &table, part), ids };
            let kernel = self.rows_of(source, &RowTarget::of(output), None, None);
            self.push(op, kernel);
        }
        Ok(())
    }

    /// Pushes the kernel that computes rows and writes all forms of an output. `sum` is the buffer
    /// of the rows before the norm, if they are an output too.
    pub(super) fn rows(
        &mut self,
        op: &'static str,
        source: RowOp,
        output: &OutputForms,
        norm: Option<Norm>,
        sum: Option<Strided>,
    ) {
        let kernel = self.rows_to(source, &RowTarget::of(output), norm, sum);
        self.push(op, kernel);
    }

    pub(super) fn rows_to(
        &self,
        source: RowOp,
        to: &RowTarget<'_>,
        norm: Option<Norm>,
        sum: Option<Strided>,
    ) -> Kernel {
        let y = to.forms.contains(&Form::F32).then_some(to.y);
        self.rows_of(source.named(sum, y, self.records()), to, norm, sum)
    }

    fn rows_of(&self, source: RowSource, to: &RowTarget<'_>, norm: Option<Norm>, sum: Option<Strided>) -> Kernel {
        let wants = |form: Form| to.forms.contains(&form);
        let rows = RowsKernel {
            workgroup: WORKGROUP.min(self.traits.workgroup),
            subgroup: self.traits.subgroup,
            width: to.width,
            source,
            norm,
            sum,
            y: wants(Form::F32).then_some(to.y),
            y_q8: wants(Form::Q8).then_some(BoundBuffer(to.y_q8)),
            y_f16: wants(Form::F16).then_some(to.y_f16),
        };
        Kernel::new(rows, [to.count, Workgroups::Fixed(1), Workgroups::Fixed(1)])
    }

    pub(super) fn layer_norm(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        output: &OutputForms,
        eps: f32,
        norms: usize,
    ) -> Result<()> {
        let (x, y) = (strided(&place(&step.inputs[0])?), strided(&output.place));
        let [weight, bias] = [self.vector_resource(&step.inputs[1])?, self.vector_resource(&step.inputs[2])?];
        let width = output.place.shape.width / norms;
        let norm = LayerNormKernel {
            workgroup: WORKGROUP.min(self.traits.workgroup),
            subgroup: self.traits.subgroup,
            width,
            eps: F32(eps),
            reciprocal: F32(1.0 / width as f32),
            x: Some(x).filter(|x| x.rows != y.rows),
            y,
            weight,
            bias,
        };
        let groups = [workgroups(output.place.shape.rows, 1), Workgroups::Fixed(norms), Workgroups::Fixed(1)];
        self.push(op, Kernel::new(norm, groups));
        self.convert(op, output);
        Ok(())
    }

    /// Pushes the kernel that computes `sums` weighted sums of the parts of rows.
    pub(super) fn mix_streams(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        output: &OutputForms,
        sums: usize,
    ) -> Result<()> {
        let [x, weights] = [place(&step.inputs[0])?, place(&step.inputs[1])?];
        let (workgroup, shape) = (64, output.place.shape);
        let (part, streams) = (shape.width / sums, weights.shape.width / sums);
        let (x, weights, y) = (strided(&x), strided(&weights), strided(&output.place));
        let kernel = MixStreamsKernel { workgroup, width: shape.width, part, streams, x, weights, y };
        let groups =
            [Workgroups::Fixed(shape.width.div_ceil(workgroup)), workgroups(shape.rows, 1), Workgroups::Fixed(1)];
        self.push(op, Kernel::new(kernel, groups));
        self.convert(op, output);
        Ok(())
    }

    /// Pushes the kernel that computes the deviation of rows.
    pub(super) fn deviation(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        output: &OutputForms,
        centered: bool,
    ) -> Result<()> {
        let x = place(&step.inputs[0])?;
        let kernel = DeviationKernel {
            workgroup: WORKGROUP.min(self.traits.workgroup),
            subgroup: self.traits.subgroup,
            width: x.shape.width,
            reciprocal: F32(1.0 / x.shape.width as f32),
            centered,
            x: strided(&x),
            y: strided(&output.place),
        };
        let groups = [workgroups(output.place.shape.rows, 1), Workgroups::Fixed(1), Workgroups::Fixed(1)];
        self.push(op, Kernel::new(kernel, groups));
        self.convert(op, output);
        Ok(())
    }

    /// Pushes the kernel of rows that depend on the inputs of the step.
    pub(super) fn step_rows(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        output: &OutputForms,
        source: StepRowSource,
    ) -> Result<()> {
        let (workgroup, y) = (64, strided(&output.place));
        // The only operand of an interpolation is its table.
        let operand = step.inputs.first().filter(|_| !matches!(source, StepRowSource::Interpolated { .. }));
        let x = operand.map(|operand| Ok(strided(&place(operand)?))).transpose()?.filter(|x| x.rows != y.rows);
        let (width, rows) = (output.place.shape.width, output.place.shape.rows);
        let kernel = StepRows { workgroup, width, source, x, y, records: self.records() };
        let groups = [workgroups(rows, 1), Workgroups::Fixed(width.div_ceil(workgroup)), Workgroups::Fixed(1)];
        self.push(op, Kernel::new(kernel, groups));
        self.convert(op, output);
        Ok(())
    }

    /// Pushes a kernel for each operand, which copies its columns to their place in each group.
    pub(super) fn concat(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        output: &OutputForms,
        groups: usize,
    ) -> Result<()> {
        let (mut to, every) = (0, output.place.shape.width / groups);
        for operand in &step.inputs {
            let x = place(operand)?;
            let (width, len) = (x.shape.width, x.shape.width / groups);
            let shift = ElementOp::Shift { to, len, every };
            self.push(op, elementwise(shift, strided(&x), strided(&output.place), width, x.shape.rows));
            to += len;
        }
        self.convert(op, output);
        Ok(())
    }

    /// Pushes the kernel that combines the elements of two values.
    pub(super) fn combine(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        output: &OutputForms,
        operator: Operator,
    ) -> Result<()> {
        let b = match &step.inputs[1] {
            Operand::Slot(b) => SecondOperand::Rows { stride: stride(b), rows: slot(b) },
            row => {
                let resource = self.vector_resource(row)?;
                if self.vector(row)?.len() == 1 {
                    SecondOperand::Number { number: resource }
                } else {
                    SecondOperand::Row { row: resource }
                }
            }
        };
        self.elementwise(op, step, output, ElementOp::Binary { operator, b })
    }

    /// Pushes the kernel that applies a function to each element.
    pub(super) fn elementwise(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        output: &OutputForms,
        function: ElementOp,
    ) -> Result<()> {
        let a = place(&step.inputs[0])?;
        let kernel = elementwise(
            function,
            strided(&a),
            strided(&output.place),
            output.place.shape.width,
            output.place.shape.rows,
        );
        self.push(op, kernel);
        self.convert(op, output);
        Ok(())
    }
}

/// Returns the kernel that applies a function to each element of rows of `width` elements.
pub(super) fn elementwise(op: ElementOp, a: Strided, y: Strided, width: usize, rows: Rows) -> Kernel {
    let workgroup = 64;
    let a = Some(a).filter(|a| a.rows != y.rows);
    let groups = [Workgroups::Fixed(width.div_ceil(workgroup)), workgroups(rows, 1), Workgroups::Fixed(1)];
    Kernel::new(ElementKernel { workgroup, width, op, a, y }, groups)
}
