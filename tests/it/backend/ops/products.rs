//! Embeddings and matrix products, plain and fused, for every format.

use inkstone::{
    DType,
    internals::{
        graph::{Activation, FusedOp, Op, ValueId},
        quant,
    },
};

use super::case::{Case, Maker, SINGLE, normal, ragged, steps_of};
use crate::support::quantize::quantize;

/// What activations in 8 bits cost: the step is about 4.2 / 254 of the standard deviation for the
/// largest of 32 normal numbers, so the squared error about 2.3e-5.
const EIGHT_BITS: f64 = 4e-5;

/// What sums in single precision cost where the terms of a single product almost cancel.
const SUMS: f64 = 1e-11;

/// Numbers of tokens around those at which kernels change.
const TOKENS: [usize; 11] = [1, 2, 3, 4, 5, 7, 8, 9, 12, 33, 70];

/// Rows in the table that activations come from.
const VOCABULARY: usize = 24;

/// Rows and columns of matrices.
fn shapes(dtype: DType) -> &'static [(usize, usize)] {
    match dtype.block_weights() {
        1 => &[(1, 1), (15, 7), (17, 33), (40, 100), (5, 96), (16, 256), (33, 512)],
        32 => &[(1, 32), (15, 64), (17, 96), (40, 256), (16, 288), (33, 512)],
        _ => &[(1, 256), (15, 512), (17, 256), (40, 768)],
    }
}

pub fn matmul(dtype: DType) -> Vec<Case> {
    let mut cases: Vec<_> = shapes(dtype).iter().map(|shape| matmul_exact(dtype, *shape)).collect();
    cases.push(matmul_normal(dtype));
    cases.push(matmul_extremes(dtype));
    cases
}

/// Nothing is lost to 8 bits, so only the rounding of sums remains.
fn matmul_exact(dtype: DType, (rows, columns): (usize, usize)) -> Case {
    let mut m = Maker::new(1);
    let x = m.exact_rows(columns, VOCABULARY);
    let w = m.random_weight(dtype, rows, columns);
    let y = m.b.matmul(x, w);
    m.finish(format!("matmul {dtype} {rows}x{columns}"), y, steps_of(&TOKENS, VOCABULARY), SUMS)
}

pub fn matmul_normal(dtype: DType) -> Case {
    let (rows, columns) = (40, 512);
    let mut m = Maker::new(2);
    let x = m.normal_rows(columns, VOCABULARY);
    let weights = normal(rows * columns, &mut m.random);
    let w = m.weight(dtype, rows, columns, quantize(dtype, &weights));
    let y = m.b.matmul(x, w);
    let nmse = if dtype.is_float() { SUMS } else { EIGHT_BITS };
    m.finish(format!("matmul {dtype} of normal numbers"), y, steps_of(&[1, 4, 9, 33], VOCABULARY), nmse)
}

/// The largest codes with the largest activations, where sums in 16 bits would overflow first.
fn matmul_extremes(dtype: DType) -> Case {
    let columns = 512;
    let mut m = Maker::new(3);
    let signs: [fn(usize) -> f32; 4] =
        [|_| 1.0, |_| -1.0, |i| [1.0, -1.0][i % 2], |i| if i % 64 < 32 { 0.0 } else { 1.0 }];
    let x: Vec<f32> = signs.iter().flat_map(|sign| (0..columns).map(|i| 127.0 / 64.0 * sign(i))).collect();
    let x = m.rows_of(columns, &x);
    let rows: Vec<_> = [0x00, 0xff, 0x55, 0xaa].iter().flat_map(|byte| blocks_of(dtype, columns, *byte)).collect();
    let w = m.weight(dtype, 4, columns, rows);
    let y = m.b.matmul(x, w);
    m.finish(format!("matmul {dtype} of extremes"), y, steps_of(&[1, 2, 4, 12], 4), SUMS)
}

