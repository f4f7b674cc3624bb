//! Lowers products with matrices, and the additions, activations and norms that are fused with
//! them.

mod after;
mod gemm;
mod gemv;

use std::sync::Arc;

use self::{after::AfterProduct, gemv::Q8Result};
use super::{
    Command, Form, Forms, GpuLowering, OutputForms, place,
    rows::{RowOp, elementwise},
    strided, workgroups,
};
use crate::{
    Error, Result,
    backend::webgpu::{
        kernel::Resource,
        kernels::{ElementOp, ExpertStack, F32, Finish, GluFunction, Norm, PendingNorm, Strided},
        tiles,
        weight_buffers::{GpuMatrix, MatrixPart},
    },
    graph::Activation,
    plan::{Place, PlanStep},
    quant::UNIT,
};

/// The product with a part of a matrix, the rows of its result, and the operations on the products
/// before they are written there.
struct PartProduct<'a> {
    matrix: &'a GpuMatrix,
    /// The number of heads of a row, each with a matrix of the part; 1 for whole rows.
    heads: usize,
    part: &'a MatrixPart,
    out: Strided,
    after: AfterProduct,
}

impl GpuLowering<'_> {
    pub(super) fn products(&mut self, op: &'static str, step: &PlanStep, outputs: &[OutputForms]) -> Result<()> {
        let (x, matrices) = (place(&step.inputs[0])?, self.matrices(step)?);
        if step.stacked(0) > 1 && matrices[0].parts.len() > 1 {
            let most = self.traits.binding_bytes;
            return Err(Error::Unsupported(format!(
                "the matrices of a layer's heads are larger than the {most} bytes that this GPU's kernels see at once: \
                 use the CPU"
            )));
        }
        if self.is_gemv(x.shape.rows) {
            let outs: Vec<_> = outputs.iter().map(|output| strided(&output.place)).collect();
            self.gemv(op, &x, &matrices, &outs, Finish::Store, None)?;
            outputs.iter().for_each(|output| self.convert(op, output));
            return Ok(());
        }
        let mut finished = vec![];
        for output in outputs {
            finished.push(self.after_product(step, output)?);
        }
        let outs: Vec<_> = finished.iter().map(|(after, output)| (strided(&output.place), *after)).collect();
        self.gemms(op, &x, &matrices, &outs);
        finished.iter().for_each(|(_, output)| self.convert(op, output));
        Ok(())
    }

    pub(super) fn product_add(&mut self, op: &'static str, step: &PlanStep, output: &OutputForms) -> Result<()> {
        let matrices = self.matrices(step)?;
        let out = strided(&output.place);
        let finish = add(strided(&place(&step.inputs[2])?), out);
        self.multiply(op, &place(&step.inputs[0])?, &matrices, &[out], finish)?;
        self.convert(op, output);
        Ok(())
    }

    pub(super) fn product_add_norm(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        outputs: &[OutputForms],
        eps: f32,
    ) -> Result<()> {
        let [sum, normed] = outputs else { return Err(Error::internal(format!("{op} has other than two results"))) };
        let matrices = self.matrices(step)?;
        let (x, out) = (place(&step.inputs[0])?, strided(&sum.place));
        let finish = add(strided(&place(&step.inputs[2])?), out);
        let weights = self.vector_resource(&step.inputs[3])?;
        let width = normed.place.shape.width;
        if self.leaves_norm(step, &[sum.forms.clone(), normed.forms.clone()])? {
            let number = normed.place.slot.index();
            let floats = normed.forms.contains(&Form::F32OrPending).then(|| strided(&normed.place));
            let q8 = Q8Result { rows: Resource::Q8(number), blocks: width / UNIT, norm: Some(weights), floats };
            self.gemv(op, &x, &matrices, &[out], finish, Some(q8))?;
            let pending = PendingNorm { eps: F32(eps), reciprocal: F32(1.0 / width as f32) };
            self.pending_norms.insert(number, pending);
        } else {
            self.multiply(op, &x, &matrices, &[out], finish)?;
            let norm = Norm::new(width, eps, weights);
            self.rows(op, RowOp::Copy(out), normed, Some(norm), None);
        }
        self.convert(op, sum);
        Ok(())
    }

    pub(super) fn glu(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        output: &OutputForms,
        activation: Activation,
    ) -> Result<()> {
        let matrices = self.matrices(step)?;
        let x = place(&step.inputs[0])?;
        let whole = matrices.iter().all(|matrix| matrix.parts.len() == 1);
        if self.is_gemv(x.shape.rows) && whole {
            let writes_q8 = self.writes_q8(&output.place, &matrices) && output.forms == Forms::from([Form::Q8]);
            let rows = Resource::Q8(output.place.slot.index());
            let q8 = writes_q8.then_some(Q8Result {
                rows,
                blocks: output.place.shape.width / UNIT,
                norm: None,
                floats: None,
            });
            let finish = Finish::Glu { function: GluFunction(activation.into()) };
            self.gemv(op, &x, &matrices, &[strided(&output.place)], finish, q8)?;
            if !writes_q8 {
                self.convert(op, output);
            }
            return Ok(());
        }
        let stride = strided(&output.place).stride;
        let outs = [0, 1].map(|number| Strided { stride, rows: Resource::Temp(number) });
        self.multiply(op, &x, &matrices, &outs, Finish::Store)?;
        self.rows(op, RowOp::Glu(activation.into(), outs), output, None, None);
        Ok(())
    }

    pub(super) fn matrices(&self, step: &PlanStep) -> Result<Vec<Arc<GpuMatrix>>> {
        step.matrices().iter().map(|operand| self.matrix(operand)).collect()
    }

    /// Returns whether the kernel of a product can write its result as int8: a workgroup must have
    /// a whole block of the result.
    pub(super) fn writes_q8(&self, result: &Place, matrices: &[Arc<GpuMatrix>]) -> bool {
        self.is_gemv(result.shape.rows)
            && result.shape.width.is_multiple_of(UNIT)
            && matrices.iter().all(|matrix| matrix.parts.len() == 1)
    }

    fn multiply(
        &mut self,
        op: &'static str,
        x: &Place,
        matrices: &[Arc<GpuMatrix>],
        outs: &[Strided],
        finish: Finish,
    ) -> Result<()> {
        if self.is_gemv(x.shape.rows) {
            return self.gemv(op, x, matrices, outs, finish, None);
        }
        let rows = x.shape.rows;
        // Tiled products add to the content of the result, so the residual is copied there first.
        if let (Finish::Add { stride, rows: residual }, [out]) = (finish, outs) {
            let residual = Strided { stride, rows: residual };
            self.push(op, elementwise(ElementOp::Copy, residual, *out, matrices[0].rows, rows));
        }
        let adds = matches!(finish, Finish::AddInPlace | Finish::Add { .. });
        let after = AfterProduct { adds, ..AfterProduct::default() };
        let outs: Vec<_> = outs.iter().map(|out| (*out, after)).collect();
        self.gemms(op, x, matrices, &outs);
        Ok(())
    }

    /// Pushes products of more than 16 rows: matrices that read the same form of the rows share a
    /// kernel.
    fn gemms(&mut self, op: &'static str, x: &Place, matrices: &[Arc<GpuMatrix>], outs: &[(Strided, AfterProduct)]) {
        for form in [Form::F16, Form::F32] {
            let of_form = |matrix: &GpuMatrix| self.form_for(matrix, x.shape.rows) == form;
            let parts: Vec<_> = matrices
                .iter()
                .zip(outs)
                .flat_map(|(matrix, (out, after))| parts(x, matrix, *out, *after))
                .filter(|part| of_form(part.matrix))
                .collect();
            for parts in parts.chunks(tiles::MAX_PARTS) {
                self.gemm(op, x, parts, form);
            }
        }
    }
}

/// Returns the addition of `rows` to products whose result is `out`, which can be the same rows.
fn add(Strided { stride, rows }: Strided, out: Strided) -> Finish {
    if rows == out.rows { Finish::AddInPlace } else { Finish::Add { stride, rows } }
}

/// Returns the products of `x` with the parts of a matrix, whose results are columns of the rows
/// `out`. A matrix that is as wide as a head is the stack of the heads' matrices.
fn parts<'a>(
    x: &Place,
    matrix: &'a GpuMatrix,
    out: Strided,
    after: AfterProduct,
) -> impl Iterator<Item = PartProduct<'a>> + use<'a> {
    let heads = x.shape.width.div_ceil(matrix.units * UNIT);
    matrix.parts.iter().map(move |part| PartProduct { matrix, heads, part, out, after })
}

impl PartProduct<'_> {
    /// Returns the rows of the matrix of each head.
    fn rows(&self) -> usize {
        self.part.rows / self.heads
    }

    /// Returns the rows of each head in the matrix, if there are heads.
    fn stack(&self) -> Option<ExpertStack> {
        (self.heads > 1).then(|| ExpertStack { offset: 0, stride: self.rows() })
    }
}
