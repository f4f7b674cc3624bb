//! The choice of experts, and their products in steps of few rows: with the rows of a stack that the choice names.
//!
//! A row has a slot for each expert that it may have. One dispatch makes gate and up of all slots, a second one adds a
//! row's slots up as it multiplies with down, so nothing goes through memory but what is between the two.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Form, Forms, Lowering, Made, count, function,
    grouped::Grouped,
    place,
    product::{Part, float},
    slot, stride, with,
};
use crate::{
    Error, Result,
    backend::webgpu::{
        arena::Matrix,
        kernel::{Bound, Count, Kernel, Resource, reads, writes},
        tiles::{self, Few},
    },
    graph::ExpertsSpec,
    plan::{Place, PlanStep},
    quant::UNIT,
};

const WORKGROUP: u32 = 128;

/// A matrix of every expert in a stack.
pub(super) struct Stacked {
    pub matrix: Arc<Matrix>,
    /// Rows of one expert's.
    pub rows: usize,
    /// The first row of the first expert's, and from one expert's to the next one's.
    first: usize,
    every: usize,
}

impl Stacked {
    /// What a template is told besides of a part that has them.
    pub fn values(&self) -> Value {
        json!({ "rows": self.rows, "first_of_stack": self.first, "every": self.every, "out_at": 0 })
    }
}

/// Gate and up, or down, and what goes in and out.
struct Half<'a> {
    stacks: &'a [Stacked],
    /// What is read: rows of a value, or those between the two halves.
    codes: Resource,
    floats: Resource,
    stride: usize,
    columns: usize,
}