/// A row of blocks whose scales are small and whose other bytes are all `byte`; plain floats are
/// `byte - 128`.
fn blocks_of(dtype: DType, columns: usize, byte: u8) -> Vec<u8> {
    if dtype.is_float() {
        return quantize(dtype, &vec![f32::from(byte) - 128.0; columns]);
    }
    let field = |(index, &field): (usize, &usize)| match (dtype, field, index) {
        (DType::MXFP4, 1, 0) => vec![120],
        (DType::NVFP4, 4, 0) => vec![8; 4],
        // The last field of IQ1_M has four bits of the scale in each of four pairs.
        (DType::IQ1_M, 8, 2) => [0, 0, 0, 2].iter().flat_map(|four| [byte, (byte & 15) | (four << 4)]).collect(),
        (_, 2, _) if !(dtype == DType::IQ4_XS && index == 1) => half::f16::from_f32(0.0117).to_le_bytes().to_vec(),
        _ => vec![byte; field],
    };
    let block: Vec<u8> = quant::format(dtype).fields.iter().enumerate().flat_map(field).collect();
    block.repeat(columns / dtype.block_weights())
}

/// Products of heads, each with its own matrix: nothing is lost to 8 bits. Then of normal numbers.
pub fn of_heads(dtype: DType) -> Vec<Case> {
    let unit = dtype.block_weights().max(32);
    let exact = |(heads, rows, columns): (usize, usize, usize)| {
        let mut m = Maker::new(8);
        let x = m.exact_rows(heads * columns, VOCABULARY);
        let w = m.random_weight(dtype, heads * rows, columns);
        let y = m.b.matmul_heads(x, w, heads);
        let name = format!("matmul_heads {dtype}, {heads} of {rows}x{columns}");
        m.finish(name, y, steps_of(&TOKENS, VOCABULARY), SUMS)
    };
    let mut cases = Vec::from([(1, 17, unit), (3, 16, unit), (2, 5, 3 * unit), (4, 40, 2 * unit)].map(exact));
    let (heads, columns) = (3, 2 * unit);
    let mut m = Maker::new(9);
    let x = m.normal_rows(heads * columns, VOCABULARY);
    // A product of whole rows would complete the norm.
    let norm = m.b.constant(vec![1.0; heads * columns]);
    let x = m.b.rms_norm(x, norm, 1e-5);
    let weights = normal(heads * 32 * columns, &mut m.random);
    let w = m.weight(dtype, heads * 32, columns, quantize(dtype, &weights));
    let y = m.b.matmul_heads(x, w, heads);
    let nmse = if dtype.is_float() { SUMS } else { EIGHT_BITS };
    let name = format!("matmul_heads {dtype} of normal numbers");
    cases.push(m.finish(name, y, steps_of(&[1, 4, 9, 33], VOCABULARY), nmse));
    cases
}

/// Rows of a table where the file has them, and of one that is also multiplied with.
pub fn embed(dtype: DType) -> Vec<Case> {
    let columns = 256;
    let mut m = Maker::new(4);
    let table = m.random_weight(dtype, 37, columns);
    let x = m.embed(table);
    let plain = m.finish(format!("embed {dtype}"), x, steps_of(&[1, 37, 50], 37), SINGLE);

    let mut m = Maker::new(5);
    let table = m.random_weight(dtype, columns, columns);
    let (x, other) = (m.embed(table), m.exact_rows(columns, columns));
    let product = m.b.matmul(other, table);
    let zeros = m.b.constant(vec![0.0; columns]);
    let nothing = m.b.mul(product, zeros);
    let sum = m.b.add(x, nothing);
    let tied = m.finish(format!("embed {dtype}, tied"), sum, steps_of(&[1, 37, 50], columns), SINGLE);
    vec![plain, tied]
}

