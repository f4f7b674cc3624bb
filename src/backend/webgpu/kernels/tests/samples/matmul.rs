//! Makes samples of kernels of products with matrices.

use super::{Sample, adapter, buffer, function, glu, matrix, none_missing, row_count};
use crate::{
    DType,
    backend::webgpu::{
        context::Traits,
        kernel::Resource,
        kernels::{
            BoundBuffer, ExpertStack, F32, Finish, GemvExperts, GemvPart, MatMulCoop, MatMulFew, MatMulTiled,
            MatrixPlanes, PendingNorm, Q8Input, Q8Output, RowCount, Strided, TiledExperts, TiledPart, TiledProduct,
            share_tables, tests::choices::Choices,
        },
        test_adapters::ADAPTERS,
        tiles::{self, FewRows, ProductTile, TileRows},
    },
    quant::UNIT,
};

const ROWS: usize = 96;

fn stack(choices: &mut Choices) -> ExpertStack {
    ExpertStack { offset: choices.of("stack offset", &[0, ROWS]), stride: 2 * ROWS }
}

/// Matrices of different formats; rows of floats may end within a unit.
fn matrices(choices: &mut Choices, count: usize) -> (Vec<MatrixPlanes>, usize) {
    let formats = ["format 0", "format 1", "format 2", "format 3"].map(|question| choices.of(question, DType::ALL));
    let formats = &formats[..count];
    let ragged = formats.iter().all(|format| format.is_float()) && choices.flag("ragged");
    let columns = if ragged { 200 } else { 256 };
    (formats.iter().enumerate().map(|(number, format)| matrix(number, *format, columns)).collect(), columns)
}

/// A use of `matmul_few`.
#[derive(Clone, Copy, PartialEq)]
enum GemvUse {
    Store,
    Add,
    AddInPlace,
    Glu,
    /// The products of experts' gate and up.
    GateUp,
    /// The products of experts' down, summed.
    Down,
    /// The products of heads.
    Heads,
}

/// Makes the int8 output of a product, if its use allows one: with a norm for sums, which are also
/// written as f32, and without for gate and up.
fn q8_output(choices: &mut Choices, gemv: GemvUse) -> Option<Q8Output> {
    let norm = match gemv {
        GemvUse::Store | GemvUse::Down | GemvUse::Heads => return None,
        GemvUse::Add | GemvUse::AddInPlace => Some(buffer()),
        GemvUse::Glu | GemvUse::GateUp => None,
    };
    choices.option("y_q8", |choices| {
        let floats = norm.and_then(|_| choices.option("floats", |_| Strided { stride: 128, rows: Resource::Slot(1) }));
        Q8Output { blocks: ROWS / UNIT, norm, floats, rows: Resource::Q8(1) }
    })
}

fn finish(choices: &mut Choices, gemv: GemvUse) -> Finish {
    match gemv {
        GemvUse::Store | GemvUse::Down | GemvUse::Heads => Finish::Store,
        GemvUse::Add => Finish::Add { stride: 128, rows: Resource::Temp(3) },
        GemvUse::AddInPlace => Finish::AddInPlace,
        GemvUse::Glu | GemvUse::GateUp => Finish::Glu { function: glu(choices) },
    }
}

none_missing!(Finish: Store, AddInPlace, Add, Glu);

