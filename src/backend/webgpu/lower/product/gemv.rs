//! Lowers products of up to 16 rows.

use std::sync::Arc;

use super::{AfterProduct, Command, GpuLowering, PartProduct, parts, workgroups};
use crate::{
    Result,
    backend::webgpu::{
        kernel::{Kernel, Resource, StepCondition, Workgroups},
        kernels::{BoundBuffer, Finish, GemvPart, MatMulFew, MatrixPlanes, Q8Input, Q8Output, Strided, share_tables},
        lower::{slot, stride},
        tiles::{self, FewRows, GemvShape},
        weight_buffers::GpuMatrix,
    },
    plan::Place,
};

/// The largest number of rows that a workgroup multiplies.
const MAX_TOKENS: usize = 8;

/// The int8 result of a product.
#[derive(Clone, Copy)]
pub(super) struct Q8Result {
    /// The buffer of the rows.
    pub rows: Resource,
    /// Blocks of a row.
    pub blocks: usize,
    /// The weights of a norm, by which the rows are multiplied before they are rounded.
    pub norm: Option<Resource>,
    /// The rows before they are rounded, if they are also stored.
    pub floats: Option<Strided>,
}

impl GpuLowering<'_> {
    /// Pushes a product of up to 16 rows, with a variant of the kernel for each number of rows that
    /// the choices name.
    pub(super) fn gemv(
        &mut self,
        op: &'static str,
        x: &Place,
        matrices: &[Arc<GpuMatrix>],
        outs: &[Strided],
        finish: Finish,
        q8: Option<Q8Result>,
    ) -> Result<()> {
        let glu = matches!(finish, Finish::Glu { .. });
        let outs: Vec<_> = if glu { vec![outs[0]; 2] } else { outs.to_vec() };
        let products: Vec<_> = matrices
            .iter()
            .zip(outs)
            .flat_map(|(matrix, out)| parts(x, matrix, out, AfterProduct::default()))
            .collect();
        let at_once = if glu { 2 } else { tiles::few_parts(self.traits) };
        let mut limits = self.traits.choices.row_counts.to_vec();
        limits.dedup();
        for products in products.chunks(at_once) {
            let variants = limits.iter().map(|most| self.variant(x, products, finish, q8, *most)).collect();
            let variant_rows = x.shape.rows.into();
            self.commands.push(Command {
                op,
                step: self.step,
                condition: StepCondition::Always,
                variants,
                variant_limits: limits.clone(),
                variant_rows,
            });
        }
        Ok(())
    }

    fn variant(
        &self,
        x: &Place,
        products: &[PartProduct<'_>],
        finish: Finish,
        q8: Option<Q8Result>,
        most: usize,
    ) -> Kernel {
        let tokens = most.min(MAX_TOKENS);
        let glu = matches!(finish, Finish::Glu { .. });
        let rows: usize = products.iter().map(PartProduct::rows).sum();
        let heads = products[0].heads;
        let units = products[0].matrix.units;
        let has_tables = products.iter().any(|product| product.matrix.has_table());
        let together = if glu { 2 } else { 1 };
        let product = FewRows { tokens: most, rows, units, together, writes_q8: q8.is_some(), has_tables };
        let shape = tiles::gemv(self.traits, product);
        // Gate and up have one result, which is not also stored as f32 if it is int8.
        let stored = match (glu, q8) {
            (true, Some(_)) => 0,
            (true, None) => 1,
            (false, _) => products.len(),
        };
        let (mut parts, blocks) = gemv_parts(products, &shape, stored);
        let blocks = if glu { parts[0].end_block } else { blocks };
        let coded = |coded: bool| products.iter().any(|product| product.matrix.planes().coded() == coded);
        let number = x.slot.index();
        let norm = self.pending_norms.get(&number).copied();
        let q8_input = Q8Input { norm, rows: Resource::Q8(number) };
        let kernel = MatMulFew {
            shape,
            subgroup: self.traits.subgroup,
            tokens,
            rows: x.shape.rows.into(),
            columns: x.shape.width / heads,
            heads,
            // The squares of a pending norm are with the rows of int8.
            x_q8: (coded(true) || norm.is_some()).then_some(q8_input),
            x_stride: stride(x),
            x_f32: coded(false).then(|| slot(x)),
            tables: share_tables(&mut parts),
            parts,
            finish,
            y_q8: q8.map(|q8| Q8Output {
                blocks: q8.blocks,
                norm: q8.norm.map(BoundBuffer),
                floats: q8.floats,
                rows: q8.rows,
            }),
            biases: None,
            experts: None,
        };
        Kernel::new(kernel, [Workgroups::Fixed(blocks), workgroups(x.shape.rows, tokens), Workgroups::Fixed(heads)])
    }
}

/// Returns the parameters of the parts, and the number of workgroups of all parts. The first
/// `stored` parts write f32.
fn gemv_parts(products: &[PartProduct<'_>], shape: &GemvShape, stored: usize) -> (Vec<GemvPart>, usize) {
    let (mut parts, mut block) = (vec![], 0);
    for (number, product) in products.iter().enumerate() {
        let PartProduct { matrix, part, out, .. } = product;
        let first_block = block;
        block += product.rows().div_ceil(shape.group_rows());
        parts.push(GemvPart {
            matrix: MatrixPlanes::new(number, matrix, part),
            rows: product.rows(),
            stack: product.stack(),
            first_block,
            end_block: block,
            out_at: part.first_row,
            out_stride: out.stride,
            bias_at: 0,
            out: (number < stored).then_some(BoundBuffer(out.rows)),
        });
    }
    (parts, block)
}
