//! Products with matrices.

mod few;
mod many;

pub(in crate::backend::webgpu) use few::variant;

use std::sync::Arc;

use self::few::Q8Result;
use super::{
    Command, Form, Forms, Lowering, Made, count, place,
    rows::{Source, elementwise},
    strided,
};
use crate::{
    Error, Result,
    backend::webgpu::{
        arena::{Matrix, MatrixPart},
        kernel::Resource,
        kernels::{ElementOp, F32, Finish, Function, Norm, PendingNorm, Strided},
        tiles,
    },
    graph::Activation,
    plan::{Place, PlanStep},
    quant::UNIT,
};

/// The product with those rows of a matrix that one binding holds, and the rows that it is written
/// to.
struct PartProduct<'a> {
    matrix: &'a Matrix,
    part: &'a MatrixPart,
    out: Strided,
}

impl Lowering<'_> {
    pub(super) fn products(&mut self, op: &'static str, step: &PlanStep, made: &[Made]) -> Result<()> {
        let matrices = self.matrices(step)?;
        let outs: Vec<_> = made.iter().map(|made| strided(&made.place)).collect();
        self.multiply(op, &place(&step.inputs[0])?, &matrices, &outs, Finish::Store)?;
        made.iter().for_each(|made| self.convert(op, made));
        Ok(())
    }

    pub(super) fn product_add(&mut self, op: &'static str, step: &PlanStep, made: &Made) -> Result<()> {
        let matrices = self.matrices(step)?;
        let out = strided(&made.place);
        let finish = add(strided(&place(&step.inputs[2])?), out);
        self.multiply(op, &place(&step.inputs[0])?, &matrices, &[out], finish)?;
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
        let [sum, normed] = made else { return Err(Error::internal(format!("{op} has other than two results"))) };
        let matrices = self.matrices(step)?;
        let (x, out) = (place(&step.inputs[0])?, strided(&sum.place));
        let finish = add(strided(&place(&step.inputs[2])?), out);
        let weights = self.vector_resource(&step.inputs[3])?;
        let width = normed.place.shape.width;
        if self.writes_q8(&sum.place, &matrices) && normed.forms == Forms::from([Form::Q8]) {
            let number = normed.place.slot.index();
            let q8 = Q8Result { rows: Resource::Q8(number), blocks: width / UNIT, norm: Some(weights) };
            self.few(op, &x, &matrices, &[out], finish, Some(q8))?;
            let pending = PendingNorm { eps: F32(eps), reciprocal: F32(1.0 / width as f32) };
            self.pending.insert(number, pending);
        } else {
            self.multiply(op, &x, &matrices, &[out], finish)?;
            let norm = Norm::new(width, eps, weights);
            self.rows(op, Source::Copy(out), normed, Some(norm), None);
        }
        self.convert(op, sum);
        Ok(())
    }

    pub(super) fn glu(&mut self, op: &'static str, step: &PlanStep, made: &Made, activation: Activation) -> Result<()> {
        let matrices = self.matrices(step)?;
        let x = place(&step.inputs[0])?;
        let whole = matrices.iter().all(|matrix| matrix.parts.len() == 1);
        if self.is_few(x.shape.rows) && whole {
            let writes_q8 = self.writes_q8(&made.place, &matrices) && made.forms == Forms::from([Form::Q8]);
            let rows = Resource::Q8(made.place.slot.index());
            let q8 = writes_q8.then_some(Q8Result { rows, blocks: made.place.shape.width / UNIT, norm: None });
            let finish = Finish::Glu { function: Function(activation) };
            self.few(op, &x, &matrices, &[strided(&made.place)], finish, q8)?;
            if !writes_q8 {
                self.convert(op, made);
            }
            return Ok(());
        }
        let stride = strided(&made.place).stride;
        let outs = [0, 1].map(|number| Strided { stride, rows: Resource::Temp(number) });
        self.multiply(op, &x, &matrices, &outs, Finish::Store)?;
        self.rows(op, Source::Glu(activation, outs), made, None, None);
        Ok(())
    }

    fn matrices(&self, step: &PlanStep) -> Result<Vec<Arc<Matrix>>> {
        step.matrices().iter().map(|operand| self.matrix(operand)).collect()
    }

    /// Whether a kernel for few rows can write this result as int8 itself: a workgroup then has a
    /// block of it.
    fn writes_q8(&self, result: &Place, matrices: &[Arc<Matrix>]) -> bool {
        self.is_few(result.shape.rows)
            && result.shape.width.is_multiple_of(UNIT)
            && matrices.iter().all(|matrix| matrix.parts.len() == 1)
    }

    fn multiply(
        &mut self,
        op: &'static str,
        x: &Place,
        matrices: &[Arc<Matrix>],
        outs: &[Strided],
        finish: Finish,
    ) -> Result<()> {
        if self.is_few(x.shape.rows) {
            return self.few(op, x, matrices, outs, finish, None);
        }
        let rows = x.shape.rows;
        // Tiled products add to what is there.
        if let (Finish::Add { stride, rows: residual }, [out]) = (finish, outs) {
            let residual = Strided { stride, rows: residual };
            self.push(op, elementwise(ElementOp::Copy, residual, *out, matrices[0].rows, rows));
        }
        // Matrices that read one form of the rows go together.
        for form in [Form::F16, Form::F32] {
            let of_form = |matrix: &Matrix| self.form_for(matrix, rows) == form;
            let parts: Vec<_> = matrices
                .iter()
                .zip(outs)
                .flat_map(|(matrix, out)| parts(matrix, *out))
                .filter(|part| of_form(part.matrix))
                .collect();
            let adds = matches!(finish, Finish::AddInPlace | Finish::Add { .. });
            for parts in parts.chunks(tiles::MAX_PARTS) {
                let kernel = self.many(x, parts, form, adds);
                self.push(op, kernel);
            }
        }
        Ok(())
    }
}

/// Adds `rows` to products that go to `out`, which may be the same rows.
fn add(Strided { stride, rows }: Strided, out: Strided) -> Finish {
    if rows == out.rows { Finish::AddInPlace } else { Finish::Add { stride, rows } }
}

/// Returns the products of a matrix's parts, whose results are columns of the rows `out`.
fn parts(matrix: &Matrix, out: Strided) -> impl Iterator<Item = PartProduct<'_>> {
    matrix.parts.iter().map(move |part| PartProduct { matrix, part, out })
}
