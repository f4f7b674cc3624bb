//! Products with matrices.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Command, FEW, Form, Forms, Lowering, Made, PendingNorm, function, place, rows::Source, slot, stride, with,
};
use crate::{
    Error, Result,
    backend::webgpu::{
        arena::{Matrix, Segment},
        kernel::{Bound, Count, Kernel, Resource, When, reads, writes},
        tiles::{self, Few},
    },
    graph::{Activation, Rows},
    plan::{Place, PlanStep},
    quant::{Planes, UNIT},
};

/// Rows that a kernel for few tokens multiplies with at a time.
const TOKENS: [usize; 4] = [1, 2, 4, 8];

/// Where a product goes.
#[derive(Clone, Copy)]
struct Out {
    resource: Resource,
    stride: usize,
}

/// What is done with products of few rows.
enum Finish {
    Store,
    /// Added to this, which may be where it goes.
    Add(Out),
    /// The first activated, times the second.
    Glu(Activation),
}

/// A result that a product writes in 8 bits itself.
struct Emit {
    to: Resource,
    blocks: usize,
    norm: Option<Resource>,
}

/// A matrix's rows that one binding holds, and where their products go.
pub(super) struct Part<'a> {
    matrix: &'a Matrix,
    segment: &'a Segment,
    out: Out,
}

impl<'a> Part<'a> {
    /// A matrix that one binding holds, whose products go where the kernel says.
    pub fn of(matrix: &'a Matrix) -> Self {
        Self { matrix, segment: &matrix.segments[0], out: Out { resource: Resource::Slots(0), stride: 0 } }
    }
}