pub fn fused(dtype: DType) -> Vec<Case> {
    let mut cases = vec![joined(dtype), product_and_sum(dtype, false), product_and_sum(dtype, true)];
    cases.extend([Activation::Silu, Activation::Gelu].map(|activation| glu(dtype, activation)));
    cases.extend([(19, false), (64, false), (64, true)].map(|(width, read)| product_and_norm(dtype, 256, width, read)));
    cases.push(glu_and_product(dtype, 256));
    if matches!(dtype, DType::F16 | DType::Q8_0 | DType::Q4_K) {
        cases.push(norm_of_two_forms(dtype));
    }
    if dtype == DType::Q8_0 {
        // The work is divided by the columns, whatever the format.
        cases.extend([32, 64].map(|columns| product_and_norm(dtype, columns, 64, false)));
        cases.extend([32, 64, 1024].map(|columns| glu_and_product(dtype, columns)));
    }
    cases
}

const FEW: [usize; 5] = [1, 3, 8, 9, 33];

/// Three products of one operand, of which one in another kind of format.
fn joined(dtype: DType) -> Case {
    let columns = 256;
    let mut m = Maker::new(6);
    let x = m.exact_rows(columns, VOCABULARY);
    let other = if dtype.is_float() { DType::Q8_0 } else { DType::F16 };
    let inputs = [
        x,
        m.random_weight(dtype, 33, columns),
        m.random_weight(dtype, 20, columns),
        m.random_weight(other, 20, columns),
    ];
    let [first, second, third] = m.b.push_all(FusedOp::MatMulJoined, &inputs)[..] else { panic!("three products") };
    let sum = m.b.add(second, third);
    let sum = widen(&mut m, sum, 33);
    let sum = m.b.add(first, sum);
    m.finish(format!("matmul_joined {dtype}"), sum, steps_of(&FEW, VOCABULARY), SUMS)
}

/// Rows of 20 elements as rows of `width`, by a matrix that copies.
fn widen(m: &mut Maker, x: ValueId, width: usize) -> ValueId {
    let copies: Vec<f32> = (0..width * 20).map(|i| f32::from(u8::from(i / 20 % 20 == i % 20))).collect();
    let copies = m.floats(20, &copies);
    m.b.matmul(x, copies)
}

fn glu(dtype: DType, activation: Activation) -> Case {
    let columns = 256;
    let mut m = Maker::new(7);
    let x = m.exact_rows(columns, VOCABULARY);
    let inputs = [x, m.random_weight(dtype, 41, columns), m.random_weight(dtype, 41, columns)];
    let y = m.b.push(FusedOp::MatMulGlu(activation), &inputs);
    m.finish(format!("{} {dtype}", FusedOp::MatMulGlu(activation).name()), y, steps_of(&FEW, VOCABULARY), SUMS)
}

/// A gated product that only another product reads.
fn glu_and_product(dtype: DType, columns: usize) -> Case {
    let width = dtype.block_weights().max(64);
    let mut m = Maker::new(13);
    let x = m.exact_rows(columns, VOCABULARY);
    let inputs = [x, m.random_weight(dtype, width, columns), m.random_weight(dtype, width, columns)];
    let y = m.b.push(FusedOp::MatMulGlu(Activation::Silu), &inputs);
    let next = m.random_weight(dtype, 40, width);
    let y = m.b.matmul(y, next);
    // The largest of 32 products of two sums stands out further than that of 32 normal numbers.
    let nmse = if dtype.is_float() { SUMS } else { 10.0 * EIGHT_BITS };
    m.finish(format!("matmul_glu {dtype} of {columns} columns, then matmul"), y, steps_of(&FEW, VOCABULARY), nmse)
}

/// The residual is overwritten, or is read once more.
fn product_and_sum(dtype: DType, read_again: bool) -> Case {
    let columns = 256;
    let mut m = Maker::new(8);
    let x = m.exact_rows(columns, VOCABULARY);
    let residual = m.normal_rows(19, VOCABULARY);
    let w = m.random_weight(dtype, 19, columns);
    let mut y = m.b.push(FusedOp::MatMulAdd, &[x, w, residual]);
    if read_again {
        y = m.b.add(y, residual);
    }
    let name = format!("matmul_add {dtype}{}", if read_again { ", residual read again" } else { "" });
    m.finish(name, y, steps_of(&FEW, VOCABULARY), SUMS)
}

