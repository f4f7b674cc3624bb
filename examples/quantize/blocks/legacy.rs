//! Quantizes to the formats with a scale, and a minimum, for 32 weights.

use half::f16;

use super::scales::{Search, around_zero, error_weights, extreme, mean_square, with_minimum};

/// The weights of a block.
const BLOCK: usize = 32;

/// The search for a scale and a minimum with an importance matrix.
const SEARCH: Search = Search { start: -0.9, step: 0.05, count: 36, absolute: false, bounded: true };

/// Appends blocks of codes of `bits` bits around 0: Q4_0 and Q5_0.
pub fn around_zero_row(x: &[f32], importance: Option<&[f32]>, bits: u32, out: &mut Vec<u8>) {
    let half = 1 << (bits - 1);
    let mean_square = importance.map(|_| mean_square(x));
    for (index, x) in x.chunks_exact(BLOCK).enumerate() {
        let mut codes = [0; BLOCK];
        let scale = match importance.zip(mean_square) {
            Some((importance, mean_square)) => {
                let (mut weights, mut signed) = ([0.0; BLOCK], [0; BLOCK]);
                error_weights(x, &importance[index * BLOCK..], mean_square, &mut weights);
                let scale = around_zero(x, half, Some(&weights), &mut signed);
                codes = signed.map(|code| code as u8);
                scale
            }
            None => {
                let scale = extreme(x) / -(half as f32);
                let inverse = inverse(scale);
                let top = 2 * half - 1;
                let code = |x: f32| i32::from((x * inverse + (half as f32 + 0.5)) as i8).min(top) as u8;
                codes.iter_mut().zip(x).for_each(|(out, &x)| *out = code(x));
                scale
            }
        };
        out.extend(f16::from_f32(scale).to_le_bytes());
        pack(&codes, bits, out);
    }
}

/// Appends blocks of codes of `bits` bits above a minimum: Q4_1 and Q5_1.
pub fn minimum_row(x: &[f32], importance: Option<&[f32]>, bits: u32, out: &mut Vec<u8>) {
    let top = (1u8 << bits) - 1;
    let mean_square = importance.map(|_| mean_square(x));
    for (index, x) in x.chunks_exact(BLOCK).enumerate() {
        let mut codes = [0; BLOCK];
        let (scale, min) = match importance.zip(mean_square) {
            Some((importance, mean_square)) => {
                let mut weights = [0.0; BLOCK];
                error_weights(x, &importance[index * BLOCK..], mean_square, &mut weights);
                let (scale, min) = with_minimum(x, top, &weights, &mut codes, SEARCH);
                (scale, -min)
            }
            None => {
                let min = x.iter().fold(f32::MAX, |min, &x| if x < min { x } else { min });
                let max = x.iter().fold(f32::MIN, |max, &x| if x > max { x } else { max });
                let scale = (max - min) / f32::from(top);
                let inverse = inverse(scale);
                codes.iter_mut().zip(x).for_each(|(out, x)| *out = (((x - min) * inverse + 0.5) as u8).min(top));
                (scale, min)
            }
        };
        out.extend([scale, min].map(|number| f16::from_f32(number).to_le_bytes()).as_flattened());
        pack(&codes, bits, out);
    }
}

/// Appends blocks of Q8_0.
pub fn q8_0_row(x: &[f32], _importance: Option<&[f32]>, out: &mut Vec<u8>) {
    for x in x.chunks_exact(BLOCK) {
        let scale = extreme(x).abs() / 127.0;
        let inverse = inverse(scale);
        out.extend(f16::from_f32(scale).to_le_bytes());
        out.extend(x.iter().map(|x| (x * inverse).round() as i8 as u8));
    }
}

/// Returns the inverse of a scale, 0 for 0.
fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// Appends the fifth bits of all codes, if they have any, and pairs of the lower four bits.
fn pack(codes: &[u8; BLOCK], bits: u32, out: &mut Vec<u8>) {
    if bits == 5 {
        let fifth = |(index, code): (usize, &u8)| u32::from(code >> 4 & 1) << index;
        out.extend(codes.iter().enumerate().map(fifth).sum::<u32>().to_le_bytes());
    }
    let (low, high) = codes.split_at(BLOCK / 2);
    out.extend(low.iter().zip(high).map(|(low, high)| low & 15 | high << 4));
}
