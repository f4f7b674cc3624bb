//! Makes samples of every struct of parameters, with all its options.
//!
//! A comment names each combination that a struct's types allow and its kernel does not.

mod attention;
mod matmul;
mod recurrent;
mod rows;

use super::choices::Choices;
use crate::{
    DType,
    backend::webgpu::{
        context::Traits,
        kernel::Resource,
        kernels::{
            Argmax, ArgmaxRound, BestKernel, BoundBuffer, Combine, F32, Function, GluFunction, GroupKernel,
            MatrixPlanes, Route, RouteGroups, RouteScore, RouteWeights, RowCount, Strided, Template,
            shared::{Records, Rotation, RotationStyle},
        },
        test_adapters::ADAPTERS,
        weight_buffers::BufferRange,
    },
    graph::{Activation, Glu},
    quant::{self, UNIT},
};

/// A struct of parameters with random samples.
pub(super) trait Sample: Template + Sized {
    /// Makes a sample.
    fn sample(choices: &mut Choices) -> Self;
}

/// Lists all variants of an enum. A variant that is left out does not compile.
macro_rules! all {
    ($type:ident: $($variant:ident),*) => {{
        let _ = |value: $type| match value { $($type::$variant => {})* };
        [$($type::$variant),*]
    }};
}
use all;

/// Fails to compile if an enum has a variant that is not named here: then its samples lack one.
macro_rules! none_missing {
    ($type:ident: $($variant:ident),*) => {
        const _: fn($type) = |value| match value { $($type::$variant { .. } => {})* };
    };
}
use none_missing;

/// Rows with this distance between them.
fn rows(stride: usize) -> Strided {
    Strided { stride, rows: Resource::Temp(0) }
}

fn buffer() -> BoundBuffer {
    BoundBuffer(Resource::Temp(0))
}

fn adapter(choices: &mut Choices) -> Traits {
    choices.of("adapter", &ADAPTERS)
}

fn row_count(choices: &mut Choices) -> RowCount {
    choices.of("rows", &all!(RowCount: Tokens, Outputs))
}

fn function(choices: &mut Choices) -> Function {
    Function(choices.of("function", &all!(Activation: Silu, Gelu, GeluErf, QuickGelu, Sigmoid, Relu, SquaredRelu)))
}

fn glu(choices: &mut Choices) -> GluFunction {
    match choices.flag("clamped") {
        true => GluFunction(Glu::Clamped),
        false => GluFunction(Glu::Plain(function(choices).0)),
    }
}

fn rotation(choices: &mut Choices, head_dim: usize) -> Rotation {
    let style = choices.of("rotation style", &all!(RotationStyle: Adjacent, Halves, Quarters));
    let pairs = head_dim / choices.of("rotated share of a head", &[2, 4]);
    Rotation { style, pairs, angles_at: 4 }
}

fn records() -> Records {
    Records { at: 8, words: 132 }
}

/// Returns a matrix of `columns` columns in the planes of a format.
fn matrix(number: usize, dtype: DType, columns: usize) -> MatrixPlanes {
    MatrixPlanes {
        number,
        format: dtype.name(),
        coded: quant::format(dtype).planes.coded(),
        scales: quant::format(dtype).planes.scales,
        units: columns.div_ceil(UNIT),
        planes: vec![0, 4096, 8192, 12288, 16384],
        table: format!("small{number}"),
        table_at: 16384,
        table_words: quant::format(dtype).planes.table.len(),
        range: BufferRange { buffer: 0, offset: 0, size: 1 << 20 },
    }
}

impl Sample for Route {
    fn sample(choices: &mut Choices) -> Self {
        let selected = choices.option("selected", |_| buffer());
        // A kernel that wrote neither would not be dispatched.
        let y = if selected.is_some() { choices.option("y", |_| rows(64)) } else { Some(rows(64)) };
        let weights = choices.option("weights", |choices| RouteWeights {
            score: choices.option("by probability", |choices| choices.of("score", &all!(RouteScore: Softmax, Sigmoid))),
            normalized: choices.flag("normalized"),
            groups: choices.option("groups", |_| RouteGroups { count: 3, size: 2, top_k: 2 }),
            scale: F32(2.5),
            bias: choices.option("bias", |_| BoundBuffer(Resource::Temp(1))),
        });
        Self { workgroup: 128, experts: 6, top_k: 2, weights, x: rows(64), selected, y }
    }
}

impl Sample for GroupKernel {
    fn sample(choices: &mut Choices) -> Self {
        let rows = row_count(choices);
        Self { workgroup: 256, experts: 6, top_k: 2, tile: 64, rows, selected: Resource::Selected(0, 2) }
    }
}

impl Sample for Combine {
    fn sample(_: &mut Choices) -> Self {
        let selected = Resource::Selected(0, 2);
        Self { workgroup: 64, width: 80, top_k: 2, results: rows(128), y: rows(128), selected }
    }
}

none_missing!(ArgmaxRound: Shares, Join);

impl Sample for Argmax {
    fn sample(choices: &mut Choices) -> Self {
        let logits = Resource::Slot(0);
        let round = match choices.flag("shares") {
            true => ArgmaxRound::Shares { groups: 3, stride: 5056, logits },
            false => ArgmaxRound::Join,
        };
        Self { workgroup: 256, count: 5000, share: 2048, round }
    }
}

impl Sample for BestKernel {
    fn sample(choices: &mut Choices) -> Self {
        let logits = choices.option("logits", |_| buffer());
        let (count, round) = if logits.is_some() { (5000, 0) } else { (5 * 64, 1) };
        Self { workgroup: 256, count, share: 1024, kept: 64, stride: 5056, logits, round }
    }
}