/// A product onto a residual with the norm of the sum, multiplied with a matrix of the same format
/// or, where that has other columns, as it is; the norm may have another reader.
fn product_and_norm(dtype: DType, columns: usize, width: usize, read_again: bool) -> Case {
    let mut m = Maker::new(10);
    let x = m.exact_rows(columns, VOCABULARY);
    let residual = m.normal_rows(width, VOCABULARY);
    let w = m.random_weight(dtype, width, columns);
    let norm = normal(width, &mut m.random);
    let norm = m.floats(width, &norm);
    let op = FusedOp::MatMulAddRmsNorm { eps: 1e-5 };
    let [sum, normed] = m.b.push_all(op, &[x, w, residual, norm])[..] else { panic!("two results") };
    let (mut y, mut nmse) = (m.b.mul(normed, sum), SUMS);
    if width.is_multiple_of(dtype.block_weights()) {
        let next = m.random_weight(dtype, width, width);
        y = m.b.matmul(normed, next);
        // Times the norm's weights, the largest of 32 stands out further.
        nmse += if dtype.is_float() { 0.0 } else { 3.0 * EIGHT_BITS };
    }
    if read_again {
        y = m.b.add(y, normed);
    }
    m.finish(
        format!("matmul_add_rms_norm {dtype} of {columns} columns, width {width}"),
        y,
        steps_of(&FEW, VOCABULARY),
        nmse,
    )
}

/// A norm whose rows are multiplied with a matrix of the format and one of floats, together, and
/// with floats alone.
fn norm_of_two_forms(dtype: DType) -> Case {
    let width = 256;
    let mut m = Maker::new(11);
    let x = m.exact_rows(width, VOCABULARY);
    let residual = m.normal_rows(width, VOCABULARY);
    let w = m.random_weight(dtype, width, width);
    let norm = normal(width, &mut m.random);
    let norm = m.floats(width, &norm);
    let op = FusedOp::MatMulAddRmsNorm { eps: 1e-5 };
    let [sum, normed] = m.b.push_all(op, &[x, w, residual, norm])[..] else { panic!("two results") };
    let [packed, floats, alone] = [dtype, DType::F32, DType::F32].map(|dtype| m.random_weight(dtype, width, width));
    let [a, b] = m.b.push_all(FusedOp::MatMulJoined, &[normed, packed, floats])[..] else { panic!("two products") };
    let c = m.b.matmul(normed, alone);
    let y = [a, b, c].into_iter().fold(sum, |y, product| m.b.add(y, product));
    let nmse = SUMS + if dtype.is_float() { 0.0 } else { 3.0 * EIGHT_BITS };
    m.finish(format!("matmul_add_rms_norm {dtype} with two kinds of readers"), y, steps_of(&FEW, VOCABULARY), nmse)
}

/// Products of every kind, one after the other: joined, with a sum and a norm after them, which are
/// fused with the product or not, of gate and up, and plain.
pub fn chained(dtype: DType, fuses_norm: bool) -> Case {
    let (width, vocabulary) = (256, 40);
    let mut m = Maker::new(13);
    let x = m.normal_rows(2 * width, vocabulary);
    let [first, second] = [(); 2].map(|()| m.random_weight(dtype, width, 2 * width));
    let [a, b] = m.b.push_all(FusedOp::MatMulJoined, &[x, first, second])[..] else { panic!("two products") };
    let norm = normal(width, &mut m.random);
    let (w, norm) = (m.random_weight(dtype, width, width), m.floats(width, &norm));
    let eps = 1e-5;
    let (sum, normed) = if fuses_norm {
        let results = m.b.push_all(FusedOp::MatMulAddRmsNorm { eps }, &[a, w, b, norm]);
        (results[0], results[1])
    } else {
        let sum = m.b.push(FusedOp::MatMulAdd, &[a, w, b]);
        (sum, m.b.rms_norm(sum, norm, eps))
    };
    let [gate, up] = [(); 2].map(|()| m.random_weight(dtype, width, width));
    let gated = m.b.push(FusedOp::MatMulGlu(Activation::Silu), &[normed, gate, up]);
    let down = m.random_weight(dtype, 40, width);
    let (y, sum) = (m.b.matmul(gated, down), m.b.push(Op::Slice { first: 0, len: 40, every: width }, &[sum]));
    let y = m.b.add(y, sum);
    m.finish(format!("chained products {dtype}"), y, vec![], EIGHT_BITS)
}

