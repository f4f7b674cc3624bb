//! Samples of products with matrices.

use super::{Sample, adapter, buffer, function, matrix, none_missing, row_count};
use crate::{
    DType,
    backend::webgpu::{
        context::Traits,
        kernel::Resource,
        kernels::{
            Buffer, F32, FewExperts, FewPart, Finish, MatMulCoop, MatMulFew, MatMulTiled, PackedMatrix, PendingNorm,
            Q8Input, Q8Output, RowCount, Stack, TiledExperts, TiledPart, TiledProduct, tests::choices::Choices,
        },
        test_adapters::ADAPTERS,
        tiles::{self, Tile},
    },
    quant::UNIT,
};

const ROWS: usize = 96;

fn stack(choices: &mut Choices) -> Stack {
    Stack { offset: choices.of("stack offset", &[0, ROWS]), stride: 2 * ROWS }
}

/// Matrices of different formats; rows of floats may end within a unit.
fn matrices(choices: &mut Choices, count: usize) -> (Vec<PackedMatrix>, usize) {
    let formats = ["format 0", "format 1", "format 2"].map(|question| choices.of(question, DType::ALL));
    let formats = &formats[..count];
    let ragged = formats.iter().all(|format| format.is_float()) && choices.flag("ragged");
    let columns = if ragged { 200 } else { 256 };
    (formats.iter().enumerate().map(|(number, format)| matrix(number, *format, columns)).collect(), columns)
}

/// What a product of few rows is for.
#[derive(Clone, Copy, PartialEq)]
enum Few {
    Store,
    Add,
    AddInPlace,
    Glu,
    /// The products of experts' gate and up.
    GateUp,
    /// The products of experts' down, summed.
    Down,
}

/// A result of one product may be written as int8. It is added to something then, and normed, and
/// also written as f32; or it is that of a gate, and written as int8 alone.
fn q8_output(choices: &mut Choices, few: Few) -> Option<Q8Output> {
    let norm = match few {
        Few::Store | Few::Down => return None,
        Few::Add | Few::AddInPlace => Some(buffer()),
        Few::Glu | Few::GateUp => None,
    };
    choices.option("y_q8", |_| Q8Output { blocks: ROWS / UNIT, norm, rows: Resource::Q8(1) })
}

none_missing!(Finish: Store, AddInPlace, Add, Glu);

impl Sample for MatMulFew {
    fn sample(choices: &mut Choices) -> Self {
        let traits = adapter(choices);
        let few = choices.of("few", &[Few::Store, Few::Add, Few::AddInPlace, Few::Glu, Few::GateUp, Few::Down]);
        let glu = matches!(few, Few::Glu | Few::GateUp);
        let of_experts = matches!(few, Few::GateUp | Few::Down);
        let count = match few {
            Few::Store => choices.of("parts", &[1, 2, 3]),
            Few::Glu | Few::GateUp => 2,
            Few::Add | Few::AddInPlace | Few::Down => 1,
        };
        let (matrices, columns) = matrices(choices, count);
        let y_q8 = q8_output(choices, few);
        let units = matrices[0].units;
        let tokens = if of_experts { 1 } else { choices.of("tokens", &[1, 2, 4, 8]) };
        let q8_tokens = y_q8.as_ref().map(|_| tokens);
        let shape = tiles::few(&traits, units, ROWS * count, q8_tokens, if glu { 2 } else { 1 });
        let coded = matrices.iter().any(|matrix| matrix.coded);
        let floats = matrices.iter().any(|matrix| !matrix.coded);
        // Rows that lack a norm are int8 alone.
        let norm = (coded && !floats)
            .then(|| choices.option("norm", |_| PendingNorm { eps: F32(1e-6), reciprocal: F32(1.0 / 256.0) }));
        let stored = match (glu, &y_q8) {
            (true, Some(_)) => 0,
            (true, None) => 1,
            (false, _) => count,
        };
        let stack = of_experts.then(|| stack(choices));
        let part = |matrix: PackedMatrix| FewPart {
            rows: ROWS,
            stack,
            first_block: matrix.number,
            end_block: matrix.number + 1,
            out_at: 0,
            out_stride: 128,
            out: (matrix.number < stored).then_some(Buffer(Resource::Temp(matrix.number))),
            matrix,
        };
        Self {
            shape,
            subgroup: traits.subgroup,
            tokens,
            rows: if of_experts { RowCount::Tokens } else { row_count(choices) },
            columns,
            x_q8: coded.then(|| Q8Input { norm: norm.flatten(), rows: Resource::Q8(0) }),
            x_stride: 256,
            x_f32: floats.then_some(Resource::Slot(0)),
            parts: matrices.into_iter().map(part).collect(),
            finish: match few {
                Few::Store | Few::Down => Finish::Store,
                Few::Add => Finish::Add { stride: 128, rows: Resource::Temp(3) },
                Few::AddInPlace => Finish::AddInPlace,
                Few::Glu | Few::GateUp => Finish::Glu { function: function(choices) },
            },
            y_q8,
            experts: of_experts.then(|| FewExperts {
                count: 6,
                top_k: 2,
                sums: few == Few::Down,
                selected: Resource::Selected(0, 2),
            }),
        }
    }
}

fn tiled_product(choices: &mut Choices, tile_of: impl Fn(usize) -> Tile) -> TiledProduct {
    let count = choices.of("parts", &[1, 2, 3]);
    let (matrices, width) = matrices(choices, count);
    let experts = choices.option("experts", |choices| TiledExperts { count: 6, gathers: choices.flag("gathers") });
    let stack = experts.as_ref().map(|_| stack(choices));
    // The results of experts are added up by another kernel.
    let adds = experts.is_none() && choices.flag("adds");
    let part = |matrix: PackedMatrix| TiledPart {
        rows: ROWS,
        stack,
        first_block: 2 * matrix.number,
        out_at: 0,
        out_stride: 128,
        adds,
        out: Resource::Temp(matrix.number),
        matrix,
    };
    TiledProduct {
        tile: tile_of(width),
        columns: matrices[0].units * UNIT,
        width,
        x_stride: 256,
        rows: row_count(choices),
        parts: matrices.into_iter().map(part).collect(),
        experts,
    }
}

impl Sample for MatMulTiled {
    fn sample(choices: &mut Choices) -> Self {
        let traits = adapter(choices);
        Self { product: tiled_product(choices, |_| tiles::tile(&traits)), x: Resource::Slot(0) }
    }
}

impl Sample for MatMulCoop {
    fn sample(choices: &mut Choices) -> Self {
        let subgroup_size = choices.of("subgroup_size", &[32, 64]);
        let traits = Traits { matrices: true, subgroup: Some(subgroup_size), workgroup_bytes: 64 << 10, ..ADAPTERS[0] };
        let rows = choices.of("rows of the parts", &[ROWS, 4096]);
        let product = tiled_product(choices, |width| tiles::coop_tile(&traits, rows, width).0);
        let (_, patch) = tiles::coop_tile(&traits, rows, product.width);
        Self { product, patch, subgroup_size, x: Resource::F16(0), x_scale: Resource::F16Scale(0) }
    }
}
