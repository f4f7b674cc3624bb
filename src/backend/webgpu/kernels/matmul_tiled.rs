//! Defines the parameters of products of more than 16 rows.

use serde::Serialize;

use super::{BoundBuffer, ExpertStack, Function, MatrixPlanes, RowCount, Template};
use crate::backend::webgpu::{
    kernel::{Binding, Resource, reads, writes},
    tiles::{ProductTile, SubgroupTile},
};

/// Products `y[t, n] = sum over k of x[t, k] w[n, k]`, in tiles of rows `x` and rows `w`.
#[derive(Debug, Serialize)]
pub struct TiledProduct {
    /// The tile of a workgroup.
    pub tile: ProductTile,
    /// Elements of a row `w`, a multiple of 32.
    pub columns: usize,
    /// Elements of a row `x`. Elements between `width` and `columns` are not read, or are 0.
    pub width: usize,
    /// Elements from the start of a row `x` to the start of the next.
    pub x_stride: usize,
    /// The number of heads of a row `x`, each of `width` elements with a matrix of the stack; 1 for
    /// whole rows.
    pub heads: usize,
    /// The number of rows `x`.
    pub rows: RowCount,
    /// The matrices `w`, all with the same number of columns.
    pub parts: Vec<TiledPart>,
    /// The experts, if the parts are stacked matrices of experts. The rows of the result are then
    /// slots, each the row of a token for one expert.
    pub experts: Option<TiledExperts>,
}

/// A matrix, or the part of it that fits one binding.
#[derive(Debug, Serialize)]
pub struct TiledPart {
    /// The matrix.
    pub matrix: MatrixPlanes,
    /// Rows of the part, or of the matrix of each expert or head.
    pub rows: usize,
    /// The rows of each expert or head, if the matrix is a stack.
    pub stack: Option<ExpertStack>,
    /// The first workgroup of the part.
    pub first_block: usize,
    /// The first element, in a row of the result, of the part's products.
    pub out_at: usize,
    /// Elements from the start of a row of the result to the start of the next.
    pub out_stride: usize,
    /// A vector that is added to each row of products, or with experts a vector for each expert.
    pub bias: Option<BoundBuffer>,
    /// The first of the part's elements in that buffer.
    pub bias_at: usize,
    /// The function of the products, and of the bias if there is one.
    pub function: Option<Function>,
    /// Whether products are added to the content of the result.
    pub adds: bool,
    /// The buffer of the result.
    #[serde(skip)]
    pub out: Resource,
}

/// The experts of a layer, whose rows are listed in tiles.
#[derive(Debug, Serialize)]
pub struct TiledExperts {
    /// Number of experts in the layer.
    pub count: usize,
    /// Whether `x` has a row for each token, rather than for each slot.
    pub gathers: bool,
}

impl TiledProduct {
    /// Returns the bindings that follow `x`.
    fn bindings(&self) -> Vec<Binding> {
        let mut bindings = vec![];
        if let Some(experts) = &self.experts {
            bindings.push(reads("tiles", "vec4<u32>", Resource::Tiles));
            bindings.extend(experts.gathers.then(|| reads("token_of", "u32", Resource::TokenOf)));
        }
        for part in &self.parts {
            bindings.extend(part.matrix.bindings());
            bindings.extend(part.bias.map(|bias| reads(format!("biases{}", part.matrix.number), "f32", bias.0)));
            bindings.push(writes(format!("out{}", part.matrix.number), "f32", part.out));
        }
        bindings
    }
}

/// A [`TiledProduct`] of f32 on any adapter.
#[derive(Debug, Serialize)]
pub struct MatMulTiled {
    /// The product.
    pub product: TiledProduct,
    /// The buffer of the rows `x`.
    #[serde(skip)]
    pub x: Resource,
}

impl Template for MatMulTiled {
    const NAME: &'static str = "matmul_tiled";

    fn bindings(&self) -> Vec<Binding> {
        let mut bindings = vec![reads("x", "vec4<f32>", self.x)];
        bindings.extend(self.product.bindings());
        bindings
    }
}

/// A [`TiledProduct`] on matrix units: operands in f16, sums in f32.
#[derive(Debug, Serialize)]
pub struct MatMulCoop {
    /// The product.
    pub product: TiledProduct,
    /// The part of the tile that a subgroup computes.
    pub patch: SubgroupTile,
    /// Invocations of a subgroup.
    pub subgroup_size: u32,
    /// The buffer of the rows `x`, as f16.
    #[serde(skip)]
    pub x: Resource,
    /// The buffer of the scales of the rows `x`.
    #[serde(skip)]
    pub x_scale: Resource,
}

impl Template for MatMulCoop {
    const NAME: &'static str = "matmul_coop";

    fn bindings(&self) -> Vec<Binding> {
        let mut bindings = vec![reads("x", "vec4<f16>", self.x), reads("x_scale", "f32", self.x_scale)];
        bindings.extend(self.product.bindings());
        bindings
    }
}