impl Lowering<'_> {
    pub(super) fn route(&mut self, op: &'static str, step: &PlanStep, made: &Made, used: usize) -> Result<()> {
        let x = place(&step.inputs[0])?;
        let takes = made.forms.contains(&Form::Taken(used));
        let others = made.forms.iter().any(|form| *form != Form::Taken(used));
        let to = [takes.then_some(Resource::Taken(made.place.slot.index(), used)), others.then(|| slot(&made.place))];
        let kernel = self.chooser(&x, used, true, to);
        self.push(op, kernel);
        // What is left of the forms, and lists for others.
        self.convert(op, made);
        let others = made.forms.iter().copied().filter(|form| *form != Form::Taken(used)).collect();
        self.take(op, &Made { place: made.place, forms: others });
        Ok(())
    }

    /// Lists which experts take the rows of weights that lie in single precision.
    pub(super) fn take(&mut self, op: &'static str, made: &Made) {
        for form in &made.forms {
            if let Form::Taken(used) = form {
                let to = [Some(Resource::Taken(made.place.slot.index(), *used)), None];
                let kernel = self.chooser(&made.place, *used, false, to);
                self.push(op, kernel);
            }
        }
    }

    fn chooser(&self, x: &Place, used: usize, softmax: bool, [taken, plain]: [Option<Resource>; 2]) -> Kernel {
        let mut bindings = vec![reads("x", "f32", slot(x))];
        bindings.extend(taken.map(|to| writes("taken", "vec2<u32>", to)));
        bindings.extend(plain.map(|to| writes("y", "f32", to)));
        let values = json!({
            "workgroup": WORKGROUP.min(self.traits.workgroup), "width": x.shape.width, "used": used,
            "softmax": softmax, "taken": taken.is_some(), "plain": plain.is_some(),
            "x_stride": stride(x), "y_stride": stride(x),
        });
        Kernel {
            template: "route",
            values,
            bindings,
            groups: [count(x.shape.rows, 1), Count::Fixed(1), Count::Fixed(1)],
        }
    }

    pub(super) fn experts(&mut self, op: &'static str, step: &PlanStep, made: &Made, spec: ExpertsSpec) -> Result<()> {
        let x = place(&step.inputs[0])?;
        let taken = Resource::Taken(place(&step.inputs[1])?.slot.index(), spec.top_k);
        let stacks = self.stacks(step, spec)?;
        if self.groups(x.shape.rows, spec.top_k) {
            self.grouped(&Grouped { op, spec, x: &x, taken, stacks: &stacks }, made);
            return Ok(());
        }
        let [first @ .., down] = stacks.as_slice() else { return Err(super::not_computed()) };
        let ffn = first[0].rows;
        let number = x.slot.index();
        let before = Half {
            stacks: first,
            codes: Resource::Codes(number),
            floats: slot(&x),
            stride: stride(&x),
            columns: x.shape.width,
        };
        let kernel = self.gate_up(&x, &before, taken, spec, down.matrix.planes().coded);
        self.push(op, kernel);
        let after = Half {
            stacks: std::slice::from_ref(down),
            codes: Resource::SlotCodes,
            floats: Resource::Slots(0),
            stride: ffn.next_multiple_of(64),
            columns: ffn,
        };
        let kernel = self.down(&made.place, &after, taken, spec);
        self.push(op, kernel);
        self.convert(op, made);
        Ok(())
    }

    /// The stacks: gate, up, down.
    fn stacks(&self, step: &PlanStep, spec: ExpertsSpec) -> Result<Vec<Stacked>> {
        let matrices = step.matrices().iter().map(|operand| self.matrix(operand)).collect::<Result<Vec<_>>>()?;
        if matrices.iter().any(|matrix| matrix.segments.len() != 1) {
            let most = self.traits.binding_bytes;
            return Err(Error::Unsupported(format!(
                "the experts of a layer are larger than the {most} bytes that this GPU's kernels see at once: use the CPU"
            )));
        }
        let alone = |matrix: &Arc<Matrix>| {
            let rows = matrix.rows / spec.experts;
            Stacked { matrix: matrix.clone(), rows, first: 0, every: rows }
        };
        Ok(match matrices.as_slice() {
            [both, down] => {
                let rows = both.rows / (2 * spec.experts);
                let half = |first| Stacked { matrix: both.clone(), rows, first, every: 2 * rows };
                vec![half(0), half(rows), alone(down)]
            }
            others => others.iter().map(alone).collect(),
        })
    }

    fn gate_up(&self, x: &Place, half: &Half<'_>, taken: Resource, spec: ExpertsSpec, emits: bool) -> Kernel {
        let units = half.stacks[0].matrix.units;
        let shape = tiles::few(self.traits, units, half.stacks[0].rows, emits, 2);
        let ffn = half.stacks[0].rows;
        let mut bindings = vec![reads("taken", "vec2<u32>", taken)];
        let mut values = self.half(half, &shape, &mut bindings, ffn.next_multiple_of(64));
        match emits {
            true => bindings.push(writes("y_codes", "u32", Resource::SlotCodes)),
            false => bindings.push(writes("out0", "f32", Resource::Slots(0))),
        }
        let x_norm = self.pending.get(&x.slot.index());
        let x_norm = x_norm.map(|norm| json!({ "reciprocal": float(1.0 / norm.width as f32), "eps": float(norm.eps) }));
        values = with(
            values,
            json!({
                "parts_joined": 1, "glu": function(spec.activation), "stores": !emits, "x_norm": x_norm,
                "emits": if emits { json!({ "norm": false }) } else { Value::Null },
                "out_blocks": if emits { ffn / UNIT } else { 0 },
                "mixture": { "experts": spec.experts, "used": spec.top_k, "sums": false },
            }),
        );
        let groups = [Count::Fixed(ffn.div_ceil(shape.group_rows())), count(x.shape.rows, 1), Count::Fixed(spec.top_k)];
        Kernel { template: "matmul_few", values, bindings, groups }
    }

    fn down(&self, out: &Place, half: &Half<'_>, taken: Resource, spec: ExpertsSpec) -> Kernel {
        let Stacked { matrix, rows, .. } = &half.stacks[0];
        let shape = tiles::few(self.traits, matrix.units, *rows, false, 1);
        let mut bindings = vec![reads("taken", "vec2<u32>", taken)];
        let values = self.half(half, &shape, &mut bindings, stride(out));
        bindings.push(writes("out0", "f32", slot(out)));
        let values = with(
            values,
            json!({
                "parts_joined": 1, "glu": Value::Null, "stores": true, "x_norm": Value::Null, "emits": Value::Null,
                "out_blocks": 0, "mixture": { "experts": spec.experts, "used": spec.top_k, "sums": true },
            }),
        );
        let groups = [Count::Fixed(rows.div_ceil(shape.group_rows())), count(out.shape.rows, 1), Count::Fixed(1)];
        Kernel { template: "matmul_few", values, bindings, groups }
    }

    /// What the kernel for few rows is told of either half.
    fn half(&self, half: &Half<'_>, shape: &Few, bindings: &mut Vec<Bound>, out_stride: usize) -> Value {
        let any = |coded: bool| half.stacks.iter().any(|stack| stack.matrix.planes().coded == coded);
        if any(true) {
            bindings.push(reads("x_codes", "vec4<u32>", half.codes));
        }
        if any(false) {
            bindings.push(reads("x_floats", "vec4<f32>", half.floats));
        }
        let mut parts = vec![];
        for (number, stack) in half.stacks.iter().enumerate() {
            let part = Part::of(&stack.matrix);
            parts.push(with(with(self.part(number, &part), stack.values()), json!({ "out_stride": out_stride })));
            self.bind_part(bindings, number, &part);
        }
        let shifts: Vec<_> = (0..shape.team.ilog2()).map(|bit| 1 << bit).collect();
        json!({
            "parts": parts, "team": shape.team, "rows": shape.rows, "passes": shape.passes, "unrolled": shape.unrolled,
            "tokens": 1, "shifts": shifts, "x_stride": half.stride, "workgroup": shape.workgroup,
            "subgroup": self.traits.subgroup, "group_rows": shape.group_rows(), "residual": Value::Null,
            "residual_stride": 0, "emitting": UNIT, "columns": half.columns,
            "ragged": any(false) && !half.columns.is_multiple_of(UNIT), "count_at": 0,
        })
    }

    /// The forms in which experts want their operands.
    pub(super) fn forms_of_experts(&self, step: &PlanStep, operand: usize, used: usize) -> Result<Forms> {
        if operand == 1 {
            return Ok(Forms::from([Form::Taken(used)]));
        }
        let [first @ .., _] = step.matrices() else { return Err(super::not_computed()) };
        let rows = place(&step.inputs[0])?.shape.rows;
        let form = |matrix: &Matrix| match (self.groups(rows, used), matrix.planes().coded) {
            (true, _) => self.form_for(matrix, rows),
            (false, true) => Form::Codes,
            (false, false) => Form::Plain,
        };
        first.iter().map(|operand| Ok(form(&*self.matrix(operand)?))).collect()
    }
}
