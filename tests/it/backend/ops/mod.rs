//! Every op on every backend, against plain loops in f64: one table of cases, each with a small
//! graph around an op, its weights, the steps to run, and how near the result must be.

mod attention;
mod case;
mod experts;
mod images;
mod products;
mod recurrent;
mod rows;

use inkstone::{
    DType,
    internals::graph::{FusedOp, Op},
};

use self::case::Case;

pub use self::case::{compare, ragged};

type Cases = fn() -> Vec<Case>;

/// The table, in parts that the tests below run beside each other.
const TABLE: [&[Cases]; 11] =
    [EMBEDDINGS, PRODUCTS, HEADS, FUSED, ROWS, PLACES, IMAGES, ATTENTION, LONG_ATTENTION, EXPERTS, STATES];

const EMBEDDINGS: &[Cases] = &[|| for_dtypes(products::embed)];
const PRODUCTS: &[Cases] = &[|| for_dtypes(products::matmul)];
const HEADS: &[Cases] = &[|| for_dtypes(products::of_heads)];
const FUSED: &[Cases] = &[
    || for_dtypes(products::fused),
    products::of_outputs,
    products::finished,
    products::long_steps,
    products::wide_rows,
];
const ROWS: &[Cases] = &[
    rows::pairwise,
    rows::activations,
    rows::soft_cap,
    rows::rms_norm,
    rows::add_rms_norm,
    rows::mix_streams,
    rows::deviation,
    rows::gated,
];
const PLACES: &[Cases] = &[rows::rope, rows::temper, rows::select_outputs, rows::slice];
const IMAGES: &[Cases] = &[
    images::clamp,
    images::concat,
    images::layer_norm,
    images::join_rows,
    images::given_rows,
    images::interpolate,
    images::rope,
    images::attention,
];
const ATTENTION: &[Cases] = &[attention::cases, attention::rotated];
const LONG_ATTENTION: &[Cases] = &[attention::long_cases];
const EXPERTS: &[Cases] = &[experts::route, || for_dtypes(experts::experts), experts::unusual];
const STATES: &[Cases] = &[recurrent::short_conv, recurrent::gated_delta, recurrent::state_scan];

/// Products of every kind with matrices of a format.
pub fn chained_products(dtype: DType, fuses_norm: bool) -> Case {
    products::chained(dtype, fuses_norm)
}

/// The product of normal numbers with a matrix of a format.
pub fn normal_product(dtype: DType) -> Case {
    products::matmul_normal(dtype)
}

#[cfg(any(feature = "wgpu", feature = "metal"))]
/// Formats of each kind: floats, blocks, superblocks with one scale for 32 and for 16.
const KINDS: [DType; 5] = [DType::F32, DType::F16, DType::Q4_0, DType::Q4_K, DType::Q6_K];

#[cfg(any(feature = "wgpu", feature = "metal"))]
/// Cases of all ops whose kernels depend on the size of workgroups.
pub fn for_workgroups() -> Vec<Case> {
    let mut cases: Vec<_> = KINDS.iter().flat_map(|dtype| products::fused(*dtype)).collect();
    cases.extend(rows::add_rms_norm());
    cases.extend(rows::gated());
    cases.extend(attention::rotated());
    cases.extend(attention::long_cases());
    cases.extend(experts::route());
    cases.extend(experts::experts(DType::Q4_K));
    cases.extend(experts::experts(DType::F32));
    cases.extend(recurrent::gated_delta());
    cases.extend(recurrent::state_scan());
    cases
}

#[cfg(any(feature = "wgpu", feature = "metal"))]
/// Cases with matrices of more bytes than the smallest binding has.
pub fn for_bindings() -> Vec<Case> {
    KINDS.iter().flat_map(|dtype| products::split(*dtype)).collect()
}

#[cfg(any(feature = "wgpu", feature = "metal"))]
/// Products of many tokens with matrices of every kind of shape, each so many times.
pub fn tiled(times: usize) -> Vec<Case> {
    let formats = [DType::Q4_K, DType::Q6_K, DType::Q8_0, DType::F16];
    (0..times).flat_map(|_| formats.iter().flat_map(|dtype| products::tiled(*dtype))).collect()
}

fn for_dtypes(cases: fn(DType) -> Vec<Case>) -> Vec<Case> {
    DType::ALL.iter().flat_map(|dtype| cases(*dtype)).collect()
}

fn check(cases: &[Cases]) {
    let cases = cases.iter().flat_map(|cases| cases());
    let failures: Vec<_> = cases.flat_map(|case| case.failures()).collect();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn embeddings() {
    check(EMBEDDINGS);
}

#[test]
fn products_with_every_format() {
    check(PRODUCTS);
}

#[test]
fn products_of_heads_with_every_format() {
    check(HEADS);
}

#[test]
fn fused_products_with_every_format() {
    check(FUSED);
}

#[test]
fn ops_on_rows() {
    check(ROWS);
}

#[test]
fn rotations_and_selections() {
    check(PLACES);
}

#[test]
fn rows_and_attention_of_images() {
    check(IMAGES);
}

#[test]
fn attention_over_the_cache() {
    check(ATTENTION);
}

#[test]
fn attention_over_sections_of_the_cache() {
    check(LONG_ATTENTION);
}

#[test]
fn choices_of_experts_and_what_these_compute() {
    check(EXPERTS);
}

#[test]
fn recurrences() {
    check(STATES);
}

/// How many ops there are: as many as the numbers below.
const OPS: usize = 36;

/// The op's number. A new op takes the next one, and a case above.
fn number(op: &Op) -> usize {
    match op {
        Op::Embed => 0,
        Op::MatMul => 1,
        Op::Add => 2,
        Op::Mul => 3,
        Op::Div => 4,
        Op::Activate(_) => 5,
        Op::RmsNorm { .. } => 6,
        Op::Rope(_) => 7,
        Op::Attention(_) => 8,
        Op::SelectOutputs => 9,
        Op::Fused(FusedOp::MatMulJoined) => 10,
        Op::Fused(FusedOp::MatMulGlu(_)) => 11,
        Op::Fused(FusedOp::MatMulAdd) => 12,
        Op::Fused(FusedOp::AddRmsNorm { .. }) => 13,
        Op::Fused(FusedOp::MatMulAddRmsNorm { .. }) => 14,
        Op::Fused(FusedOp::RotatedAttention { .. }) => 15,
        Op::SoftCap { .. } => 16,
        Op::Slice { .. } => 17,
        Op::Route(_) => 18,
        Op::Experts(_) => 19,
        Op::ShortConv(_) => 20,
        Op::GatedDelta(_) => 21,
        Op::Clamp => 22,
        Op::Concat { .. } => 23,
        Op::LayerNorm { .. } => 24,
        Op::JoinRows { .. } => 25,
        Op::InputRows { .. } => 26,
        Op::PlaceRows { .. } => 27,
        Op::AddRows { .. } => 28,
        Op::Interpolate { .. } => 29,
        Op::Temper { .. } => 30,
        Op::MatMulHeads { .. } => 31,
        Op::StateScan(_) => 32,
        Op::Fused(FusedOp::Gated { .. }) => 35,
        Op::MixStreams { .. } => 33,
        Op::Deviation { .. } => 34,
    }
}

#[test]
fn every_op_has_a_case() {
    let mut found = [false; OPS];
    for case in TABLE.into_iter().flatten().flat_map(|cases| cases()) {
        case.graph.nodes().iter().for_each(|node| found[number(&node.op)] = true);
    }
    assert_eq!(found, [true; OPS]);
}
