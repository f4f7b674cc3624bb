//! Lowers routers, and experts in steps of up to 16 rows.
//!
//! A row has a slot for each of its active experts. The first dispatch computes the activation of
//! gate times up for all slots. The second multiplies with down and sums the slots of a row, so
//! only the rows between the two products go through memory.

use std::sync::Arc;

use super::{Form, Forms, GpuLowering, OutputForms, grouped::Grouped, place, slot, stride, strided, workgroups};
use crate::{
    Error, Result,
    backend::webgpu::{
        kernel::{Kernel, Resource, Workgroups},
        kernels::{
            BoundBuffer, ExpertStack, F32, Finish, GemvExperts, GemvPart, GluFunction, MatMulFew, MatrixPlanes,
            Q8Input, Q8Output, Route, RouteGroups, RouteScore, RouteWeights, RowCount, Strided, share_tables,
        },
        tiles::{self, FewRows, GemvShape},
        weight_buffers::GpuMatrix,
    },
    graph::{ExpertScore, ExpertsSpec, RouteSpec},
    plan::{Place, PlanStep},
    quant::UNIT,
};

const WORKGROUP: u32 = 128;

/// The stacked matrices of all experts of a layer.
pub(super) struct Stacked {
    pub matrix: Arc<GpuMatrix>,
    /// Rows of one expert's matrix.
    pub rows: usize,
    /// The rows of each expert in `matrix`.
    pub stack: ExpertStack,
    /// The buffer of the experts' biases, and the first of this stack's, if there are biases.
    pub biases: Option<(BoundBuffer, usize)>,
}

/// One of the two products of experts: with gate and up, or with down.
struct ExpertProduct<'a> {
    stacks: &'a [Stacked],
    /// The operand as int8, for matrices of integers.
    x_q8: Resource,
    /// The operand as f32, for matrices of floats.
    x_f32: Strided,
    /// Elements of a row of the operand.
    columns: usize,
    /// Elements from the start of a row of the result to the start of the next.
    out_stride: usize,
    /// The list of each row's active experts.
    selected: Resource,
    spec: ExpertsSpec,
}

/// Returns the kernel's parameters for a router of `experts` experts.
fn route_weights(spec: &RouteSpec, experts: usize, bias: Option<Resource>) -> RouteWeights {
    // The order of logits is that of probabilities, and those of other experts cancel.
    let by_logits = spec.score == ExpertScore::Softmax && spec.normalized && spec.groups.is_none() && bias.is_none();
    let score = match spec.score {
        ExpertScore::Softmax => RouteScore::Softmax,
        ExpertScore::Sigmoid => RouteScore::Sigmoid,
    };
    RouteWeights {
        score: (!by_logits).then_some(score),
        normalized: spec.normalized,
        groups: spec.groups.map(|groups| RouteGroups {
            count: groups.count,
            size: experts / groups.count,
            top_k: groups.top_k,
        }),
        scale: F32(spec.scale),
        bias: bias.map(BoundBuffer),
    }
}

