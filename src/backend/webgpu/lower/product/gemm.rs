//! Lowers products of more than 16 rows.

use super::{Command, Form, GpuLowering, PartProduct, workgroups};
use crate::{
    backend::webgpu::{
        kernel::{Kernel, Resource, StepCondition, Workgroups},
        kernels::{BoundBuffer, Function, MatMulCoop, MatMulTiled, MatrixPlanes, TiledPart, TiledProduct},
        lower::{slot, stride},
        tiles::{self, ProductTile, SubgroupTile, TileRows},
    },
    plan::Place,
    quant::UNIT,
};

impl GpuLowering<'_> {
    /// Pushes products that all read one form of the rows: on matrix units, with a variant of the
    /// kernel for each of [`TileRows`].
    pub(super) fn gemm(&mut self, op: &'static str, x: &Place, products: &[PartProduct<'_>], form: Form) {
        let rows = products.iter().map(PartProduct::rows).sum();
        let columns = x.shape.width / products[0].heads;
        let variants = if form == Form::F16 {
            let tiles = TileRows::ALL.map(|step| tiles::coop_tile(self.traits, rows, columns, step));
            tiles.into_iter().map(|(tile, patch)| self.gemm_kernel(x, products, tile, Some(patch))).collect()
        } else {
            vec![self.gemm_kernel(x, products, tiles::tile(self.traits), None)]
        };
        self.commands.push(Command {
            op,
            step: self.step,
            condition: StepCondition::Always,
            variants,
            variant_limits: self.traits.choices.tile_rows.to_vec(),
            variant_rows: x.shape.rows.into(),
        });
    }

    /// Returns the kernel of products with a tile: on matrix units if there is `patch`, the part of
    /// the tile that a subgroup computes.
    fn gemm_kernel(
        &self,
        x: &Place,
        products: &[PartProduct<'_>],
        tile: ProductTile,
        patch: Option<SubgroupTile>,
    ) -> Kernel {
        let (parts, blocks) = tiled_parts(products, &tile);
        let heads = products[0].heads;
        let product = TiledProduct {
            tile,
            columns: products[0].matrix.units * UNIT,
            width: x.shape.width / heads,
            x_stride: stride(x),
            heads,
            rows: x.shape.rows.into(),
            parts,
            experts: None,
        };
        let number = x.slot.index();
        let f16 = patch.map(|patch| (patch, [Resource::F16(number), Resource::F16Scale(number)]));
        let groups = [workgroups(x.shape.rows, tile.tokens), Workgroups::Fixed(blocks), Workgroups::Fixed(heads)];
        self.tiled(product, f16, slot(x), groups)
    }

    /// Returns the kernel of a product: on matrix units if there are rows of f16 with their scales,
    /// and otherwise of the f32 rows `x`.
    pub(in crate::backend::webgpu::lower) fn tiled(
        &self,
        product: TiledProduct,
        f16: Option<(SubgroupTile, [Resource; 2])>,
        x: Resource,
        groups: [Workgroups; 3],
    ) -> Kernel {
        match f16 {
            Some((patch, [x, x_scale])) => {
                let subgroup_size = self.traits.subgroup.unwrap_or(32);
                Kernel::new(MatMulCoop { product, patch, subgroup_size, x, x_scale }, groups)
            }
            None => Kernel::new(MatMulTiled { product, x }, groups),
        }
    }
}

/// Returns the parameters of the parts, and the number of workgroups of all parts.
fn tiled_parts(products: &[PartProduct<'_>], tile: &ProductTile) -> (Vec<TiledPart>, usize) {
    let (mut parts, mut block) = (vec![], 0);
    for (number, product) in products.iter().enumerate() {
        let PartProduct { matrix, part, out, after, .. } = product;
        parts.push(TiledPart {
            matrix: MatrixPlanes::new(number, matrix, part),
            rows: product.rows(),
            stack: product.stack(),
            first_block: block,
            out_at: part.first_row,
            out_stride: out.stride,
            bias: after.bias.map(BoundBuffer),
            bias_at: 0,
            function: after.function.map(Function),
            adds: after.adds,
            out: out.rows,
        });
        block += product.rows().div_ceil(tile.rows);
    }
    (parts, block)
}
