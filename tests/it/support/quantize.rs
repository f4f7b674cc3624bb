//! Naive quantizers: weights come in, the blocks of any format go out.
//!
//! The tests need packed weights whose errors are like those of real files, so each scale is the
//! best of a few, by least squares, and codes are rounded to the nearest; llama.cpp's importance
//! weights and refinements are left out.

use half::{bf16, f16};
use inkstone::DType;

use super::grids;

/// What the codes of `IQ4_NL` and `IQ4_XS` stand for.
const IQ4: [f32; 16] =
    [-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0];

/// What the codes of `MXFP4` stand for.
const E2M1: [f32; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// The blocks of `dtype` for these finite weights, of which there must be a whole number of blocks.
pub fn quantize(dtype: DType, weights: &[f32]) -> Vec<u8> {
    let block_weights = dtype.block_weights();
    assert!(
        weights.len().is_multiple_of(block_weights),
        "{} weights are no whole number of {dtype} blocks",
        weights.len()
    );
    let block = match dtype {
        DType::F32 => |x: &[f32]| x[0].to_le_bytes().to_vec(),
        DType::F16 => |x: &[f32]| f16::from_f32(x[0]).to_le_bytes().to_vec(),
        DType::BF16 => |x: &[f32]| bf16::from_f32(x[0]).to_le_bytes().to_vec(),
        DType::Q4_0 => q4_0,
        DType::Q4_1 => q4_1,
        DType::Q5_0 => q5_0,
        DType::Q5_1 => q5_1,
        DType::Q8_0 => q8_0,
        DType::Q2_K => q2_k,
        DType::Q3_K => q3_k,
        DType::Q4_K => q4_k,
        DType::Q5_K => q5_k,
        DType::Q6_K => q6_k,
        DType::IQ4_NL => iq4_nl,
        DType::IQ4_XS => iq4_xs,
        DType::MXFP4 => mxfp4,
        DType::NVFP4 => nvfp4,
        DType::TQ1_0 => tq1_0,
        DType::TQ2_0 => tq2_0,
        DType::Q1_0 => q1_0,
        DType::Q2_0 => q2_0,
        DType::IQ1_S | DType::IQ1_M | DType::IQ2_XXS | DType::IQ2_XS | DType::IQ2_S | DType::IQ3_XXS | DType::IQ3_S => {
            return weights.chunks_exact(block_weights).flat_map(|x| grids::quantize(dtype, x)).collect();
        }
    };
    weights.chunks_exact(block_weights).flat_map(block).collect()
}

fn q4_0(x: &[f32]) -> Vec<u8> {
    let (d, codes) = symmetric(x, 8.0);
    [&d.to_le_bytes(), &*pack(&codes, 0, 4, 16)].concat()
}

fn q5_0(x: &[f32]) -> Vec<u8> {
    let (d, codes) = symmetric(x, 16.0);
    [&d.to_le_bytes(), &*pack(&codes, 4, 1, 1), &pack(&codes, 0, 4, 16)].concat()
}

fn q4_1(x: &[f32]) -> Vec<u8> {
    let (d, m, codes) = affine(x, 15.0);
    [&d.to_le_bytes(), &m.to_le_bytes(), &*pack(&codes, 0, 4, 16)].concat()
}

fn q5_1(x: &[f32]) -> Vec<u8> {
    let (d, m, codes) = affine(x, 31.0);
    [&d.to_le_bytes(), &m.to_le_bytes(), &*pack(&codes, 4, 1, 1), &pack(&codes, 0, 4, 16)].concat()
}

fn q8_0(x: &[f32]) -> Vec<u8> {
    let d = f16::from_f32(best_scale(x, 127.0, integer(-127.0, 127.0)));
    let codes = x.iter().map(|&x| integer(-127.0, 127.0)(ratio(x, d.to_f32())) as i8 as u8).collect::<Vec<_>>();
    [&d.to_le_bytes(), &*codes].concat()
}

fn q2_k(x: &[f32]) -> Vec<u8> {
    let k = affine_groups(x, 16, 3.0, 15.0);
    let scales = k.scales.iter().zip(&k.mins).map(|(scale, min)| scale | (min << 4)).collect::<Vec<_>>();
    [&*scales, &pack(&k.codes, 0, 2, 32), &k.d.to_le_bytes(), &k.dmin.to_le_bytes()].concat()
}

fn q3_k(x: &[f32]) -> Vec<u8> {
    let (d, scales, codes) = symmetric_groups(x, 4.0, 32.0);
    let scales = scales.iter().map(|scale| (scale + 32) as u8).collect::<Vec<_>>();
    let scales = [pack(&scales, 0, 4, 8), pack(&scales, 4, 2, 4)].concat();
    [&*pack(&codes, 2, 1, 32), &pack(&codes, 0, 2, 32), &scales, &d.to_le_bytes()].concat()
}

fn q4_k(x: &[f32]) -> Vec<u8> {
    let k = affine_groups(x, 32, 15.0, 63.0);
    let scales = six_bit_pairs(&k.scales, &k.mins);
    [&k.d.to_le_bytes(), &k.dmin.to_le_bytes(), &*scales, &pack(&k.codes, 0, 4, 32)].concat()
}

fn q5_k(x: &[f32]) -> Vec<u8> {
    let k = affine_groups(x, 32, 31.0, 63.0);
    let scales = six_bit_pairs(&k.scales, &k.mins);
    [&k.d.to_le_bytes(), &k.dmin.to_le_bytes(), &*scales, &pack(&k.codes, 4, 1, 32), &pack(&k.codes, 0, 4, 32)].concat()
}

fn q6_k(x: &[f32]) -> Vec<u8> {
    let (d, scales, codes) = symmetric_groups(x, 32.0, 128.0);
    let scales = scales.iter().map(|&scale| scale as u8).collect::<Vec<_>>();
    [&*pack(&codes, 0, 4, 64), &pack(&codes, 4, 2, 32), &scales, &d.to_le_bytes()].concat()
}

fn iq4_nl(x: &[f32]) -> Vec<u8> {
    let d = f16::from_f32(best_scale(x, -127.0, nearest_iq4));
    let codes = x.iter().map(|&x| index(&IQ4, nearest_iq4(ratio(x, d.to_f32())))).collect::<Vec<_>>();
    [&d.to_le_bytes(), &*pack(&codes, 0, 4, 16)].concat()
}

fn iq4_xs(x: &[f32]) -> Vec<u8> {
    let ideal = x.chunks(32).map(|x| best_scale(x, -127.0, nearest_iq4)).collect::<Vec<_>>();
    let (d, scales) = shared_scale(&ideal, -32.0, integer(-32.0, 31.0));
    let codes = x.iter().enumerate().map(|(i, &x)| {
        let scale = d.to_f32() * f32::from(scales[i / 32]);
        index(&IQ4, nearest_iq4(ratio(x, scale)))
    });
    let codes = codes.collect::<Vec<_>>();
    let scales = scales.iter().map(|scale| (scale + 32) as u8).collect::<Vec<_>>();
    [&d.to_le_bytes(), &*pack(&scales, 4, 2, 1), &pack(&scales, 0, 4, 1), &pack(&codes, 0, 4, 16)].concat()
}

fn mxfp4(x: &[f32]) -> Vec<u8> {
    // The greatest code is 6 = 1.5 * 2^2, so the peak decides the exponent to within one. Zeros may
    // have any.
    let exponent = peak(x).abs().log2().floor().max(-120.0) as i32 - 2;
    let candidates = (exponent - 1..=exponent + 1).map(|exponent| {
        let scale = 2f32.powi(exponent);
        let codes = x.iter().map(|&x| index(&E2M1, nearest(&E2M1, x / scale))).collect::<Vec<_>>();
        let error = x.iter().zip(&codes).map(|(x, &code)| (x - scale * E2M1[usize::from(code)]).powi(2)).sum::<f32>();
        (error, exponent, codes)
    });
    let (_, exponent, codes) = candidates.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
    [&[(exponent + 127) as u8], &*pack(&codes, 0, 4, 16)].concat()
}

fn nvfp4(x: &[f32]) -> Vec<u8> {
    let (scales, codes): (Vec<_>, Vec<_>) = x.chunks(16).map(nvfp4_group).unzip();
    [scales, pack(&codes.concat(), 0, 4, 8)].concat()
}

/// The scale and codes of 16 weights: the greatest code is 6, so the peak decides the scale to
/// within a few.
fn nvfp4_group(x: &[f32]) -> (u8, Vec<u8>) {
    // E4M3 without sign.
    let value = |scale: u8| match (i32::from(scale >> 3), f32::from(scale & 7)) {
        (0, mantissa) => mantissa / 512.0,
        (exponent, mantissa) => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
    };
    let peak = peak(x).abs();
    let first = (1..127).take_while(|&scale| value(scale) * 6.0 < peak).count() as u8;
    let candidates = (first.saturating_sub(3)..=(first + 8).min(126)).map(|scale| {
        let codes = x.iter().map(|&x| index(&E2M1, nearest(&E2M1, ratio(x, value(scale))))).collect::<Vec<_>>();
        let error = |(x, &code): (&f32, &u8)| (x - value(scale) * E2M1[usize::from(code)]).powi(2);
        (x.iter().zip(&codes).map(error).sum::<f32>(), scale, codes)
    });
    let (_, scale, codes) = candidates.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
    (scale, codes)
}

fn tq1_0(x: &[f32]) -> Vec<u8> {
    let (d, digits) = ternary(x);
    // The digits of byte `b` of some bytes follow each other at the distance of these bytes.
    let bytes = |digits: &[u8], bytes: usize| -> Vec<u8> {
        let byte = |b: usize| {
            let number = (0..5).fold(0u32, |n, i| n * 3 + u32::from(digits.get(b + i * bytes).copied().unwrap_or(0)));
            ((number * 256).div_ceil(243)) as u8
        };
        (0..bytes).map(byte).collect()
    };
    [&*bytes(&digits[..160], 32), &bytes(&digits[160..240], 16), &bytes(&digits[240..], 4), &d.to_le_bytes()].concat()
}

fn tq2_0(x: &[f32]) -> Vec<u8> {
    let (d, digits) = ternary(x);
    [&*pack(&digits, 0, 2, 32), &d.to_le_bytes()].concat()
}

fn q2_0(x: &[f32]) -> Vec<u8> {
    let level = integer(-1.0, 2.0);
    let d = f16::from_f32(swept_scale(x, &level));
    let codes = x.iter().map(|&x| (level(ratio(x, d.to_f32())) + 1.0) as u8).collect::<Vec<_>>();
    [&d.to_le_bytes(), &*pack(&codes, 0, 2, 1)].concat()
}

fn q1_0(x: &[f32]) -> Vec<u8> {
    let d = f16::from_f32(x.iter().map(|x| x.abs()).sum::<f32>() / x.len() as f32);
    let codes = x.iter().map(|&x| u8::from(x >= 0.0)).collect::<Vec<_>>();
    [&d.to_le_bytes(), &*pack(&codes, 0, 1, 1)].concat()
}

/// The scale and the digits, 0 to 2, of weight = scale * (digit - 1).
fn ternary(x: &[f32]) -> (f16, Vec<u8>) {
    let level = integer(-1.0, 1.0);
    let d = f16::from_f32(swept_scale(x, &level));
    (d, x.iter().map(|&x| (level(ratio(x, d.to_f32())) + 1.0) as u8).collect())
}

/// The best scale among those of either sign that take the peak to any level up to 4.
fn swept_scale(x: &[f32], level: impl Fn(f32) -> f32) -> f32 {
    let targets = (4..=16).flat_map(|quarter| [quarter as f32 / 4.0, quarter as f32 / -4.0]);
    let scales = targets.map(|target| best_scale(x, target, &level));
    let error = |scale: f32| x.iter().map(|&x| (x - scale * level(ratio(x, scale))).powi(2)).sum::<f32>();
    scales.min_by(|a, b| error(*a).total_cmp(&error(*b))).unwrap()
}

/// The scale and codes of weight = scale * (code - half), with 2 * half codes.
fn symmetric(x: &[f32], half: f32) -> (f16, Vec<u8>) {
    let d = f16::from_f32(best_scale(x, -half, integer(-half, half - 1.0)));
    (d, x.iter().map(|&x| (integer(-half, half - 1.0)(ratio(x, d.to_f32())) + half) as u8).collect())
}

/// The same with a scale for each 16 weights, d * scale, where scale lies between -scale_half and
/// scale_half - 1.
fn symmetric_groups(x: &[f32], half: f32, scale_half: f32) -> (f16, Vec<i8>, Vec<u8>) {
    let level = integer(-half, half - 1.0);
    let ideal = x.chunks(16).map(|x| best_scale(x, -half, &level)).collect::<Vec<_>>();
    let (d, scales) = shared_scale(&ideal, -scale_half, integer(-scale_half, scale_half - 1.0));
    let codes = x.iter().enumerate().map(|(i, &x)| {
        let scale = d.to_f32() * f32::from(scales[i / 16]);
        (level(ratio(x, scale)) + half) as u8
    });
    let codes = codes.collect();
    (d, scales, codes)
}

/// The scale, minimum and codes of weight = scale * code + min, with codes up to `top`.
fn affine(x: &[f32], top: f32) -> (f16, f16, Vec<u8>) {
    let (d, m) = best_line(x, top, f32::INFINITY);
    let (d, m) = (f16::from_f32(d), f16::from_f32(m));
    (d, m, x.iter().map(|&x| integer(0.0, top)(ratio(x - m.to_f32(), d.to_f32())) as u8).collect())
}

struct AffineGroups {
    d: f16,
    dmin: f16,
    scales: Vec<u8>,
    mins: Vec<u8>,
    codes: Vec<u8>,
}

/// weight = d * scale * code - dmin * min, a scale and a min up to `scale_top` for each `group`
/// weights.
fn affine_groups(x: &[f32], group: usize, top: f32, scale_top: f32) -> AffineGroups {
    let lines = x.chunks(group).map(|x| best_line(x, top, 0.0));
    let (slopes, mins): (Vec<_>, Vec<_>) = lines.map(|(slope, min)| (slope, -min)).unzip();
    let (d, scales) = shared_scale(&slopes, scale_top, integer(0.0, scale_top));
    let (dmin, mins) = shared_scale(&mins, scale_top, integer(0.0, scale_top));
    let codes = x.iter().enumerate().map(|(i, &x)| {
        let scale = d.to_f32() * f32::from(scales[i / group]);
        let min = dmin.to_f32() * f32::from(mins[i / group]);
        integer(0.0, top)(ratio(x + min, scale)) as u8
    });
    let codes = codes.collect();
    let bytes = |values: Vec<i8>| values.into_iter().map(|value| value as u8).collect();
    AffineGroups { d, dmin, scales: bytes(scales), mins: bytes(mins), codes }
}

/// One scale for several values, and the level of each.
fn shared_scale(values: &[f32], extreme: f32, level: impl Fn(f32) -> f32) -> (f16, Vec<i8>) {
    let d = f16::from_f32(best_scale(values, extreme, &level));
    (d, values.iter().map(|&value| level(ratio(value, d.to_f32())) as i8).collect())
}

/// The scale s for which s * level(x / s) is nearest to x in the sum of squares, among some that
/// take the peak near `extreme`.
fn best_scale(x: &[f32], extreme: f32, level: impl Fn(f32) -> f32) -> f32 {
    let peak = peak(x);
    if peak == 0.0 {
        return 0.0;
    }
    let fits = stretches().map(|stretch| {
        let inverse = extreme * stretch / peak;
        let (mut products, mut squares) = (0.0, 0.0);
        for &x in x {
            let level = level(x * inverse);
            products += x * level;
            squares += level * level;
        }
        // With these levels the scale products / squares is best, and the error is that of s = 0
        // less `gain`.
        let gain = products * products / squares;
        (gain, products / squares)
    });
    fits.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap().1
}

/// The slope and offset for which slope * code + offset, with codes up to `top`, is nearest to x in
/// the sum of squares, among some that span about the range of x. The offset is at most `limit`.
fn best_line(x: &[f32], top: f32, limit: f32) -> (f32, f32) {
    let low = x.iter().copied().fold(limit, f32::min);
    let high = x.iter().copied().fold(low, f32::max);
    if high == low {
        return (0.0, low);
    }
    let fits = stretches().map(|stretch| {
        let span = (high - low) / stretch;
        let start = ((low + high - span) / 2.0).min(limit);
        let codes = x.iter().map(|&x| integer(0.0, top)((x - start) * top / span)).collect::<Vec<_>>();
        let (slope, offset) = fit_line(x, &codes, limit);
        let error = x.iter().zip(&codes).map(|(x, code)| (x - slope * code - offset).powi(2)).sum::<f32>();
        (error, slope, offset)
    });
    let (_, slope, offset) = fits.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
    (slope, offset)
}

/// Linear regression of x on its codes, with an offset of at most `limit`.
fn fit_line(x: &[f32], codes: &[f32], limit: f32) -> (f32, f32) {
    let mean = |values: &[f32]| values.iter().sum::<f32>() / values.len() as f32;
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>() / a.len() as f32;
    let (mean_x, mean_code) = (mean(x), mean(codes));
    let slope = ratio(product(x, codes) - mean_x * mean_code, product(codes, codes) - mean_code * mean_code);
    let offset = mean_x - slope * mean_code;
    if offset <= limit {
        return (slope.max(0.0), offset);
    }
    (ratio(product(x, codes) - limit * mean_code, product(codes, codes)).max(0.0), limit)
}

/// How far beyond the greatest code the peak is taken: below 1, codes are left unused; above,
/// weights are clipped.
fn stretches() -> impl Iterator<Item = f32> {
    (-3..=7).map(|step| 1.0 + 0.04 * step as f32)
}

/// The value of greatest magnitude.
fn peak(x: &[f32]) -> f32 {
    x.iter().copied().fold(0.0, |peak, x| if x.abs() > peak.abs() { x } else { peak })
}

fn ratio(x: f32, scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { x / scale }
}

fn integer(low: f32, high: f32) -> impl Fn(f32) -> f32 {
    // `round` is a call of a function on x86-64 without SSE4.1.
    move |x| ((x + 0.5f32.copysign(x)) as i32 as f32).clamp(low, high)
}

fn nearest_iq4(x: f32) -> f32 {
    nearest(&IQ4, x)
}

fn nearest(values: &[f32], x: f32) -> f32 {
    let nearer = |a: f32, b: f32| if (b - x).abs() < (a - x).abs() { b } else { a };
    values.iter().copied().reduce(nearer).unwrap()
}

fn index(values: &[f32], value: f32) -> u8 {
    values.iter().position(|&candidate| candidate == value).unwrap() as u8
}

/// Bits `from` to `from + width` of each code, `8 / width` codes to a byte, those that lie `run`
/// apart together, the first in the lowest bits.
pub(super) fn pack(codes: &[u8], from: usize, width: usize, run: usize) -> Vec<u8> {
    let per_byte = 8 / width;
    let mut bytes = vec![0; codes.len() / per_byte];
    for (i, code) in codes.iter().enumerate() {
        let bits = (code >> from) & ((1 << width) - 1);
        bytes[i / (run * per_byte) * run + i % run] |= bits << (width * (i / run % per_byte));
    }
    bytes
}

/// The 12 bytes of `Q4_K` and `Q5_K` for eight 6-bit scales and minima.
fn six_bit_pairs(scales: &[u8], mins: &[u8]) -> Vec<u8> {
    let first = (0..4).map(|g| scales[g] | (scales[g + 4] >> 4 << 6));
    let second = (0..4).map(|g| mins[g] | (mins[g + 4] >> 4 << 6));
    let third = (4..8).map(|g| (scales[g] & 15) | ((mins[g] & 15) << 4));
    first.chain(second).chain(third).collect()
}
