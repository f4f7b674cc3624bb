//! Quantizes to the formats that round each weight by itself: MXFP4, Q1_0, Q2_0, TQ1_0 and TQ2_0.

use half::f16;

use super::scales::extreme;

/// Twice the floats of four bits (E2M1) that codes stand for.
const E2M1: [f32; 16] = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0];

/// Appends blocks of MXFP4.
pub fn mxfp4_row(x: &[f32], _importance: Option<&[f32]>, out: &mut Vec<u8>) {
    for x in x.chunks_exact(32) {
        let max = extreme(x).abs();
        let exponent = if max > 0.0 { (max.log2().floor() - 2.0 + 127.0) as u8 } else { 0 };
        // Half of the power of two that the exponent stands for; the lowest two are subnormal.
        let half = f32::from_bits(match exponent {
            0 | 1 => 0x0020_0000 << exponent,
            _ => u32::from(exponent - 1) << 23,
        });
        let code = |x: f32| {
            let error = |code: usize| (E2M1[code] * half - x).abs();
            (1..16).fold(0, |best, code| if error(code) < error(best) { code } else { best }) as u8
        };
        out.push(exponent);
        let (low, high) = x.split_at(16);
        out.extend(low.iter().zip(high).map(|(&low, &high)| code(low) | code(high) << 4));
    }
}

/// Appends blocks of Q1_0.
pub fn q1_0_row(x: &[f32], _importance: Option<&[f32]>, out: &mut Vec<u8>) {
    for x in x.chunks_exact(128) {
        let scale = x.iter().fold(0.0, |sum, x| sum + x.abs()) / 128.0;
        out.extend(f16::from_f32(scale).to_le_bytes());
        let byte = |x: &[f32; 8]| x.iter().enumerate().map(|(bit, x)| u8::from(*x >= 0.0) << bit).sum::<u8>();
        out.extend(x.as_chunks().0.iter().map(byte));
    }
}

/// Appends blocks of Q2_0.
pub fn q2_0_row(x: &[f32], _importance: Option<&[f32]>, out: &mut Vec<u8>) {
    for x in x.chunks_exact(64) {
        let (scale, inverse) = largest(x);
        out.extend(f16::from_f32(scale).to_le_bytes());
        let code = |x: f32| ((x * inverse).round() as i32 + 1).clamp(0, 3) as u8;
        let byte = |x: &[f32; 4]| x.iter().enumerate().map(|(index, x)| code(*x) << (2 * index)).sum::<u8>();
        out.extend(x.as_chunks().0.iter().map(byte));
    }
}

/// Appends blocks of TQ1_0.
pub fn tq1_0_row(x: &[f32], _importance: Option<&[f32]>, out: &mut Vec<u8>) {
    for x in x.chunks_exact(256) {
        let (scale, inverse) = largest(x);
        // Five digits in a byte, `stride` apart; the byte is rounded up so that a decoder can
        // multiply the digits out again.
        let mut pack = |x: &[f32], stride: usize, digits: usize| {
            for lane in 0..stride {
                let number = (0..5).fold(0, |number, digit| {
                    number * 3 + if digit < digits { ternary(x[lane + digit * stride] * inverse) } else { 0 }
                });
                out.push((number * 256).div_ceil(243) as u8);
            }
        };
        pack(&x[..160], 32, 5);
        pack(&x[160..240], 16, 5);
        pack(&x[240..], 4, 4);
        out.extend(f16::from_f32(scale).to_le_bytes());
    }
}

/// Appends blocks of TQ2_0.
pub fn tq2_0_row(x: &[f32], _importance: Option<&[f32]>, out: &mut Vec<u8>) {
    for x in x.chunks_exact(256) {
        let (scale, inverse) = largest(x);
        for half in x.chunks_exact(128) {
            let byte = |lane: usize| {
                (0..4).map(|part| (ternary(half[32 * part + lane] * inverse) as u8 & 3) << (2 * part)).sum::<u8>()
            };
            out.extend((0..32).map(byte));
        }
        out.extend(f16::from_f32(scale).to_le_bytes());
    }
}

/// Returns the largest magnitude and its inverse, 0 for 0.
fn largest(x: &[f32]) -> (f32, f32) {
    let scale = extreme(x).abs();
    (scale, if scale == 0.0 { 0.0 } else { 1.0 / scale })
}

/// Rounds to -1, 0 or 1, and returns that plus 1.
fn ternary(x: f32) -> u32 {
    (x.round() as i32 + 1) as u32
}
