//! Every op on every backend, against plain loops in f64: one table of cases, each with a small graph around an op, its
//! weights, the steps to run, and how near the result must be.

mod attention;
mod case;
mod products;
mod rows;

use inkstone::{DType, graph::Op};

use self::case::Case;
pub use self::case::{compare, ragged};

/// The table, in parts that the tests below run beside each other.
const CASES: [fn() -> Vec<Case>; 15] = [
    || for_dtypes(products::embed),
    || for_dtypes(products::matmul),
    || for_dtypes(products::fused),
    products::of_outputs,
    rows::pairwise,
    rows::activations,
    rows::soft_cap,
    rows::rms_norm,
    rows::add_rms_norm,
    rows::rope,
    rows::select_outputs,
    rows::slice,
    attention::cases,
    attention::rotated,
    attention::long_cases,
];

#[cfg(any(feature = "wgpu", feature = "metal"))]
/// Formats of each kind: floats, blocks, superblocks with one scale for 32 and for 16.
const KINDS: [DType; 5] = [DType::F32, DType::F16, DType::Q4_0, DType::Q4_K, DType::Q6_K];

#[cfg(any(feature = "wgpu", feature = "metal"))]
/// Cases of all ops whose kernels depend on the size of workgroups.
pub fn for_workgroups() -> Vec<Case> {
    let mut cases: Vec<_> = KINDS.iter().flat_map(|dtype| products::fused(*dtype)).collect();
    cases.extend(rows::add_rms_norm());
    cases.extend(attention::rotated());
    cases.extend(attention::long_cases());
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

fn check(parts: std::ops::Range<usize>) {
    let cases = CASES[parts].iter().flat_map(|cases| cases());
    let failures: Vec<_> = cases.flat_map(|case| case.failures()).collect();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn embeddings() {
    check(0..1);
}

#[test]
fn products_with_every_format() {
    check(1..2);
}

#[test]
fn fused_products_with_every_format() {
    check(2..4);
}

#[test]
fn ops_on_rows() {
    check(4..9);
}

#[test]
fn rotations_and_selections() {
    check(9..12);
}

#[test]
fn attention_over_the_cache() {
    check(12..14);
}

#[test]
fn attention_over_sections_of_the_cache() {
    check(14..CASES.len());
}

/// How many ops there are: as many as the numbers below.
const OPS: usize = 18;

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
        Op::MatMulJoined => 10,
        Op::MatMulGlu(_) => 11,
        Op::MatMulAdd => 12,
        Op::AddRmsNorm { .. } => 13,
        Op::MatMulAddRmsNorm { .. } => 14,
        Op::RotatedAttention { .. } => 15,
        Op::SoftCap { .. } => 16,
        Op::Slice { .. } => 17,
    }
}

#[test]
fn every_op_has_a_case() {
    let mut found = [false; OPS];
    for case in CASES.iter().flat_map(|cases| cases()) {
        case.graph.nodes().iter().for_each(|node| found[number(&node.op)] = true);
    }
    assert_eq!(found, [true; OPS]);
}