impl Sample for MatMulFew {
    fn sample(choices: &mut Choices) -> Self {
        let traits = adapter(choices);
        let gemv = choices.of(
            "few",
            &[
                GemvUse::Store,
                GemvUse::Add,
                GemvUse::AddInPlace,
                GemvUse::Glu,
                GemvUse::GateUp,
                GemvUse::Down,
                GemvUse::Heads,
            ],
        );
        let glu = matches!(gemv, GemvUse::Glu | GemvUse::GateUp);
        let of_experts = matches!(gemv, GemvUse::GateUp | GemvUse::Down);
        let count = match gemv {
            GemvUse::Store => choices.of("parts", &[1, 2, 3, 4]),
            GemvUse::Glu | GemvUse::GateUp => 2,
            GemvUse::Add | GemvUse::AddInPlace | GemvUse::Down | GemvUse::Heads => 1,
        };
        let heads = if gemv == GemvUse::Heads { 3 } else { 1 };
        let (matrices, columns) = matrices(choices, count);
        let y_q8 = q8_output(choices, gemv);
        let units = matrices[0].units;
        let tokens = if of_experts { 1 } else { choices.of("tokens", &[1, 2, 4, 8, 16]) };
        let (writes_q8, together) = (y_q8.is_some(), if glu { 2 } else { 1 });
        let product = FewRows { tokens, rows: ROWS * count, units, together, writes_q8, has_tables: false };
        let shape = tiles::gemv(&traits, product);
        let coded = matrices.iter().any(|matrix| matrix.coded);
        let floats = matrices.iter().any(|matrix| !matrix.coded);
        // Rows that lack a norm are multiplied whole.
        let norm = (heads == 1 && !of_experts || coded && !floats)
            .then(|| choices.option("norm", |_| PendingNorm { eps: F32(1e-6), reciprocal: F32(1.0 / 256.0) }));
        let stored = match (glu, &y_q8) {
            (true, Some(_)) => 0,
            (true, None) => 1,
            (false, _) => count,
        };
        let stack = (of_experts || heads > 1).then(|| stack(choices));
        let part = |matrix: MatrixPlanes| GemvPart {
            rows: ROWS,
            stack,
            first_block: matrix.number,
            end_block: matrix.number + 1,
            out_at: 0,
            out_stride: 128,
            bias_at: 96 * matrix.number,
            out: (matrix.number < stored).then_some(BoundBuffer(Resource::Temp(matrix.number))),
            matrix,
        };
        let mut parts: Vec<_> = matrices.into_iter().map(part).collect();
        Self {
            tables: share_tables(&mut parts),
            shape,
            subgroup: traits.subgroup,
            tokens: tokens.min(8),
            rows: if of_experts { RowCount::Tokens } else { row_count(choices) },
            columns,
            heads,
            x_q8: (coded || norm.flatten().is_some()).then(|| Q8Input { norm: norm.flatten(), rows: Resource::Q8(0) }),
            x_stride: 256,
            x_f32: floats.then_some(Resource::Slot(0)),
            parts,
            finish: finish(choices, gemv),
            y_q8,
            biases: if of_experts { choices.option("biases", |_| buffer()) } else { None },
            experts: of_experts.then(|| GemvExperts {
                count: 6,
                top_k: 2,
                sums: gemv == GemvUse::Down,
                selected: Resource::Selected(0, 2),
            }),
        }
    }
}

fn tiled_product(choices: &mut Choices, tile_of: impl Fn(usize) -> ProductTile) -> TiledProduct {
    let count = choices.of("parts", &[1, 2, 3]);
    let (matrices, width) = matrices(choices, count);
    let experts = choices.option("experts", |choices| TiledExperts { count: 6, gathers: choices.flag("gathers") });
    let heads = if experts.is_none() && count == 1 { choices.of("heads", &[1, 3]) } else { 1 };
    let stack = (experts.is_some() || heads > 1).then(|| stack(choices));
    // The results of experts are added up by another kernel.
    let adds = experts.is_none() && choices.flag("adds");
    let bias = choices.option("bias", |_| BoundBuffer(Resource::Weight(9, 0, 512)));
    let function = choices.option("has a function", function);
    let part = |matrix: MatrixPlanes| TiledPart {
        rows: ROWS,
        stack,
        first_block: 2 * matrix.number,
        out_at: 0,
        out_stride: 128,
        bias,
        bias_at: 96 * matrix.number,
        function,
        adds,
        out: Resource::Temp(matrix.number),
        matrix,
    };
    TiledProduct {
        tile: tile_of(width),
        columns: matrices[0].units * UNIT,
        width,
        x_stride: 256 * heads,
        heads,
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
        let step = choices.of("rows of the activations", &TileRows::ALL);
        let product = tiled_product(choices, |width| tiles::coop_tile(&traits, rows, width, step).0);
        let (_, patch) = tiles::coop_tile(&traits, rows, product.width, step);
        Self { product, patch, subgroup_size, x: Resource::F16(0), x_scale: Resource::F16Scale(0) }
    }
}
