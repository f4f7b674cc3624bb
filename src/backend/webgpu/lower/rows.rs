//! Ops on rows: what looks them up, norms, selects or combines them, and rewrites them in other forms.

use serde_json::{Value, json};

use super::{Form, Forms, Lowering, Made, count, function, place, product::float, rotation, slot, stride, with};
use crate::{
    Result,
    backend::webgpu::kernel::{Bound, Count, Kernel, Resource, reads, writes},
    graph::{Activation, RopeSpec, Rows},
    plan::{Operand, PlanStep},
    quant::UNIT,
};

/// Where rows come from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// Rows with this distance between them.
    Copy(Resource, usize),
    /// Those of the outputs.
    Select(Resource, usize),
    /// The sum of rows and rows.
    Sum([(Resource, usize); 2]),
    /// The first temporary rows, activated, times the second.
    Glu(usize, Activation),
}

/// Rows of a sum are also kept as such.
pub(super) struct KeptSum {
    resource: Resource,
    stride: usize,
}

/// Where rows go, in each form that is wanted.
pub(super) struct Target<'a> {
    pub forms: &'a Forms,
    pub plain: Resource,
    pub codes: Resource,
    /// Rows and their scales.
    pub half: [Resource; 2],
    pub width: usize,
    pub stride: usize,
    /// How many rows there are.
    pub count: Count,
}

const WORKGROUP: u32 = 128;

