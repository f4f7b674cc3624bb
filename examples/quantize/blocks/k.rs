//! Quantizes to the formats whose blocks of 256 weights have codes for the scales of their parts.

use half::f16;

use super::scales::{
    Search, ZERO, around_zero, around_zero_by_moves, error_weights, extreme, from_zero, mean_square, nearest, sum,
    with_minimum,
};

/// The weights of a block.
const BLOCK: usize = 256;

/// The search for a part's scale and minimum with an importance matrix.
const SEARCH: Search = Search { start: -0.9, step: 0.05, count: 36, absolute: false, bounded: true };

/// A format with a scale and a minimum for each part of a block.
struct WithMinimums {
    /// The weights of a part.
    part: usize,
    /// The largest code of a weight.
    limit: u8,
    /// The largest code of a scale.
    scale_limit: u8,
    /// The search without an importance matrix.
    search: Search,
    /// The factor of the mean square in the weights of errors.
    spread: f32,
}

const PLAIN: Search = Search { start: -0.5, step: 0.1, count: 15, absolute: false, bounded: false };
const Q2_K: WithMinimums =
    WithMinimums { part: 16, limit: 3, scale_limit: 15, search: Search { absolute: true, ..PLAIN }, spread: 1.0 };
const Q4_K: WithMinimums = WithMinimums {
    part: 32,
    limit: 15,
    scale_limit: 63,
    search: Search { start: -1.0, count: 20, ..PLAIN },
    spread: 2.0,
};
const Q5_K: WithMinimums = WithMinimums { part: 32, limit: 31, scale_limit: 63, search: PLAIN, spread: 2.0 };

/// A quantized block with minimums.
struct Block {
    scale: f16,
    minimum: f16,
    scales: [u8; 16],
    minimums: [u8; 16],
    codes: [u8; BLOCK],
}

impl WithMinimums {
    fn quantize(&self, x: &[f32], importance: Option<&[f32]>) -> Block {
        let (mut scales, mut minimums, mut weight_sums) = ([0.0; 16], [0.0; 16], [0.0; 16]);
        let mut codes = [0; BLOCK];
        let mean_square = self.spread * x.iter().fold(0.0, |sum, x| sum + x * x) / BLOCK as f32;
        for (index, (x, codes)) in x.chunks_exact(self.part).zip(codes.chunks_exact_mut(self.part)).enumerate() {
            let mut weights = [0.0; 32];
            let weights = &mut weights[..self.part];
            let search = match importance {
                Some(importance) => {
                    error_weights(x, &importance[index * self.part..], mean_square, weights);
                    SEARCH
                }
                None => {
                    self.plain_weights(x, weights);
                    self.search
                }
            };
            weight_sums[index] = sum(weights);
            (scales[index], minimums[index]) = with_minimum(x, self.limit, weights, codes, search);
        }
        let parts = BLOCK / self.part;
        let round = |numbers: &[f32; 16]| match importance {
            Some(_) => {
                let mut codes = [0; 16];
                let limit = self.scale_limit.into();
                let scale = from_zero(&numbers[..parts], limit, &weight_sums[..parts], &mut codes[..parts]);
                (f16::from_f32(scale), codes)
            }
            None => self.plain_scales(numbers),
        };
        let ((scale, scales), (minimum, minimums)) = (round(&scales), round(&minimums));
        let mut block = Block { scale, minimum, scales, minimums, codes };
        self.round_codes(x, &mut block);
        block
    }

    fn plain_weights(&self, x: &[f32], weights: &mut [f32]) {
        let base = if self.search.absolute { 0.0 } else { mean_square(x).sqrt() };
        weights.iter_mut().zip(x).for_each(|(weight, x)| *weight = base + x.abs());
    }

    fn plain_scales(&self, numbers: &[f32; 16]) -> (f16, [u8; 16]) {
        let limit = f32::from(self.scale_limit);
        let max = numbers.iter().fold(0.0, |max: f32, &number| if number > max { number } else { max });
        let inverse = if max > 0.0 { limit / max } else { 0.0 };
        (f16::from_f32(max / limit), numbers.map(|number| (nearest(inverse * number) as u8).min(self.scale_limit)))
    }