/// Products with a bias, an activation and a residual after them, which kernels of many tokens may
/// compute as well, and graphs in which they must not.
pub fn finished() -> Vec<Case> {
    let mut cases: Vec<_> = [DType::F32, DType::F16, DType::Q8_0].into_iter().flat_map(finished_in).collect();
    cases.push(joined_with_biases());
    cases
}

/// The operands of a product of `WIDTH` columns, and what may follow it.
struct Operands {
    x: ValueId,
    matrix: ValueId,
    bias: ValueId,
    residual: ValueId,
}

const WIDTH: usize = 64;

/// A graph after [`Operands`].
type Follow = fn(&mut Maker, &Operands) -> ValueId;

fn finished_in(dtype: DType) -> Vec<Case> {
    const GRAPHS: [(&str, Follow); 9] = [
        ("bias, then activation, then product", |m, o| {
            let y = product(m, o);
            let y = m.b.add(y, o.bias);
            let y = m.b.activate(Activation::Gelu, y);
            let next = m.random_weight(DType::F32, 40, WIDTH);
            m.b.matmul(y, next)
        }),
        ("bias, then residual", |m, o| {
            let y = product(m, o);
            let y = m.b.add(y, o.bias);
            m.b.add(o.residual, y)
        }),
        ("activation, then bias", |m, o| {
            let y = product(m, o);
            let y = m.b.activate(Activation::Silu, y);
            m.b.add(y, o.bias)
        }),
        ("two biases", |m, o| {
            let y = product(m, o);
            let y = m.b.add(y, o.bias);
            m.b.add(y, o.bias)
        }),
        ("bias, product read again", |m, o| {
            let y = product(m, o);
            let biased = m.b.add(y, o.bias);
            m.b.mul(biased, y)
        }),
        ("residual, product read again", |m, o| {
            let y = product(m, o);
            let sum = m.b.add(o.residual, y);
            m.b.mul(sum, y)
        }),
        ("residual that is read after the product", |m, o| {
            let y = product(m, o);
            let other = m.b.activate(Activation::Silu, o.residual);
            let sum = m.b.add(o.residual, y);
            m.b.mul(sum, other)
        }),
        ("residual that is the operand of the product", |m, o| {
            let y = product(m, o);
            m.b.add(o.x, y)
        }),
        ("residual twice", |m, o| {
            let y = product(m, o);
            let sum = m.b.add(o.residual, y);
            m.b.add(sum, o.x)
        }),
    ];
    let case = |(name, follow): (&str, Follow)| {
        let mut m = Maker::new(21);
        let x = m.exact_rows(WIDTH, VOCABULARY);
        let residual = m.normal_rows(WIDTH, VOCABULARY);
        let matrix = m.random_weight(dtype, WIDTH, WIDTH);
        let bias = normal(WIDTH, &mut m.random);
        let bias = m.floats(WIDTH, &bias);
        let y = follow(&mut m, &Operands { x, matrix, bias, residual });
        m.finish(format!("matmul {dtype}: {name}"), y, steps_of(&[3, 33, 140], VOCABULARY), SUMS)
    };
    GRAPHS.into_iter().map(case).collect()
}

fn product(m: &mut Maker, operands: &Operands) -> ValueId {
    m.b.matmul(operands.x, operands.matrix)
}