impl GpuLowering<'_> {
    pub(super) fn route(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        output: &OutputForms,
        spec: &RouteSpec,
    ) -> Result<()> {
        let x = place(&step.inputs[0])?;
        let bias = step.inputs.get(1).map(|bias| self.vector_resource(bias)).transpose()?;
        let top_k = spec.top_k;
        let selected = Form::Selected(top_k);
        let others: Forms = output.forms.iter().copied().filter(|form| *form != selected).collect();
        let list = output.forms.contains(&selected).then(|| Resource::Selected(output.place.slot.index(), top_k));
        let y = (!others.is_empty()).then(|| strided(&output.place));
        let kernel = self.chooser(&x, top_k, Some(route_weights(spec, x.shape.width, bias)), list, y);
        self.push(op, kernel);
        self.convert(op, output);
        // Other readers may need lists of other lengths.
        self.select_experts(op, &OutputForms { place: output.place, forms: others });
        Ok(())
    }

    /// Pushes the kernels that list the experts whose weights are not zero.
    pub(super) fn select_experts(&mut self, op: &'static str, output: &OutputForms) {
        for form in &output.forms {
            if let Form::Selected(top_k) = form {
                let list = Resource::Selected(output.place.slot.index(), *top_k);
                let kernel = self.chooser(&output.place, *top_k, None, Some(list), None);
                self.push(op, kernel);
            }
        }
    }

    fn chooser(
        &self,
        x: &Place,
        top_k: usize,
        weights: Option<RouteWeights>,
        list: Option<Resource>,
        y: Option<Strided>,
    ) -> Kernel {
        let route = Route {
            workgroup: WORKGROUP.min(self.traits.workgroup),
            experts: x.shape.width,
            top_k,
            weights,
            x: strided(x),
            selected: list.map(BoundBuffer),
            y,
        };
        Kernel::new(route, [workgroups(x.shape.rows, 1), Workgroups::Fixed(1), Workgroups::Fixed(1)])
    }

    pub(super) fn experts(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        output: &OutputForms,
        spec: ExpertsSpec,
    ) -> Result<()> {
        let x = place(&step.inputs[0])?;
        let selected = Resource::Selected(place(&step.inputs[1])?.slot.index(), spec.top_k);
        let stacks = self.stacks(step, spec)?;
        if self.groups(x.shape.rows, spec.top_k) {
            self.grouped(&Grouped { op, spec, x: &x, selected, stacks: &stacks }, output);
            return Ok(());
        }
        let [first @ .., down] = stacks.as_slice() else { return Err(super::not_computed()) };
        let ffn = first[0].rows;
        let between = Strided { stride: ffn.next_multiple_of(64), rows: Resource::Slots(0) };
        let before = ExpertProduct {
            stacks: first,
            x_q8: Resource::Q8(x.slot.index()),
            x_f32: strided(&x),
            columns: x.shape.width,
            out_stride: between.stride,
            selected,
            spec,
        };
        let kernel = self.gate_up(&x, &before, down.matrix.planes().coded());
        self.push(op, kernel);
        let after = ExpertProduct {
            stacks: std::slice::from_ref(down),
            x_q8: Resource::SlotQ8,
            x_f32: between,
            columns: ffn,
            out_stride: stride(&output.place),
            selected,
            spec,
        };
        let kernel = self.down(&output.place, &after);
        self.push(op, kernel);
        self.convert(op, output);
        Ok(())
    }

    /// Returns the stacks of gate, up and down.
    fn stacks(&mut self, step: &PlanStep, spec: ExpertsSpec) -> Result<Vec<Stacked>> {
        let matrices = step.matrices().iter().map(|operand| self.matrix(operand)).collect::<Result<Vec<_>>>()?;
        if matrices.iter().any(|matrix| matrix.parts.len() != 1) {
            let most = self.traits.binding_bytes;
            return Err(Error::Unsupported(format!(
                "the experts of a layer are larger than the {most} bytes that this GPU's kernels see at once: use the CPU"
            )));
        }
        let separate = |matrix: &Arc<GpuMatrix>| {
            let rows = matrix.rows / spec.experts;
            Stacked { matrix: matrix.clone(), rows, stack: ExpertStack { offset: 0, stride: rows }, biases: None }
        };
        let mut stacks: Vec<_> = match matrices.as_slice() {
            [both, down] => {
                let rows = both.rows / (2 * spec.experts);
                let half = |offset| Stacked {
                    matrix: both.clone(),
                    rows,
                    stack: ExpertStack { offset, stride: 2 * rows },
                    biases: None,
                };
                vec![half(0), half(rows), separate(down)]
            }
            matrices => matrices.iter().map(separate).collect(),
        };
        if spec.biased {
            let biases = BoundBuffer(self.vector_resource(&step.inputs[2])?);
            let mut first = 0;
            for stack in &mut stacks {
                stack.biases = Some((biases, first));
                first += spec.experts * stack.rows;
            }
        }
        Ok(stacks)
    }

    /// Returns the kernel of `activation(gate x) * up x` for each slot. With `writes_q8` it writes
    /// int8, for a down matrix of integers.
    fn gate_up(&self, x: &Place, product: &ExpertProduct<'_>, writes_q8: bool) -> Kernel {
        let ffn = product.stacks[0].rows;
        let units = product.stacks[0].matrix.units;
        let has_tables = product.stacks.iter().any(|stack| stack.matrix.has_table());
        let few = FewRows { tokens: 1, rows: ffn, units, together: 2, writes_q8, has_tables };
        let shape = tiles::gemv(self.traits, few);
        let mut kernel = self.expert_product(product, shape, (!writes_q8).then_some(Resource::Slots(0)), false);
        kernel.x_q8 =
            kernel.x_q8.map(|x_q8| Q8Input { norm: self.pending_norms.get(&x.slot.index()).copied(), ..x_q8 });
        kernel.finish = Finish::Glu { function: GluFunction(product.spec.glu) };
        kernel.y_q8 =
            writes_q8.then_some(Q8Output { blocks: ffn / UNIT, norm: None, floats: None, rows: Resource::SlotQ8 });
        let groups = [
            Workgroups::Fixed(ffn.div_ceil(shape.group_rows())),
            workgroups(x.shape.rows, 1),
            Workgroups::Fixed(product.spec.top_k),
        ];
        Kernel::new(kernel, groups)
    }

    /// Returns the kernel that multiplies the slots of a row with down, and sums them.
    fn down(&self, out: &Place, product: &ExpertProduct<'_>) -> Kernel {
        let Stacked { matrix, rows, .. } = &product.stacks[0];
        let (units, has_tables) = (matrix.units, matrix.has_table());
        let few = FewRows { tokens: 1, rows: *rows, units, together: 1, writes_q8: false, has_tables };
        let shape = tiles::gemv(self.traits, few);
        let kernel = self.expert_product(product, shape, Some(slot(out)), true);
        let groups =
            [Workgroups::Fixed(rows.div_ceil(shape.group_rows())), workgroups(out.shape.rows, 1), Workgroups::Fixed(1)];
        Kernel::new(kernel, groups)
    }

    /// Returns the parameters that both products have; `out` is the buffer of an f32 result.
    fn expert_product(
        &self,
        product: &ExpertProduct<'_>,
        shape: GemvShape,
        out: Option<Resource>,
        sums: bool,
    ) -> MatMulFew {
        let coded = |coded: bool| product.stacks.iter().any(|stack| stack.matrix.planes().coded() == coded);
        let part = |(number, stack): (usize, &Stacked)| GemvPart {
            matrix: MatrixPlanes::new(number, &stack.matrix, &stack.matrix.parts[0]),
            rows: stack.rows,
            stack: Some(stack.stack),
            first_block: 0,
            end_block: 0,
            out_at: 0,
            out_stride: product.out_stride,
            bias_at: stack.biases.map_or(0, |(_, at)| at),
            out: out.filter(|_| number == 0).map(BoundBuffer),
        };
        let mut parts: Vec<_> = product.stacks.iter().enumerate().map(part).collect();
        let tables = share_tables(&mut parts);
        MatMulFew {
            shape,
            subgroup: self.traits.subgroup,
            tokens: 1,
            rows: RowCount::Tokens,
            columns: product.columns,
            heads: 1,
            x_q8: coded(true).then_some(Q8Input { norm: None, rows: product.x_q8 }),
            x_stride: product.x_f32.stride,
            x_f32: coded(false).then_some(product.x_f32.rows),
            parts,
            tables,
            finish: Finish::Store,
            y_q8: None,
            biases: product.stacks[0].biases.map(|(biases, _)| biases),
            experts: Some(GemvExperts {
                count: product.spec.experts,
                top_k: product.spec.top_k,
                sums,
                selected: product.selected,
            }),
        }
    }

    /// Returns the forms in which experts read an operand.
    pub(super) fn forms_of_experts(&self, step: &PlanStep, operand: usize, top_k: usize) -> Result<Forms> {
        if operand == 1 {
            return Ok(Forms::from([Form::Selected(top_k)]));
        }
        let [first @ .., _] = step.matrices() else { return Err(super::not_computed()) };
        let rows = place(&step.inputs[0])?.shape.rows;
        let form = |matrix: &GpuMatrix| match (self.groups(rows, top_k), matrix.planes().coded()) {
            (true, _) => self.form_for(matrix, rows),
            (false, true) => Form::Q8,
            (false, false) => Form::F32,
        };
        first.iter().map(|operand| Ok(form(&*self.matrix(operand)?))).collect()
    }
}