    /// Rounds the codes again, with the scales as they are stored.
    fn round_codes(&self, x: &[f32], block: &mut Block) {
        let parts = x.chunks_exact(self.part).zip(block.codes.chunks_exact_mut(self.part));
        for ((x, codes), (&scale, &minimum)) in parts.zip(block.scales.iter().zip(&block.minimums)) {
            let scale = block.scale.to_f32() * f32::from(scale);
            let minimum = block.minimum.to_f32() * f32::from(minimum);
            if scale != 0.0 {
                let code = |x: f32| nearest((x + minimum) / scale).clamp(0, self.limit.into()) as u8;
                codes.iter_mut().zip(x).for_each(|(out, &x)| *out = code(x));
            }
        }
    }
}

/// Returns the importance of the weights of block `index`.
fn of_block(importance: Option<&[f32]>, index: usize) -> Option<&[f32]> {
    importance.map(|importance| &importance[index * BLOCK..][..BLOCK])
}

/// Appends blocks of Q2_K.
pub fn q2_k_row(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    for (index, x) in x.chunks_exact(BLOCK).enumerate() {
        let block = Q2_K.quantize(x, of_block(importance, index));
        out.extend(block.scales.iter().zip(&block.minimums).map(|(scale, minimum)| scale | minimum << 4));
        pack_two_bits(&block.codes, out);
        out.extend([block.scale, block.minimum].map(f16::to_le_bytes).as_flattened());
    }
}

/// Appends blocks of Q4_K.
pub fn q4_k_row(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    for (index, x) in x.chunks_exact(BLOCK).enumerate() {
        let block = Q4_K.quantize(x, of_block(importance, index));
        pack_scales(&block, out);
        pack_four_bits(&block.codes, out);
    }
}

/// Appends blocks of Q5_K.
pub fn q5_k_row(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    for (index, x) in x.chunks_exact(BLOCK).enumerate() {
        let block = Q5_K.quantize(x, of_block(importance, index));
        pack_scales(&block, out);
        let fifth = |lane: usize| (0..8).map(|part| (block.codes[32 * part + lane] >> 4 & 1) << part).sum::<u8>();
        out.extend((0..32).map(fifth));
        pack_four_bits(&block.codes, out);
    }
}

/// Appends blocks of Q3_K.
pub fn q3_k_row(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    const PART: usize = 16;
    for (index, x) in x.chunks_exact(BLOCK).enumerate() {
        let (mut codes, mut scales, mut weight_sums) = ([0; BLOCK], [0.0; 16], [0.0; 16]);
        let importance = of_block(importance, index);
        let mean_square = 2.0 * x.iter().fold(0.0, |sum, x| sum + x * x) / BLOCK as f32;
        for (part, (x, codes)) in x.chunks_exact(PART).zip(codes.chunks_exact_mut(PART)).enumerate() {
            scales[part] = match importance {
                Some(importance) => {
                    let mut weights = [0.0; PART];
                    error_weights(x, &importance[part * PART..], mean_square, &mut weights);
                    weight_sums[part] = sum(&weights);
                    around_zero(x, 4, Some(&weights), codes)
                }
                None => around_zero_by_moves(x, 4, codes),
            };
        }
        let mut scale_codes = [0; 16];
        let scale = match importance {
            Some(_) => around_zero(&scales, 32, Some(&weight_sums), &mut scale_codes),
            None => plain_signed_scales(&scales, &mut scale_codes),
        };
        let scale = f16::from_f32(scale);
        for ((x, codes), scale_code) in x.chunks_exact(PART).zip(codes.chunks_exact_mut(PART)).zip(scale_codes) {
            round_signed(x, scale.to_f32() * f32::from(scale_code - 32), 4, codes);
        }
        let codes = codes.map(|code| code as u8);
        let third = |lane: usize| (0..8).map(|part| u8::from(codes[32 * part + lane] > 3) << part).sum::<u8>();
        out.extend((0..32).map(third));
        pack_two_bits(&codes.map(|code| if code > 3 { code - 4 } else { code }), out);
        pack_six_bit_scales(&scale_codes.map(|code| code as u8), out);
        out.extend(scale.to_le_bytes());
    }
}