impl Lowering<'_> {
    pub(super) fn products(&mut self, op: &'static str, step: &PlanStep, made: &[Made]) -> Result<()> {
        let matrices = self.matrices(step)?;
        let outs: Vec<_> = made.iter().map(|made| out(&made.place)).collect();
        self.multiply(op, &place(&step.inputs[0])?, &matrices, &outs, &Finish::Store)?;
        made.iter().for_each(|made| self.convert(op, made));
        Ok(())
    }

    pub(super) fn product_add(&mut self, op: &'static str, step: &PlanStep, made: &Made) -> Result<()> {
        let matrices = self.matrices(step)?;
        let residual = out(&place(&step.inputs[2])?);
        self.multiply(op, &place(&step.inputs[0])?, &matrices, &[out(&made.place)], &Finish::Add(residual))?;
        self.convert(op, made);
        Ok(())
    }

    pub(super) fn product_add_norm(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        made: &[Made],
        eps: f32,
    ) -> Result<()> {
        let [sum, normed] = made else { return Err(Error::Graph(format!("{op} has other than two results"))) };
        let matrices = self.matrices(step)?;
        let (x, residual) = (place(&step.inputs[0])?, out(&place(&step.inputs[2])?));
        let norm = self.vector_resource(&step.inputs[3])?;
        let width = normed.place.shape.width;
        if self.emits(&sum.place, &matrices) && normed.forms == Forms::from([Form::Codes]) {
            let to = Resource::Codes(normed.place.slot.index());
            let emit = Emit { to, blocks: width / UNIT, norm: Some(norm) };
            self.few(op, &x, &matrices, &[out(&sum.place)], &Finish::Add(residual), Some(&emit))?;
            let pending = PendingNorm { width, eps };
            self.pending.insert(normed.place.slot.index(), pending);
        } else {
            self.multiply(op, &x, &matrices, &[out(&sum.place)], &Finish::Add(residual))?;
            let source = Source::Copy(slot(&sum.place), stride(&sum.place));
            self.rows(op, source, normed, Some((norm, eps)), None);
        }
        self.convert(op, sum);
        Ok(())
    }

    pub(super) fn glu(&mut self, op: &'static str, step: &PlanStep, made: &Made, activation: Activation) -> Result<()> {
        let matrices = self.matrices(step)?;
        let x = place(&step.inputs[0])?;
        let whole = matrices.iter().all(|matrix| matrix.segments.len() == 1);
        if self.is_few(x.shape.rows) && whole {
            let emits = self.emits(&made.place, &matrices) && made.forms == Forms::from([Form::Codes]);
            let to = Resource::Codes(made.place.slot.index());
            let emit = emits.then_some(Emit { to, blocks: made.place.shape.width / UNIT, norm: None });
            self.few(op, &x, &matrices, &[out(&made.place)], &Finish::Glu(activation), emit.as_ref())?;
            if !emits {
                self.convert(op, made);
            }
            return Ok(());
        }
        let stride = stride(&made.place);
        let outs = [0, 1].map(|temp| Out { resource: Resource::Temp(temp), stride });
        self.multiply(op, &x, &matrices, &outs, &Finish::Store)?;
        self.rows(op, Source::Glu(stride, activation), made, None, None);
        Ok(())
    }

    fn matrices(&self, step: &PlanStep) -> Result<Vec<Arc<Matrix>>> {
        step.matrices().iter().map(|operand| self.matrix(operand)).collect()
    }

    /// Whether a kernel for few rows can write this result in 8 bits itself: a workgroup then has a block of it.
    fn emits(&self, result: &Place, matrices: &[Arc<Matrix>]) -> bool {
        self.is_few(result.shape.rows)
            && result.shape.width.is_multiple_of(UNIT)
            && matrices.iter().all(|matrix| matrix.segments.len() == 1)
    }

    fn multiply(
        &mut self,
        op: &'static str,
        x: &Place,
        matrices: &[Arc<Matrix>],
        outs: &[Out],
        finish: &Finish,
    ) -> Result<()> {
        if self.is_few(x.shape.rows) {
            return self.few(op, x, matrices, outs, finish, None);
        }
        if let (Finish::Add(residual), [out]) = (finish, outs)
            && residual.resource != out.resource
        {
            self.copy_rows(op, x.shape.rows, *residual, *out, matrices[0].rows);
        }
        // Those of one form together, since they read the same rows.
        for form in [Form::Half, Form::Plain] {
            let of_form = |matrix: &Matrix| self.form_for(matrix, x.shape.rows) == form;
            let parts: Vec<_> = matrices
                .iter()
                .zip(outs)
                .flat_map(|(matrix, out)| parts(matrix, *out))
                .filter(|part| of_form(part.matrix))
                .collect();
            let adds = matches!(finish, Finish::Add(_));
            for parts in parts.chunks(tiles::MAX_PARTS) {
                let kernel = self.many(x, parts, form, adds);
                self.push(op, kernel);
            }
        }
        Ok(())
    }

    fn copy_rows(&mut self, op: &'static str, rows: Rows, from: Out, to: Out, width: usize) {
        let kernel = Kernel {
            template: "elementwise",
            values: json!({
                "op": "copy", "workgroup": 64, "width": width, "in_place": false,
                "a_stride": from.stride, "y_stride": to.stride,
            }),
            bindings: vec![writes("y", "f32", to.resource), reads("a", "f32", from.resource)],
            groups: [Count::Fixed(width.div_ceil(64)), super::count(rows, 1), Count::Fixed(1)],
        };
        self.push(op, kernel);
    }

    /// A tiled product.
    fn many(&self, x: &Place, parts: &[Part<'_>], form: Form, adds: bool) -> Kernel {
        let half = form == Form::Half;
        let tile = tiles::choose(self.traits, half, parts.iter().map(|part| part.segment.rows).sum(), x.shape.width);
        let mut bindings = match half {
            true => vec![
                reads("x", "vec4<f16>", Resource::Half(x.slot.index())),
                reads("x_scale", "f32", Resource::HalfScale(x.slot.index())),
            ],
            false => vec![reads("x", "vec4<f32>", slot(x))],
        };
        let mut values = vec![];
        let mut block = 0;
        for (number, part) in parts.iter().enumerate() {
            values.push(with(
                self.part(number, part),
                json!({ "first_block": block, "stride": part.out.stride, "add": adds }),
            ));
            block += part.segment.rows.div_ceil(tile.rows);
            self.bind_part(&mut bindings, number, part);
            bindings.push(writes(&format!("out{number}"), "f32", part.out.resource));
        }
        let columns = parts[0].matrix.units * UNIT;
        Kernel {
            template: if half { "matmul_coop" } else { "matmul_tiled" },
            values: with(
                tile.values(self.traits),
                json!({ "parts": values, "columns": columns, "x_stride": stride(x), "last": x.shape.width,
                    "count_at": count_at(x.shape.rows) }),
            ),
            bindings,
            groups: [super::count(x.shape.rows, tile.tokens), Count::Fixed(block), Count::Fixed(1)],
        }
    }

    /// What a template is told of a part.
    pub(super) fn part(&self, number: usize, part: &Part<'_>) -> Value {
        let Part { matrix, segment, .. } = part;
        let Planes { coded, decoder, .. } = matrix.planes();
        json!({
            "p": number.to_string(),
            "rows": segment.rows,
            "units": matrix.units,
            "at": segment.at,
            "coded": coded,
            "decoder": decoder,
            "out_at": segment.first_row,
        })
    }

    pub(super) fn bind_part(&self, bindings: &mut Vec<Bound>, number: usize, part: &Part<'_>) {
        let range = part.segment.range;
        bindings.push(reads(&format!("wide{number}"), "vec4<u32>", range));
        bindings.push(reads(&format!("small{number}"), "u32", range));
    }

    /// Products of few rows, with a variant of the kernel for each number of them.
    fn few(
        &mut self,
        op: &'static str,
        x: &Place,
        matrices: &[Arc<Matrix>],
        outs: &[Out],
        finish: &Finish,
        emit: Option<&Emit>,
    ) -> Result<()> {
        let glu = matches!(finish, Finish::Glu(_));
        let outs: Vec<_> = if glu { vec![outs[0]; 2] } else { outs.to_vec() };
        let parts: Vec<_> = matrices.iter().zip(outs).flat_map(|(matrix, out)| parts(matrix, out)).collect();
        let at_once = if glu { 2 } else { tiles::MAX_PARTS };
        for parts in parts.chunks(at_once) {
            let variants = TOKENS.iter().map(|tokens| self.few_variant(x, parts, finish, emit, *tokens)).collect();
            let by_outputs = x.shape.rows == Rows::Outputs;
            self.commands.push(Command { op, step: self.step, when: When::Always, variants, by_outputs });
        }
        Ok(())
    }

    /// What the kernel for few rows is told of its parts, and the workgroups that they take.
    fn few_parts(&self, parts: &[Part<'_>], shape: &Few, bindings: &mut Vec<Bound>) -> (Vec<Value>, usize) {
        let (mut values, mut block) = (vec![], 0);
        for (number, part) in parts.iter().enumerate() {
            let end = block + part.segment.rows.div_ceil(shape.group_rows());
            let more = json!({ "first_block": block, "end_block": end, "out_stride": part.out.stride });
            values.push(with(self.part(number, part), more));
            block = end;
            self.bind_part(bindings, number, part);
        }
        (values, block)
    }

    fn few_variant(
        &self,
        x: &Place,
        parts: &[Part<'_>],
        finish: &Finish,
        emit: Option<&Emit>,
        tokens: usize,
    ) -> Kernel {
        let traits = self.traits;
        let units = parts[0].matrix.units;
        let glu = matches!(finish, Finish::Glu(_));
        let rows: usize = parts.iter().map(|part| part.segment.rows).sum();
        let shape = tiles::few(traits, units, rows, emit.is_some(), if glu { 2 } else { 1 });
        let group_rows = shape.group_rows();
        let slot_number = x.slot.index();
        let pending = self.pending.get(&slot_number);
        let any = |coded: bool| parts.iter().any(|part| part.matrix.planes().coded == coded);

        let mut bindings = vec![];
        if any(true) {
            bindings.push(reads("x_codes", "vec4<u32>", Resource::Codes(slot_number)));
        }
        if any(false) {
            bindings.push(reads("x_floats", "vec4<f32>", slot(x)));
        }
        let (values, block) = self.few_parts(parts, &shape, &mut bindings);
        let activation = match finish {
            Finish::Glu(activation) => Some(*activation),
            Finish::Store | Finish::Add(_) => None,
        };
        let mut residual = Value::Null;
        let mut residual_stride = 0;
        let stores = emit.is_none() || !glu;
        if let Finish::Add(from) = finish {
            let in_place = from.resource == parts[0].out.resource;
            residual = if in_place { "in_place" } else { "other" }.into();
            residual_stride = from.stride;
            if !in_place {
                bindings.push(reads("residual", "f32", from.resource));
            }
        }
        let stored = if glu { 1 } else { parts.len() };
        for (number, part) in parts.iter().take(stored).enumerate().filter(|_| stores) {
            bindings.push(writes(&format!("out{number}"), "f32", part.out.resource));
        }
        let mut emits = Value::Null;
        if let Some(emit) = emit {
            emits = json!({ "norm": emit.norm.is_some() });
            if let Some(norm) = emit.norm {
                bindings.push(reads("norm", "f32", norm));
            }
            bindings.push(writes("y_codes", "u32", emit.to));
        }
        let blocks = if glu { parts[0].segment.rows.div_ceil(group_rows) } else { block };
        let shifts: Vec<_> = (0..shape.team.ilog2()).map(|bit| 1 << bit).collect();
        let x_norm =
            pending.map(|norm| json!({ "reciprocal": float(1.0 / norm.width as f32), "eps": float(norm.eps) }));
        Kernel {
            template: "matmul_few",
            values: json!({
                "parts": values, "parts_joined": if glu { 1 } else { parts.len() },
                "team": shape.team, "rows": shape.rows, "passes": shape.passes, "unrolled": shape.unrolled,
                "tokens": tokens, "shifts": shifts, "x_stride": stride(x),
                "workgroup": shape.workgroup, "subgroup": traits.subgroup, "group_rows": group_rows,
                "glu": activation.map(function), "residual": residual, "residual_stride": residual_stride,
                "stores": stores, "emits": emits, "out_blocks": emit.map_or(0, |emit| emit.blocks), "emitting": 32 * tokens, "x_norm": x_norm, "columns": x.shape.width,
                "ragged": any(false) && !x.shape.width.is_multiple_of(UNIT), "count_at": count_at(x.shape.rows),
            }),
            bindings,
            groups: [Count::Fixed(blocks), super::count(x.shape.rows, tokens), Count::Fixed(1)],
        }
    }
}

/// The parts of a matrix, with where in the rows of `out` their products go.
fn parts(matrix: &Matrix, out: Out) -> impl Iterator<Item = Part<'_>> {
    matrix.segments.iter().map(move |segment| Part { matrix, segment, out })
}

fn out(place: &Place) -> Out {
    Out { resource: slot(place), stride: stride(place) }
}

/// Where in a step's words the number of rows is.
pub(super) fn count_at(rows: Rows) -> usize {
    usize::from(rows == Rows::Outputs)
}

/// The number of the variant for so many rows.
pub(in crate::backend::webgpu) fn variant(rows: usize) -> usize {
    TOKENS.iter().position(|tokens| rows <= *tokens).unwrap_or(TOKENS.len() - 1)
}

/// A number as WGSL writes it.
pub(super) fn float(x: f32) -> String {
    format!("{x:?}f")
}

const _: () = assert!(FEW.is_multiple_of(TOKENS[TOKENS.len() - 1]));