impl Lowering<'_> {
    pub(super) fn rms_norm(&mut self, op: &'static str, step: &PlanStep, made: &Made, eps: f32) -> Result<()> {
        let x = place(&step.inputs[0])?;
        let weight = self.vector(&step.inputs[1])?;
        let norm = self.vector_resource(&step.inputs[1])?;
        if weight.len() == x.shape.width {
            self.rows(op, Source::Copy(slot(&x), stride(&x)), made, Some((norm, eps)), None);
            return Ok(());
        }
        let kernel = self.heads(
            &x,
            made.place.shape.rows,
            slot(&made.place),
            stride(&made.place),
            weight.len(),
            Some((norm, eps)),
            None,
        );
        self.push(op, kernel);
        self.convert(op, made);
        Ok(())
    }

    pub(super) fn rope(&mut self, op: &'static str, step: &PlanStep, made: &Made, spec: &RopeSpec) -> Result<()> {
        let x = place(&step.inputs[0])?;
        let angles = self.angles(&step.inputs[1])?;
        let (to, stride) = (slot(&made.place), stride(&made.place));
        let kernel = self.heads(&x, Rows::Tokens, to, stride, spec.head_dim, None, Some((spec, angles)));
        self.push(op, kernel);
        self.convert(op, made);
        Ok(())
    }

    /// Norms heads, rotates them, or both.
    #[allow(clippy::too_many_arguments, reason = "what it does and where is all there is to say")]
    pub(super) fn heads(
        &self,
        x: &crate::plan::Place,
        rows: Rows,
        to: Resource,
        to_stride: usize,
        head_dim: usize,
        norm: Option<(Resource, f32)>,
        rope: Option<(&RopeSpec, (usize, usize))>,
    ) -> Kernel {
        let in_place = slot(x) == to;
        let mut bindings = vec![writes("y", "f32", to)];
        if !in_place {
            bindings.push(reads("x", "f32", slot(x)));
        }
        if let Some((weight, _)) = norm {
            bindings.push(reads("weight", "f32", weight));
        }
        let workgroup = (head_dim as u32).next_power_of_two().clamp(32, self.traits.workgroup.min(128));
        let mut values = with(
            self.common(workgroup),
            json!({
                "in_place": in_place, "x_stride": stride(x), "y_stride": to_stride, "head_dim": head_dim,
                "norm": norm.is_some(), "eps": float(norm.map_or(0.0, |(_, eps)| eps)),
                "reciprocal": float(1.0 / head_dim as f32),
                "reduced": [{ "name": "one", "wgsl": "f32" }],
            }),
        );
        if let Some((spec, angles)) = rope {
            values = with(values, rotation(spec, angles));
        }
        let groups = [Count::Fixed(x.shape.width / head_dim), count(rows, 1), Count::Fixed(1)];
        Kernel { template: "heads", values, bindings, groups }
    }

    pub(super) fn add_rms_norm(&mut self, op: &'static str, step: &PlanStep, made: &[Made], eps: f32) -> Result<()> {
        let [a, b] = [place(&step.inputs[0])?, place(&step.inputs[1])?];
        let norm = self.vector_resource(&step.inputs[2])?;
        let sum = KeptSum { resource: slot(&made[0].place), stride: stride(&made[0].place) };
        let source = Source::Sum([a, b].map(|place| (slot(&place), stride(&place))));
        self.rows(op, source, &made[1], Some((norm, eps)), Some(sum));
        self.convert(op, &made[0]);
        Ok(())
    }

    pub(super) fn select(&mut self, op: &'static str, step: &PlanStep, made: &Made) -> Result<()> {
        let x = place(&step.inputs[0])?;
        self.rows(op, Source::Select(slot(&x), stride(&x)), made, None, None);
        Ok(())
    }

    /// Looks rows of a table up, from each of its parts those that are there.
    pub(super) fn embed(&mut self, op: &'static str, table: &Operand, made: &Made) -> Result<()> {
        let table = self.matrix(table)?;
        for segment in &table.segments {
            let bindings = vec![
                reads("ids", "u32", Resource::Ids),
                reads("wide0", "vec4<u32>", segment.range),
                reads("small0", "u32", segment.range),
            ];
            let whole = table.segments.len() == 1;
            let more = json!({
                "source": "embed", "decoder": table.planes().decoder, "coded": table.planes().coded,
                "p": "0", "units": table.units, "at": segment.at,
                "first_row": segment.first_row, "table_rows": segment.rows, "whole": whole,
            });
            let kernel = self.rows_kernel(more, bindings, made, None, None);
            self.push(op, kernel);
        }
        Ok(())
    }

    /// Makes rows in the forms that are wanted of them.
    pub(super) fn rows(
        &mut self,
        op: &'static str,
        source: Source,
        made: &Made,
        norm: Option<(Resource, f32)>,
        sum: Option<KeptSum>,
    ) {
        let mut bindings = vec![];
        let plain = slot(&made.place);
        let kept = sum.as_ref().map(|sum| sum.resource);
        // A source that is overwritten goes by the name of what overwrites it.
        let mut named = |name: &str, resource: Resource| {
            if Some(resource) == kept {
                "sum".to_string()
            } else if resource == plain && made.forms.contains(&Form::Plain) {
                "plain".into()
            } else {
                bindings.push(reads(name, "vec4<f32>", resource));
                name.into()
            }
        };
        let values = match source {
            Source::Copy(from, stride) => json!({ "source": "copy", "a": named("a", from), "a_stride": stride }),
            Source::Select(from, stride) => json!({ "source": "select", "a": named("a", from), "a_stride": stride }),
            Source::Sum([(a, a_stride), (b, b_stride)]) => json!({
                "source": "sum", "a": named("a", a), "a_stride": a_stride, "b": named("b", b), "b_stride": b_stride,
            }),
            Source::Glu(stride, activation) => json!({
                "source": "glu", "activation": function(activation), "a": named("a", Resource::Temp(0)), "a_stride": stride,
                "b": named("b", Resource::Temp(1)), "b_stride": stride,
            }),
        };
        let kernel = self.rows_kernel(values, bindings, made, norm, sum);
        self.push(op, kernel);
    }

    fn rows_kernel(
        &self,
        values: Value,
        bindings: Vec<Bound>,
        made: &Made,
        norm: Option<(Resource, f32)>,
        sum: Option<KeptSum>,
    ) -> Kernel {
        let number = made.place.slot.index();
        let target = Target {
            forms: &made.forms,
            plain: slot(&made.place),
            codes: Resource::Codes(number),
            half: [Resource::Half(number), Resource::HalfScale(number)],
            width: made.place.shape.width,
            stride: stride(&made.place),
            count: count(made.place.shape.rows, 1),
        };
        self.rows_to(values, bindings, &target, norm, sum)
    }

    pub(super) fn rows_to(
        &self,
        values: Value,
        mut bindings: Vec<Bound>,
        to: &Target<'_>,
        norm: Option<(Resource, f32)>,
        sum: Option<KeptSum>,
    ) -> Kernel {
        let width = to.width;
        if let Some((weight, _)) = norm {
            bindings.push(reads("norm_weight", "vec4<f32>", weight));
        }
        let mut forms = vec![];
        if let Some(sum) = &sum {
            bindings.push(writes("sum", "vec4<f32>", sum.resource));
            forms.push("sum");
        }
        for form in to.forms {
            match form {
                Form::Plain => {
                    bindings.push(writes("plain", "vec4<f32>", to.plain));
                    forms.push("plain");
                }
                Form::Codes => {
                    bindings.push(writes("codes", "u32", to.codes));
                    forms.push("codes");
                }
                Form::Half => {
                    bindings.push(writes("half_rows", "u32", to.half[0]));
                    bindings.push(writes("half_scales", "f32", to.half[1]));
                    forms.push("half");
                }
                // Made of rows in single precision by a kernel of its own.
                Form::Taken(_) => {}
            }
        }
        let workgroup = WORKGROUP.min(self.traits.workgroup);
        let more = json!({
            "forms": forms, "width": width, "blocks": width.div_ceil(UNIT),
            "plain_stride": to.stride, "half_stride": to.stride,
            "sum_stride": sum.map_or(0, |sum| sum.stride),
            "norm": norm.is_some(), "eps": float(norm.map_or(0.0, |(_, eps)| eps)),
            "reciprocal": float(1.0 / width as f32),
            "reduced": [{ "name": "one", "wgsl": "f32" }],
        });
        Kernel {
            template: "rows",
            values: with(with(self.common(workgroup), values), more),
            bindings,
            groups: [to.count, Count::Fixed(1), Count::Fixed(1)],
        }
    }

    /// The function or operator `name` of `elementwise.wgsl`; `more` is what that function is told.
    pub(super) fn elementwise(
        &mut self,
        op: &'static str,
        name: &str,
        step: &PlanStep,
        made: &Made,
        more: Value,
    ) -> Result<()> {
        let a = place(&step.inputs[0])?;
        let (to, width) = (slot(&made.place), made.place.shape.width);
        let in_place = slot(&a) == to;
        let mut bindings = vec![writes("y", "f32", to)];
        if !in_place {
            bindings.push(reads("a", "f32", slot(&a)));
        }
        let second = match step.inputs.get(1) {
            Some(Operand::Slot(b)) => {
                bindings.push(reads("b", "f32", slot(b)));
                format!("b[row * {}u + column]", stride(b))
            }
            Some(row) => {
                bindings.push(reads("b", "f32", self.vector_resource(row)?));
                if self.vector(row)?.len() == 1 { "b[0]" } else { "b[column]" }.into()
            }
            None => String::new(),
        };
        let values = json!({
            "op": name, "workgroup": 64, "width": width, "in_place": in_place, "second": second,
            "a_stride": stride(&a), "y_stride": stride(&made.place),
        });
        let kernel = Kernel {
            template: "elementwise",
            values: with(values, more),
            bindings,
            groups: [Count::Fixed(width.div_ceil(64)), count(made.place.shape.rows, 1), Count::Fixed(1)],
        };
        self.push(op, kernel);
        self.convert(op, made);
        Ok(())
    }
}