/// Rounds signed scales to codes of 0 to 63, of which 32 stands for 0. Returns their scale.
fn plain_signed_scales(scales: &[f32; 16], codes: &mut [i8; 16]) -> f32 {
    let max = extreme(scales);
    if max == 0.0 {
        return 0.0;
    }
    let inverse = -32.0 / max;
    codes.iter_mut().zip(scales).for_each(|(code, scale)| {
        *code = (nearest(inverse * scale) as i8).clamp(-32, 31) + 32;
    });
    1.0 / inverse
}

/// Rounds weights to codes around `limit`. A scale of 0 leaves them as they are.
fn round_signed(x: &[f32], scale: f32, limit: i32, codes: &mut [i8]) {
    if scale != 0.0 {
        let code = |x: f32| (nearest(x / scale).clamp(-limit, limit - 1) + limit) as i8;
        codes.iter_mut().zip(x).for_each(|(out, &x)| *out = code(x));
    }
}

/// Appends blocks of Q6_K.
pub fn q6_k_row(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    const PART: usize = 16;
    const BYTES: usize = 210;
    for (index, x) in x.chunks_exact(BLOCK).enumerate() {
        let (mut codes, mut scales) = ([0; BLOCK], [0.0; 16]);
        let importance = of_block(importance, index);
        for (part, (x, codes)) in x.chunks_exact(PART).zip(codes.chunks_exact_mut(PART)).enumerate() {
            let weights = importance.map(|importance| &importance[part * PART..][..PART]);
            scales[part] = around_zero(x, 32, weights, codes);
        }
        let max = extreme(&scales);
        if max.abs() < ZERO {
            out.extend([0; BYTES]);
            continue;
        }
        let inverse = -128.0 / max;
        let scale = f16::from_f32(1.0 / inverse);
        let scale_codes = scales.map(|scale| nearest(inverse * scale).min(127) as i8);
        for ((x, codes), scale_code) in x.chunks_exact(PART).zip(codes.chunks_exact_mut(PART)).zip(scale_codes) {
            round_signed(x, scale.to_f32() * f32::from(scale_code), 32, codes);
        }
        let codes = codes.map(|code| code as u8);
        for half in codes.chunks_exact(128) {
            out.extend((0..64).map(|lane| half[lane] & 15 | half[lane + 64] << 4));
        }
        for half in codes.chunks_exact(128) {
            out.extend((0..32).map(|lane| (0..4).map(|part| (half[32 * part + lane] >> 4) << (2 * part)).sum::<u8>()));
        }
        out.extend(scale_codes.map(|code| code as u8));
        out.extend(scale.to_le_bytes());
    }
}

/// Appends codes of two bits, four of them, 32 apart, in a byte.
fn pack_two_bits(codes: &[u8; BLOCK], out: &mut Vec<u8>) {
    for half in codes.chunks_exact(128) {
        out.extend((0..32).map(|lane| (0..4).map(|part| half[32 * part + lane] << (2 * part)).sum::<u8>()));
    }
}

/// Appends the lower four bits of codes, two of them, 32 apart, in a byte.
fn pack_four_bits(codes: &[u8; BLOCK], out: &mut Vec<u8>) {
    for pair in codes.chunks_exact(64) {
        out.extend((0..32).map(|lane| pair[lane] & 15 | pair[lane + 32] << 4));
    }
}

/// Appends the scale and the minimum of a block, and codes of six bits for those of its parts.
fn pack_scales(block: &Block, out: &mut Vec<u8>) {
    out.extend([block.scale, block.minimum].map(f16::to_le_bytes).as_flattened());
    let (scales, minimums) = (&block.scales, &block.minimums);
    out.extend((0..4).map(|part| scales[part] | scales[part + 4] >> 4 << 6));
    out.extend((0..4).map(|part| minimums[part] | minimums[part + 4] >> 4 << 6));
    out.extend((4..8).map(|part| scales[part] & 15 | minimums[part] << 4));
}

/// Appends codes of six bits: the lower four of all, then the upper two.
fn pack_six_bit_scales(scales: &[u8; 16], out: &mut Vec<u8>) {
    out.extend((0..8).map(|part| scales[part] & 15 | scales[part + 8] << 4));
    out.extend((0..4).map(|part| (0..4).map(|row| scales[4 * row + part] >> 4 << (2 * row)).sum::<u8>()));
}
