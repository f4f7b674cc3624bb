//! Quantizes to the formats whose codes of four bits are indices into a table: IQ4_NL and IQ4_XS.

use half::f16;

use super::scales::{ZERO, error_weights, extreme, mean_square, nearest};

/// The weights that codes stand for, times a scale.
const TABLE: [f32; 16] =
    [-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0];

/// The weights of a part with a scale.
const PART: usize = 32;

/// The number of scales that are tried on each side of the first one.
const TRIES: i32 = 7;

/// Returns the index of the table's entry that is closest to `x`.
fn closest(x: f32) -> u8 {
    let above = TABLE.partition_point(|entry| *entry <= x);
    match above {
        0 => 0,
        16 => 15,
        _ if x - TABLE[above - 1] < TABLE[above] - x => above as u8 - 1,
        _ => above as u8,
    }
}

/// Returns the best scale for a part. An error has the given weight.
fn scale(x: &[f32], weights: &[f32]) -> f32 {
    let max = extreme(x);
    if max.abs() < ZERO {
        return 0.0;
    }
    let fit = |inverse: f32| {
        x.iter().zip(weights).fold((0.0, 0.0), |(product, squares), (x, weight)| {
            let entry = TABLE[usize::from(closest(inverse * x))];
            (product + weight * entry * x, squares + weight * entry * entry)
        })
    };
    let (product, squares) = fit(1.0 / (-max / TABLE[0]));
    let mut scale = if squares > 0.0 { product / squares } else { 0.0 };
    let mut best = scale * product;
    for step in -TRIES..=TRIES {
        let (product, squares) = fit((step as f32 + TABLE[0]) / max);
        if squares > 0.0 && product * product > best * squares {
            scale = product / squares;
            best = scale * product;
        }
    }
    scale
}

fn weights(x: &[f32], importance: Option<&[f32]>, mean_square: f32) -> [f32; PART] {
    let mut weights = [0.0; PART];
    match importance {
        Some(importance) => error_weights(x, importance, mean_square, &mut weights),
        None => weights.iter_mut().zip(x).for_each(|(weight, x)| *weight = x * x),
    }
    weights
}

/// Appends the codes of a part.
fn pack(x: &[f32], scale: f32, out: &mut Vec<u8>) {
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let (low, high) = x.split_at(PART / 2);
    out.extend(low.iter().zip(high).map(|(low, high)| closest(inverse * low) | closest(inverse * high) << 4));
}

/// Appends blocks of IQ4_NL.
pub fn nl_row(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    for (index, x) in x.chunks_exact(PART).enumerate() {
        let importance = importance.map(|importance| &importance[index * PART..]);
        let scale = scale(x, &weights(x, importance, double_mean_square(x)));
        out.extend(f16::from_f32(scale).to_le_bytes());
        pack(x, scale, out);
    }
}

/// Appends blocks of IQ4_XS.
pub fn xs_row(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    const BLOCK: usize = 256;
    for (index, x) in x.chunks_exact(BLOCK).enumerate() {
        let mean_square = double_mean_square(x);
        let mut scales = [0.0; BLOCK / PART];
        for (part, x) in x.chunks_exact(PART).enumerate() {
            let importance = importance.map(|importance| &importance[index * BLOCK + part * PART..]);
            scales[part] = scale(x, &weights(x, importance, mean_square));
        }
        let scale = -extreme(&scales) / 32.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let codes = scales.map(|part| nearest(inverse * part).clamp(-32, 31));
        let stored = codes.map(|code| (code + 32) as u8);
        out.extend(f16::from_f32(scale).to_le_bytes());
        let upper = stored.iter().enumerate().map(|(part, code)| u16::from(code >> 4) << (2 * part));
        out.extend(upper.sum::<u16>().to_le_bytes());
        out.extend(stored.as_chunks().0.iter().map(|[low, high]| low & 15 | high << 4));
        x.chunks_exact(PART).zip(codes).for_each(|(x, code)| pack(x, scale * code as f32, out));
    }
}

fn double_mean_square(x: &[f32]) -> f32 {
    // A multiplication by a power of two, where the length is one.
    mean_square(x) * 2.0
}