fn joined_with_biases() -> Case {
    let mut m = Maker::new(22);
    let x = m.exact_rows(WIDTH, VOCABULARY);
    let matrices = [0; 2].map(|_| m.random_weight(DType::F16, WIDTH, WIDTH));
    let [first, second] = m.b.push_all(FusedOp::MatMulJoined, &[x, matrices[0], matrices[1]])[..] else {
        panic!("two products")
    };
    let [first, second] = [first, second].map(|y| {
        let bias = normal(WIDTH, &mut m.random);
        let bias = m.floats(WIDTH, &bias);
        m.b.add(y, bias)
    });
    let y = m.b.mul(first, second);
    m.finish("matmul_joined with a bias each", y, steps_of(&[3, 33], VOCABULARY), SUMS)
}

/// Steps of more tokens than buffers have room for at first, between smaller ones.
pub fn long_steps() -> Vec<Case> {
    let mut m = Maker::new(23);
    let x = m.exact_rows(32, VOCABULARY);
    let w = m.random_weight(DType::F16, 48, 32);
    let y = m.b.matmul(x, w);
    vec![m.finish("matmul of 5,000 tokens", y, steps_of(&[20, 3000, 1, 5000, 300], VOCABULARY), SUMS)]
}

/// Rows of which a second-level cache has no room for one.
pub fn wide_rows() -> Vec<Case> {
    let mut m = Maker::new(24);
    let x = m.exact_rows(100_352, VOCABULARY);
    let w = m.random_weight(DType::F32, 17, 100_352);
    let y = m.b.matmul(x, w);
    vec![m.finish("matmul of 100,352 columns", y, steps_of(&[1, 20], VOCABULARY), SUMS)]
}

#[cfg(any(feature = "wgpu", feature = "metal"))]
/// A table and a product of more bytes than the smallest binding has.
pub fn split(dtype: DType) -> Vec<Case> {
    let (rows, columns) = (2600, 256);
    let mut m = Maker::new(11);
    let w = m.random_weight(dtype, rows, columns);
    let (x, other) = (m.exact_rows(columns, rows), m.embed(w));
    let sum = m.b.add(x, other);
    let y = m.b.matmul(x, w);
    let z = m.b.matmul(sum, w);
    let y = m.b.add(y, z);
    let nmse = if dtype.is_float() { SUMS } else { EIGHT_BITS };
    vec![m.finish(format!("matmul {dtype} of a split matrix"), y, steps_of(&[1, 20], rows), nmse)]
}

#[cfg(any(feature = "wgpu", feature = "metal"))]
/// What inputs in half precision cost.
const HALF: f64 = 2e-6;

#[cfg(any(feature = "wgpu", feature = "metal"))]
/// Many tokens with rows and columns of no whole tile.
pub fn tiled(dtype: DType) -> Vec<Case> {
    let case = |(rows, columns): &(usize, usize)| {
        let mut m = Maker::new(12);
        let x = m.normal_rows(*columns, VOCABULARY);
        let w = m.random_weight(dtype, *rows, *columns);
        let y = m.b.matmul(x, w);
        m.finish(format!("matmul {dtype} {rows}x{columns}"), y, steps_of(&[17, 64, 130, 300], VOCABULARY), HALF)
    };
    [(64, 256), (65, 512), (130, 768), (2200, 256), (257, 1280), (6208, 256)].iter().map(case).collect()
}

/// Products of the chosen rows alone, in every number of them.
pub fn of_outputs() -> Vec<Case> {
    let case = |dtype: DType| {
        let mut m = Maker::new(9);
        let x = m.exact_rows(256, VOCABULARY);
        let x = m.b.push(Op::SelectOutputs, &[x]);
        let w = m.random_weight(dtype, 50, 256);
        let y = m.b.matmul(x, w);
        let mut steps = vec![ragged(&[(0, 0, 12), (1, 0, 3)], VOCABULARY); 5];
        steps[0].outputs = vec![14];
        steps[1].outputs = vec![];
        steps[2].outputs = vec![0, 3, 4, 11, 14];
        steps[3].outputs = (0..15).step_by(2).collect();
        m.finish(format!("matmul {dtype} of outputs"), y, steps, SUMS)
    };
    [DType::F32, DType::Q4_K, DType::Q8_0].map(case).into()
}
